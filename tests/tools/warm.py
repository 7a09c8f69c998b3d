"""Commands and functions in forks of a process that has imported what they import.

They are processes like any other (a session, a folder, an environment, streams and an exit status of their
own), but start in hundredths of a second, where a new Python imports for a second, and with TensorFlow for
five. What a module does when it is imported has happened before: a test of that needs a new Python.

    done = warm.run(["compare", "a.csv"], tmp_path)            # `multiberts compare a.csv`
    assert (done.returncode, done.stderr) == (0, "")
    losses = warm.call("bert.training.some_module:losses", 3, kind="tensorflow")
    process = warm.Process("multiberts.tests.some_module:main", ["waits"], tmp_path)
    process.terminate()

Under pytest the servers are there (tests/conftest.py); a program starts them by `with servers():`.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import resource
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from multiberts.tests.tools.patience import PATIENCE
from multiberts.tests.tools.terminal_signals import obey_a_terminal

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "multiberts.runs.command_line.command:main"

# What commands import when they are given, and while they work.
_COMMANDS = (
    "launch.running",
    "launch.command",
    "launch.status.plan_report",
    "report.reporting",
)
_PLAIN = ("scipy.stats", "pandas", "xarray", "matplotlib.figure", "distributed", "dask.config")
_TRAINING = (
    "multiberts.bert.training.training_loop",
    "multiberts.bert.model.heads",
    "multiberts.bert.checkpoint.checkpoint",
    "multiberts.pretrain.training.held_out_evaluation",
    "multiberts.finetune.finetuning",
)
# By kind of server: the engine of its environment, and what it imports besides the commands' modules. Of
# TensorFlow and JAX nothing may be used before a fork.
PLAIN, TENSORFLOW, JAX = "plain", "tensorflow", "jax"
_KINDS: Mapping[str, Sequence[str]] = {
    PLAIN: _PLAIN,
    TENSORFLOW: (*_PLAIN, "tensorflow", "multiberts.bert.training.tensorflow_trainer", *_TRAINING),
    JAX: (*_PLAIN, "jax", "keras", "multiberts.bert.training.jax_trainer", *_TRAINING),
}
# Python's audit hooks are told of each start by this name.
STARTS = "multiberts.tests.tools.warm"
# Names the folder of the servers' sockets, for this process and those that it starts.
_VARIABLE = "MULTIBERTS_WARM"
_STREAMS = 3
# Messages: an identity of a process or a length; a status and CPU seconds.
_NUMBER, _END = struct.Struct("q"), struct.Struct("qd")


class Process:
    """A function's call in a fork of a server; used like `subprocess.Popen`, with text for output.

    Attributes:
      pid: of the process, which leads a session of its own.
      returncode: as `subprocess.Popen` has it; None before `wait` or `poll` has seen the end.
      stdout: what it has printed so far can be read from it; None where a file was given.
      stderr: likewise.
      seconds_of_all: CPU seconds of all these processes, and of their children, whose end was seen.
    """

    seconds_of_all = 0.0

    def __init__(
        self,
        target: str,
        arguments: Sequence[Any],
        folder: Path | str = ROOT,
        *,
        kind: str = PLAIN,
        environment: Mapping[str, str] | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        max_bytes_of_file: int = resource.RLIM_INFINITY,
    ):
        """Starts it.

        Args:
          target: `module:function`.
          arguments: what JSON can say.
          folder: the working directory.
          kind: of the server: PLAIN, TENSORFLOW or JAX, by what it has imported.
          environment: all of it; None: of this process.
          stdout: file descriptor for what it prints; None: a file of its own.
          stderr: likewise.
          max_bytes_of_file: writing more fails as it does on a full disk.
        """
        self._kind = kind
        self.returncode: int | None = None
        self.stdout, out = _stream(stdout)
        self.stderr, err = _stream(stderr)
        request = {
            "target": target,
            "arguments": list(arguments),
            "folder": str(folder),
            "environment": dict(os.environ if environment is None else environment),
            "max_bytes_of_file": max_bytes_of_file,
        }
        content = json.dumps(request).encode()
        sys.audit(STARTS)
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.settimeout(PATIENCE)
        self._server.connect(os.path.join(os.environ[_VARIABLE], kind))
        with open(os.devnull) as nothing:
            streams = [nothing.fileno(), out, err]
            socket.send_fds(self._server, [_NUMBER.pack(len(content))], streams)
        self._server.sendall(content)
        for asked, number in ((stdout, out), (stderr, err)):
            if asked is None:
                os.close(number)
        [self.pid] = self._receive(_NUMBER)

    def _receive(self, message: struct.Struct) -> tuple[Any, ...]:
        try:
            return message.unpack(_exactly(self._server, message.size))
        except ConnectionError as error:
            log = Path(os.environ[_VARIABLE], f"{self._kind}.log")
            raise RuntimeError(f"the server of warm processes: {log.read_text()}") from error

    def poll(self) -> int | None:
        """Returns the status; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        """Waits for the end, and returns the status: minus the signal that ended it, where one did."""
        if self.returncode is None:
            self._server.settimeout(timeout or 1e-4)
            try:
                self.returncode, seconds = self._receive(_END)
            except TimeoutError:
                raise subprocess.TimeoutExpired(str(self.pid), timeout) from None
            Process.seconds_of_all += seconds
            self._server.close()
        return self.returncode

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """Waits for the end, and returns what it printed and `stdout` and `stderr` have not given yet."""
        self.wait(timeout)
        return tuple(stream.read() if stream else "" for stream in (self.stdout, self.stderr))

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    arguments: Sequence[object],
    folder: Path | str = ROOT,
    *,
    target: str = COMMAND,
    timeout: float = PATIENCE,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Runs `multiberts *arguments` to its end; `options` are those of `Process`."""
    texts = [str(argument) for argument in arguments]
    process = Process(target, [texts], folder, **options)
    try:
        printed, errors = process.communicate(timeout)
    except BaseException:
        process.kill()
        raise
    return subprocess.CompletedProcess(texts, process.wait(), printed, errors)


def call(function: str, *arguments: Any, kind: str = PLAIN, **environment: str) -> Any:
    """Returns what `module:function` below `tests` returns; arguments and result are what JSON can say.

    Args:
      function: called with the arguments.
      arguments: of the function.
      kind: see `Process`.
      environment: set besides that of this process.
    """
    target = f"{__name__}:_print_result"
    process = Process(
        target, [function, arguments], kind=kind, environment={**os.environ, **environment}
    )
    printed, errors = process.communicate()
    assert process.returncode == 0, errors[-3000:]
    return json.loads(printed.splitlines()[-1])


def _print_result(function: str, arguments: Sequence[Any]) -> None:
    print("\n" + json.dumps(_named(f"multiberts.tests.{function}")(*arguments)))


def _named(target: str) -> Callable[..., Any]:
    module, _, function = target.partition(":")
    named: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return named


def _stream(number: int | None) -> tuple[IO[str] | None, int]:
    """Returns a file to read from, and the descriptor to write to."""
    if number is not None:
        return None, number
    with tempfile.NamedTemporaryFile(prefix="warm-", delete=False) as file:
        name = file.name
    written = os.open(name, os.O_WRONLY | os.O_APPEND)
    read = open(name, encoding="utf-8", errors="replace", newline="")  # noqa: SIM115
    os.unlink(name)
    return read, written


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = connection.recv(size - len(content))
        if not part:
            raise ConnectionError("it has ended")
        content += part
    return content


@contextlib.contextmanager
def servers() -> Iterator[None]:
    """Has servers for this process and those that it starts; each imports when it is first asked."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        for kind in _KINDS:
            with (
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener,
                open(os.path.join(folder, f"{kind}.log"), "w") as log,
            ):
                listener.bind(os.path.join(folder, kind))
                listener.listen(64)
                number = listener.fileno()
                server = subprocess.Popen(
                    # -P: the folders here are packages, too, and have names of others' ones.
                    [sys.executable, "-P", "-m", __spec__.name, kind, str(number)],
                    stdin=subprocess.PIPE,
                    stderr=log,
                    pass_fds=[number],
                    env={**os.environ, **({"KERAS_BACKEND": JAX} if kind == JAX else {})},
                )
            stack.enter_context(server)  # at the end closes its input, and waits
        os.environ[_VARIABLE] = folder
        yield
        del os.environ[_VARIABLE]


