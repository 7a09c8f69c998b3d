"""A run is a directory: its frozen configuration, its outputs, and a DONE marker that comes last."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiberts.runs.console import note_once
from multiberts.runs.errors import UserError
from multiberts.runs.files import (
    UNFINISHED_SUFFIX,
    PathLike,
    read_lines,
    remove,
    sha256_of_file,
    write_atomically,
)
from multiberts.runs.identity import CONFIG as CONFIG
from multiberts.runs.identity import DONE as DONE
from multiberts.runs.identity import (
    INPUTS,
    Opened,
    RecordedFile,
    check_promise,
    keep,
    opened,
    read_outputs,
    recall,
)
from multiberts.runs.identity import read_done as read_done
from multiberts.runs.lease_holder import NoLocksError, lock_file
from multiberts.runs.parameters import leaves, shortened

if TYPE_CHECKING:
    from multiberts.runs.bucket.lease import Lease

_Given = PathLike | Opened

LOCK = ".lock"
# Lists the outputs of a run in a bucket that are not fetched while it resumes.
UNFETCHED = ".unfetched.json"

LARGE_INPUT_BYTES = 64 << 20

# Marks the lines of a frozen configuration that are compared, if only some are.
_COMPARED = "#: "

# Separates an input's path from the checksum of its content.
_HOLDS = "  # holds "


def describe_outputs(run_dir: PathLike) -> str:
    """Describes the outputs of a finished run in one line."""
    outputs = read_done(run_dir)
    size = sum(file["bytes"] for file in outputs.values()) / 1e6
    return f"{run_dir}: {len(outputs)} files, {size:.1f} MB: {', '.join(outputs)}"


def read_unfetched(directory: PathLike) -> dict[str, RecordedFile]:
    """Returns the outputs, by name, that exist only in the run's bucket; none without a bucket."""
    listed = Path(directory) / UNFETCHED
    return read_outputs(listed, "remove the directory") if listed.exists() else {}


def read_config(path: PathLike) -> Iterator[tuple[str, Any, str | None]]:
    """Reads the frozen configuration of a finished or unfinished run.

    Args:
      path: a run's `config.gin`.

    Yields:
      For each binding its name (`pretrain.num_steps`), its value, and for an input its checksum.

    Raises:
      UserError: a line is not a binding as `RunDirectory` writes it.

    Examples:
      >>> bindings = {name: value for name, value, _ in read_config("runs/seed_0/config.gin")}
      >>> bindings["import_predictions.task"], bindings["import_predictions.pretrain_seed"]
      ('RTE', 0)
    """
    return _bindings(Path(path), read_lines(path))


def _bindings(path: Path, lines: Sequence[str]) -> Iterator[tuple[str, Any, str | None]]:
    """Yields what `read_config` does for each line `name = value`."""
    for number, line in enumerate(lines, start=1):
        if line.startswith("#") or not line:
            continue
        name, separator, text = line.partition(" = ")
        literal, is_input, content = text.rpartition(_HOLDS)
        try:
            value = ast.literal_eval((literal if is_input else text) if separator else "")
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise UserError(
                f"{path} line {number}: found {shortened(line)}, expected `name = value` with a Python "
                "literal; the file was edited: restore it, or choose another run_dir"
            ) from error
        yield name, value, content if is_input else None


