"""A run is a directory: its frozen configuration, its outputs, and a DONE marker that comes last."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from multiberts.runs.console import note_once
from multiberts.runs.errors import UserError
from multiberts.runs.files import (
    UNFINISHED_SUFFIX,
    PathLike,
    is_name_inside,
    read_json_fields,
    read_lines,
    remove,
    sha256_of_file,
    write_atomically,
)
from multiberts.runs.lease_holder import NoLocksError, lock_file
from multiberts.runs.parameters import shortened

if TYPE_CHECKING:
    from multiberts.runs.bucket.lease import Lease

CONFIG = "config.gin"
DONE = "DONE"
LOCK = ".lock"
# Lists the outputs of a run in a bucket that are not fetched while it resumes.
UNFETCHED = ".unfetched.json"

# Checksums of large input files, each with its size and times of change: while these stay, the
# inputs of a finished run are not read again.
INPUTS = ".inputs.json"
LARGE_INPUT_BYTES = 64 << 20

# Marks the lines of a frozen configuration that are compared, if only some are.
_COMPARED = "#: "

# Separates an input's path from the checksum of its content.
_HOLDS = "  # holds "

# Patterns of weight files in directories of other programs; several files are shards of one model.
_WEIGHTS = ("*.data-?????-of-?????", "model*.safetensors", "pytorch_model*.bin")


def fingerprint(path: PathLike) -> str:
    r"""Returns the SHA-256 of an input's content, in hexadecimal.

    Args:
      path: a file (hashed itself), a finished run directory (by its DONE marker, which lists the checksums of
        all outputs), or a checkpoint directory (by its `checkpoint.json`, or else by its weights).

    Raises:
      UserError: there is nothing at `path`, or it is a run that has not finished.

    Examples:
      >>> from multiberts.runs.files import write_atomically
      >>> write_atomically("text.txt", "one sentence\n")
      >>> fingerprint("text.txt")[:12]
      '5f0a42ea0749'
    """
    path = Path(path)
    if path.is_file():
        return sha256_of_file(path)
    # In this order, because our checkpoints also hold weights, and their list covers all files.
    for marker in (DONE, "checkpoint.json", *_WEIGHTS):
        files = sorted(path.glob(marker))
        if marker == DONE and files:
            read_done(path)  # a truncated or empty marker is not that of a finished run
        if len(files) == 1:
            return sha256_of_file(files[0])
        if files:
            digests = "".join(map(sha256_of_file, files))
            return hashlib.sha256(digests.encode()).hexdigest()
    if not path.exists():
        raise UserError(f"{path} does not exist; check the path")
    if (path / CONFIG).is_file():
        raise UserError(f"{path} is a run that has not finished; run it to its end first")
    raise UserError(f"{path} is neither a file, a finished run nor a checkpoint; check the path")


class RecordedFile(TypedDict):
    """Entry of a file in a DONE marker."""

    bytes: int
    sha256: str


def read_done(directory: PathLike) -> dict[str, RecordedFile]:
    """Returns a finished run's outputs by name.

    Raises:
      UserError: the DONE marker is damaged, or names a file outside the directory.

    Examples:
      >>> list(read_done("runs/seed_0"))
      ['predictions/dev.tfrecord', 'run.json']
    """
    return _listed(Path(directory) / DONE, "remove it and run the same command to make it again")


def _listed(marker: Path, cure: str) -> dict[str, RecordedFile]:
    outputs = read_json_fields(marker, {"outputs": dict[str, RecordedFile]}, cure)["outputs"]
    for name in outputs:
        if not is_name_inside(name):
            raise UserError(f"{marker} lists {name!r}, which is outside the run; {cure}")
    return {name: {"bytes": of["bytes"], "sha256": of["sha256"]} for name, of in outputs.items()}


def describe_outputs(run_dir: PathLike) -> str:
    """Describes the outputs of a finished run in one line."""
    outputs = read_done(run_dir)
    size = sum(file["bytes"] for file in outputs.values()) / 1e6
    return f"{run_dir}: {len(outputs)} files, {size:.1f} MB: {', '.join(outputs)}"


def read_unfetched(directory: PathLike) -> dict[str, RecordedFile]:
    """Returns the outputs, by name, that exist only in the run's bucket; none without a bucket."""
    listed = Path(directory) / UNFETCHED
    return _listed(listed, "remove the directory") if listed.exists() else {}


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
    for number, name, value, content in _bindings(Path(path), read_lines(path)):
        try:
            read = ast.literal_eval(value)
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise UserError(
                f"{path} line {number}: {shortened(value)} is not a Python literal; the file was edited: "
                "restore it"
            ) from error
        yield name, read, content


def _bindings(path: Path, lines: Sequence[str]) -> Iterator[tuple[int, str, str, str | None]]:
    """Yields (line number, name, value, checksum of an input) of each line `name = value`."""
    for number, line in enumerate(lines, start=1):
        if line.startswith("#") or not line:
            continue
        name, separator, value = line.partition(" = ")
        if not separator:
            raise UserError(
                f"{path} line {number}: found {shortened(line)}, expected `name = value`; the file was "
                "edited: restore it or choose another run_dir"
            )
        literal, is_input, content = value.rpartition(_HOLDS)
        yield number, name, literal if is_input else value, content if is_input else None