def _serve(kind: str, listener: socket.socket) -> None:
    """Forks for each request until standard input ends."""
    is_warm = False
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        selector.register(listener, selectors.EVENT_READ)
        while all(key.fileobj is listener for key, _ in selector.select()):
            connection, _ = listener.accept()
            if not is_warm:
                _import(kind)
                is_warm = True
            if os.fork() == 0:
                listener.close()
                _answer(connection)
                os._exit(0)
            connection.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def _answer(connection: socket.socket) -> None:
    """Starts the process that is asked for, and tells its identity, and at its end its status."""
    content, streams, _, _ = socket.recv_fds(connection, _NUMBER.size, _STREAMS)
    [size] = _NUMBER.unpack(content)
    request = json.loads(_exactly(connection, size))
    # It leaves as `multiprocessing` does: to take down all modules would take a tenth of a second.
    process = multiprocessing.get_context("fork").Process(
        target=_enter, args=(request, streams, connection)
    )
    process.start()
    for number in streams:
        os.close(number)
    connection.sendall(_NUMBER.pack(process.pid))
    process.join()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with contextlib.suppress(OSError):  # no one waits
        connection.sendall(_END.pack(process.exitcode, used.ru_utime + used.ru_stime))


def _import(kind: str) -> None:
    from multiberts.runs.command_line.commands import COMMANDS

    targets = [name for command in COMMANDS.values() for name in (command.target, command.report)]
    for target in filter(None, targets):
        module, _, function = target.partition(":")
        # A module with a `main` of its own defines flags, which other commands may define, too.
        if function != "main":
            importlib.import_module(f"multiberts.{module}")
    for module in (*(f"multiberts.{name}" for name in _COMMANDS), *_KINDS[kind]):
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # or the next collection would copy every page


def _enter(request: Mapping[str, Any], streams: Sequence[int], connection: socket.socket) -> None:
    """Makes this process what was asked for, and calls the function."""
    connection.close()
    os.setsid()
    os.chdir(request["folder"])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - `multiprocessing` has closed it
    obey_a_terminal()
    tempfile.tempdir = None  # the environment may name another one
    os.environ.clear()
    os.environ.update(request["environment"])
    importlib.reload(importlib.import_module("multiberts.runs.environment"))  # sets what is not
    more = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [name for name in more if name not in sys.path]
    limit = request["max_bytes_of_file"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    _named(request["target"])(*request["arguments"])


if __name__ == "__main__":
    # JAX warns of every fork, and is not used before.
    warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
    _serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