class RunDirectory:
    r"""One run of one stage, which can be killed and restarted at any time.

    Attributes:
      path: the directory.
      done: whether the run has finished and its outputs exist.
      is_renewed: whether this run replaces a run with other inputs.
      inputs: the opened inputs by name.

    Examples:
      >>> def count_words(run_dir, text):
      ...     run = RunDirectory(run_dir, stage="count", parameters={}, inputs={"text": text})
      ...     if run.done:
      ...         return
      ...     words = Path(text).read_text().split()  # nothing has been created so far
      ...     with run:
      ...         write_atomically(run.path / "words.txt", f"{len(words)}\n")
      ...         run.finish(["words.txt"])
      >>> write_atomically("text.txt", "one sentence\n")
      >>> count_words("count", "text.txt")
      >>> Path("count/words.txt").read_text(), list(read_done("count"))
      ('2\n', ['words.txt'])
    """

    def __init__(
        self,
        path: PathLike,
        *,
        stage: str,
        parameters: Mapping[str, Any],
        inputs: Mapping[str, _Given | Sequence[_Given] | None] | None = None,
        call: Mapping[str, Any] | None = None,
        renewed_by: Sequence[str] = (),
        another: Callable[[Sequence[str]], str] = lambda _: "choose another run_dir",
    ):
        """Inspects the directory without creating or changing files.

        Args:
          path: path of the directory, which need not exist.
          stage: the stage's name, as in Gin (`pretrain`, `finetune`, ...).
          parameters: every argument that changes the run's numbers, as Python literals.
          inputs: inputs by name, one or several each, opened (`runs.identity`) or as paths of files and
            finished runs; None and none are left out. They are compared by their identity.
          call: the arguments that make the run again, as literals, where they are named otherwise
            than `parameters` and `inputs`; None is left out. They are kept, not compared.
          renewed_by: inputs that may hold something else now; the run is then not done, and is made
            again in its directory.
          another: returns the advice for a run with other parameters, whose names it gets.

        Raises:
          UserError: the directory belongs to a run with other parameters or inputs, holds
            something else, or has lost outputs that its DONE marker lists.
        """
        self.path = Path(os.path.expanduser(path))
        self._stage = stage
        self._another = another
        self._renewed_by = {f"{stage}.{name}" for name in renewed_by}
        self._open_until_exit = contextlib.ExitStack()
        self._lease: Lease | None = None
        recall(self.path / INPUTS)
        self.inputs: dict[str, list[Opened]] = {}
        spelled: dict[str, str | list[str]] = {}
        for name, given in (inputs or {}).items():
            if given not in (None, [], ()):
                several = self.inputs[name] = [
                    opened(each) if isinstance(each, (str, os.PathLike)) else each
                    for each in leaves(given)
                ]
                paths = [str(each.where) for each in several]
                spelled[name] = paths if isinstance(given, (list, tuple)) else paths[0]
                for each in several:
                    check_promise(each)

        # The frozen configuration: Gin bindings that repeat the run. An input's checksum follows its path in
        # a comment: the path may change, the content must not.
        compared = [_binding(stage, name, parameters[name]) for name in sorted(parameters)]
        for name in sorted(spelled):
            compared.append(f"{stage}.{name} = {spelled[name]!r}{_HOLDS}{self.identity_of(name)}")
        heading = f"# Frozen by the stage `{stage}`. Numbers depend on every line"
        lines = [f"{heading}; of inputs, on content.", *compared]
        if call is not None:  # with names of its own, so that all that is compared is a comment
            lines = [
                f"{heading} with `{_COMPARED.strip()}`; of inputs, on content.",
                *(_COMPARED + line for line in compared),
                "# The call that makes the run again:",
                *(_binding(stage, n, call[n]) for n in sorted(call) if call[n] is not None),
            ]
        self._config = "\n".join([*lines, ""])
        self._refuse_other_run()
        self.done = self._is_done()

    def identity_of(self, name: str) -> str:
        """Returns the identity of an input; of several, theirs joined by `+`."""
        return "+".join(each.identity for each in self.inputs[name])

    def _refuse_other_run(self) -> None:
        config, self.is_renewed = self.path / CONFIG, False
        if not config.exists():
            if self.path.exists() and not self.path.is_dir():
                raise UserError(f"{self.path} is a file; choose another run_dir")
            ours = {LOCK, CONFIG + UNFINISHED_SUFFIX}
            leftovers = sorted({*os.listdir(self.path)} - ours) if self.path.exists() else []
            if leftovers:
                raise UserError(
                    f"{self.path} holds other files ({leftovers[0]}) and no {CONFIG}; choose an "
                    "empty or new run_dir"
                )
            return
        there = _compared(config, read_lines(config))
        wanted = _compared(config, self._config.splitlines())
        names = sorted(
            name for name in there.keys() | wanted.keys() if there.get(name) != wanted.get(name)
        )
        self.is_renewed = bool(names) and self._renewed_by.issuperset(names)
        if self.is_renewed or not names:
            return
        differences = ", ".join(
            f"{name} (there {_shown(there, name)}, now {_shown(wanted, name)})" for name in names
        )
        differences = re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1...", differences)  # hashes
        # An earlier version of this program may have recorded other parameters.
        is_other_version = there.keys() != wanted.keys()
        cure = ", or remove the directory if an earlier version made it" if is_other_version else ""
        raise UserError(
            f"{self.path} was made with other parameters: {differences}; {self._another(names)} "
            f"or give the same parameters{cure}"
        )

    def _is_done(self) -> bool:
        marker = self.path / DONE
        if self.is_renewed or not marker.exists():
            return False
        for name, entry in read_done(self.path).items():
            output = self.path / name
            if not output.is_file() or output.stat().st_size != entry["bytes"]:
                raise UserError(
                    f"{output} is missing or has another size than {marker} says; remove {marker} "
                    "and run the same command to make it again"
                )
        return True

    def __enter__(self) -> RunDirectory:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path / LOCK, os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise UserError(
                f"cannot write {self.path}: {error.strerror}; choose another run_dir"
            ) from error
        self._open_until_exit.callback(os.close, lock)
        try:
            # Lock out other processes, without waiting for a running one.
            try:
                if not lock_file(lock, self.path / LOCK):
                    raise UserError(
                        f"{self.path} is being written by another process; wait for it or stop it"
                    )
            except NoLocksError as error:
                from multiberts.runs.bucket.lease import Lease
                from multiberts.runs.bucket.objects import Bucket

                reason = str(error).partition("; ")[0]
                note_once(f"{reason}: a lease that is renewed keeps other processes out instead")
                # Beside the run, because every file inside it is an output of the run.
                path = self.path.resolve()
                folder = path.with_name(f".{path.name}.lease")
                self._lease = Lease(Bucket(f"file://{folder}"), place=str(self.path))
                self._lease.acquire()
                self._open_until_exit.callback(remove, folder)
                self._open_until_exit.callback(self._lease.release)

            # Between the first check and the lock another process may have written or finished a run here.
            self._refuse_other_run()
            self.done = self._is_done()
            for leftover in self.path.rglob("*" + UNFINISHED_SUFFIX):
                remove(leftover)
            # DONE first: a kill in between leaves an unfinished run, not one with a wrong configuration.
            if self.is_renewed:
                remove(self.path / DONE)
            if self.is_renewed or not (self.path / CONFIG).exists():
                write_atomically(self.path / CONFIG, self._config)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._lease = None
        self._open_until_exit.close()

    def finish(self, outputs: Sequence[str]) -> None:
        """Writes the DONE marker with the size and SHA-256 of each output.

        Args:
          outputs: paths relative to the run directory.
        """
        if self._lease is not None:
            self._lease.check()
        unfetched = read_unfetched(self.path)
        entries: dict[str, RecordedFile] = {}
        for name in outputs:
            file = self.path / name
            if file.is_file():
                entries[name] = {"bytes": file.stat().st_size, "sha256": sha256_of_file(file)}
            elif name in unfetched:
                entries[name] = unfetched[name]
            else:
                raise UserError(
                    f"{file} was removed while the run worked; run the same command again"
                )
        # Without this check, files written after a removal would count as outputs of any parameters.
        if not (self.path / CONFIG).is_file():
            raise UserError(
                f"{self.path / CONFIG} was removed while the run worked; remove the directory, and run the "
                "same command again"
            )
        content = {"stage": self._stage, "outputs": dict(sorted(entries.items()))}
        # Before DONE, which comes last.
        read = [each.where for several in self.inputs.values() for each in several]
        keep(self.path / INPUTS, read, LARGE_INPUT_BYTES)
        write_atomically(self.path / DONE, json.dumps(content, indent=1) + "\n")
        self.done = True

    def finish_folder(self, name: str) -> None:
        """Writes the DONE marker over every file below a folder of the run directory."""
        files = sorted(path for path in (self.path / name).rglob("*") if path.is_file())
        self.finish([str(path.relative_to(self.path)) for path in files])


def _binding(stage: str, name: str, value: Any) -> str:
    if isinstance(value, tuple):
        value = list(value)
    # A configuration must read back as the values that ran; NaN, NumPy numbers and objects do not.
    if ast.literal_eval(repr(value)) != value:
        raise TypeError(f"{stage}.{name} = {value!r} is not a Python literal")
    return f"{stage}.{name} = {value!r}"


def _compared(path: Path, lines: Sequence[str]) -> dict[str, tuple[Any, str | None]]:
    """Returns the value of each parameter, and the identity of each input instead of its path."""
    marked = [line.removeprefix(_COMPARED) * line.startswith(_COMPARED) for line in lines]
    return {
        name: (value if content is None else None, content)
        for name, value, content in _bindings(path, marked if any(marked) else lines)
    }


def _shown(compared: Mapping[str, tuple[Any, str | None]], name: str) -> str:
    value, content = compared.get(name, (None, "absent"))
    is_input = content is not None and name in compared
    return f"content {content}" if is_input else content or repr(value)