class RunDirectory:
    r"""One run of one stage, which can be killed and restarted at any time.

    Attributes:
      path: the directory.
      done: whether the run has finished and its outputs exist.
      is_renewed: whether this run replaces a run with other inputs.
      fingerprints: {input name: SHA-256 of its content} (several joined with `+`).

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
        inputs: Mapping[str, PathLike | Sequence[PathLike] | None] | None = None,
        call: Mapping[str, Any] | None = None,
        renewed_by: Sequence[str] = (),
        another: str = "choose another run_dir",
    ):
        """Inspects the directory without creating or changing files.

        Args:
          path: path of the directory, which need not exist.
          stage: the stage's name, as in Gin (`pretrain`, `finetune`, ...).
          parameters: every argument that changes the run's numbers, as Python literals.
          inputs: paths of input files or directories, one or several a name; None is left out.
            They are compared by their content.
          call: the arguments that make the run again, as literals, where they are named otherwise
            than `parameters` and `inputs`; None is left out. They are kept, not compared.
          renewed_by: inputs that may hold something else now; the run is then not done, and is made
            again in its directory.
          another: advice for a run with other parameters, for the message.

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
        self._large_inputs: dict[str, dict[str, Any]] = {}
        self.fingerprints: dict[str, str] = {}
        spelled: dict[str, str | list[str]] = {}
        for name, paths in (inputs or {}).items():
            if paths is not None:
                several = [paths] if isinstance(paths, (str, os.PathLike)) else paths
                spelled[name] = list(map(str, several)) if several is paths else str(paths)
                self.fingerprints[name] = "+".join(map(self._fingerprint, map(Path, several)))

        # The frozen configuration: Gin bindings that repeat the run. An input's checksum follows its path in
        # a comment: the path may change, the content must not.
        compared = [_binding(stage, name, parameters[name]) for name in sorted(parameters)]
        for name in sorted(spelled):
            compared.append(f"{stage}.{name} = {spelled[name]!r}{_HOLDS}{self.fingerprints[name]}")
        heading = f"# Frozen by the stage `{stage}`. Numbers depend on every line"
        lines = [f"{heading}; of inputs, on content.", *compared]
        if (
            call is not None
        ):  # which has names of its own, so that all that is compared is a comment
            lines = [
                f"{heading} with `{_COMPARED.strip()}`; of inputs, on content.",
                *(_COMPARED + line for line in compared),
                "# The call that makes the run again:",
                *(_binding(stage, n, call[n]) for n in sorted(call) if call[n] is not None),
            ]
        self._config = "\n".join([*lines, ""])
        self._refuse_other_run()
        self.done = self._is_done()

    def _fingerprint(self, path: Path) -> str:
        """Returns `fingerprint(path)`; for an unchanged large file the recorded one."""
        if not path.is_file() or path.stat().st_size < LARGE_INPUT_BYTES:
            return fingerprint(path)
        facts = path.stat()
        stamp = {"bytes": facts.st_size, "changed": [facts.st_mtime_ns, facts.st_ctime_ns]}
        real_path = str(path.resolve())
        recorded: Any = None
        if (self.path / DONE).exists() and (self.path / INPUTS).is_file():
            with contextlib.suppress(UserError):  # then the file is hashed
                recorded = read_json_fields(self.path / INPUTS).get(real_path)
        digest = recorded.get("sha256") if isinstance(recorded, dict) else None
        if not isinstance(digest, str) or recorded != {**stamp, "sha256": digest}:
            digest = fingerprint(path)
        self._large_inputs[real_path] = {**stamp, "sha256": digest}
        return digest

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
        if there == wanted:
            return
        names = sorted(
            name for name in there.keys() | wanted.keys() if there.get(name) != wanted.get(name)
        )
        self.is_renewed = self._renewed_by.issuperset(names)
        if self.is_renewed:
            return
        differences = ", ".join(
            f"{name} (there {there.get(name, 'absent')}, now {wanted.get(name, 'absent')})"
            for name in names
        )
        differences = re.sub(r"\b([0-9a-f]{12})[0-9a-f]{52}\b", r"\1...", differences)  # hashes
        # An earlier version of this program may have recorded other parameters.
        is_other_version = there.keys() != wanted.keys()
        cure = ", or remove the directory if an earlier version made it" if is_other_version else ""
        raise UserError(
            f"{self.path} was made with other parameters: {differences}; {self._another} or "
            f"give the same parameters{cure}"
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
        if self._large_inputs:
            write_atomically(self.path / INPUTS, json.dumps(self._large_inputs, indent=1) + "\n")
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


def _compared(path: Path, lines: Sequence[str]) -> dict[str, str]:
    """Returns the compared values: literals of parameters and checksums of inputs (not their paths)."""
    marked = [line.removeprefix(_COMPARED) * line.startswith(_COMPARED) for line in lines]
    return {
        name: value if content is None else f"content {content}"
        for _, name, value, content in _bindings(path, marked if any(marked) else lines)
    }
