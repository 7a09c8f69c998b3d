"""Identity of a run: the settings that count, and its inputs, each opened once.

An input's `identity` is what decides numbers and nothing else; `where` is its path, for reading and for
messages, and is never compared. Text, tables, corpora and other finished runs are opened by `opened`, code by
`opened_code`; `bert.checkpoint.checkpoint.Checkpoint` and `bert.vocabulary.Vocabulary` are inputs, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.util
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any, Protocol, TypedDict

from multiberts.runs.errors import UserError
from multiberts.runs.files import (
    PathLike,
    is_name_inside,
    read_json_fields,
    sha256_of_file,
    write_atomically,
)
from multiberts.runs.parameters import with_leaves

Values = dict[str, Any]
_Counted = tuple[Values, Values]
_Memory = dict[Any, Any]

CONFIG = "config.gin"
DONE = "DONE"
# Digests of a finished run's large inputs, which are then not read again.
INPUTS = ".inputs.json"

# Metadata that marks a field added later: at its default it is left out of the identity, so that existing
# runs keep theirs, and a training of several days can go on after an update.
LATER: Mapping[str, bool] = {"later": True}

# A file that changed this recently may change again within the clock's resolution.
SECONDS_UNTIL_SETTLED = 2.0

# Size, time of writing, inode and time of change of a file; while all stay, it is not read again.
_Stamp = tuple[int, int, int, int]
# Digests of files by absolute path, each after its stamp.
_REMEMBERED: dict[str, list[Any]] = {}
# Planned identities of the current run's inputs, by path; see `promised`.
_PROMISED: dict[str, str] = {}


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
    return read_outputs(
        Path(directory) / DONE, "remove it and run the same command to make it again"
    )


def read_outputs(marker: Path, cure: str) -> dict[str, RecordedFile]:
    """Returns the outputs that a marker lists, as `read_done`."""
    outputs = read_json_fields(marker, {"outputs": dict[str, RecordedFile]}, cure)["outputs"]
    for name in outputs:
        if not is_name_inside(name):
            raise UserError(f"{marker} lists {name!r}, which is outside the run; {cure}")
    return {name: {"bytes": of["bytes"], "sha256": of["sha256"]} for name, of in outputs.items()}


class Opened(Protocol):
    """An opened input, or the output of a run that is planned."""

    @property
    def identity(self) -> str: ...

    @property
    def where(self) -> PathLike: ...


@dataclass(frozen=True)
class Input:
    """A file, a finished run or code, opened; equal to others that give the same numbers.

    Attributes:
      where: its path, or the name of a module.
      identity: SHA-256, in hexadecimal, of a file's content, of a run's DONE marker (which has the checksums
        of all outputs), or of a module's code.
      stamp: state of the file when it was opened; None: code.
    """

    where: Path = field(compare=False)
    identity: str
    stamp: _Stamp | None = field(compare=False, default=None)


def opened(path: PathLike) -> Input:
    r"""Opens an input: a file or a finished run.

    Raises:
      UserError: there is nothing at `path`, or it is a run that has not finished, or another folder.

    Examples:
      >>> from multiberts.runs.files import write_atomically
      >>> write_atomically("text.txt", "one sentence\n")
      >>> opened("text.txt").identity[:12]
      '5f0a42ea0749'
    """
    path = Path(path)
    file = _marker(path)
    if not file.is_file():
        if not path.exists():
            raise UserError(f"{path} does not exist; check the path")
        if (path / CONFIG).is_file():
            raise UserError(f"{path} is a run that has not finished; run it to its end first")
        raise UserError(f"{path} is neither a file nor a finished run; check the path")
    if file != path:
        read_done(path)  # a truncated or empty marker is not that of a finished run
    return Input(path, *digest_of_file(file))


def check_unchanged(*inputs: Opened) -> None:
    """Refuses files that changed since they were opened: what was read may mix two versions."""
    for each in inputs:
        if not isinstance(each, Input) or each.stamp is None:
            continue
        file = _marker(each.where)
        with contextlib.suppress(OSError):  # it was removed
            # A file may only have been touched, or be another machine's copy.
            if _stamp(file)[:2] == each.stamp[:2] or digest_of_file(file)[0] == each.identity:
                continue
        raise _changed(each.where)


def _changed(path: Path) -> UserError:
    return UserError(
        f"{path} changed while it was read; put it back and run the same command again, or choose another "
        "run_dir for what it is now"
    )


def _marker(path: Path) -> Path:
    return path / DONE if path.is_dir() else path


def digest_of_file(file: Path) -> tuple[str, _Stamp]:
    """Returns the SHA-256 of a file and its stamp; a file that is remembered is not read."""
    stamp, name = _stamp(file), os.path.abspath(file)
    remembered = _REMEMBERED.get(name, [])
    if remembered[:-1] == [*stamp]:
        return str(remembered[-1]), stamp
    digest = sha256_of_file(file)
    if _stamp(file) != stamp:
        raise _changed(file)
    if time.time_ns() - stamp[1] > SECONDS_UNTIL_SETTLED * 1e9:
        _REMEMBERED[name] = [*stamp, digest]
    return digest, stamp


def _stamp(file: Path) -> _Stamp:
    facts = file.stat()
    return facts.st_size, facts.st_mtime_ns, facts.st_ino, facts.st_ctime_ns


def recall(memory: Path) -> None:
    """Reads the digests that `keep` wrote; a damaged file counts as empty, and files are read again."""
    if memory.is_file():
        with contextlib.suppress(UserError):
            known = read_json_fields(memory, cure="remove it")
            _REMEMBERED.update(
                {name: each for name, each in known.items() if isinstance(each, list)}
            )


def keep(memory: Path, files: Iterable[PathLike] | None = None, least_bytes: int = 0) -> None:
    """Writes the remembered digests, of all files or of some, if the folder exists; see `recall`."""
    names = _REMEMBERED.keys() if files is None else set(map(os.path.abspath, files))
    entries = {name: _REMEMBERED[name] for name in names & _REMEMBERED.keys()}
    kept = {name: entry for name, entry in entries.items() if entry[0] >= least_bytes}
    text = json.dumps(kept) + "\n"
    with contextlib.suppress(UserError, OSError):  # a lost memory only costs time
        there = memory.read_text(errors="replace") if memory.is_file() else ""
        if kept and memory.parent.is_dir() and there != text:
            write_atomically(memory, text)


@functools.cache  # a process keeps the modules that it has imported, whatever is written later
def opened_code(module: str) -> Input:
    """Opens a user's module: its source, and those of the modules that it imports from the same folder."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise UserError(f"there is no module {module}; put its folder in PYTHONPATH")
    depth = module.count(".") + (spec.submodule_search_locations is not None)
    folder = Path(spec.origin).parents[depth]
    top = folder / module.partition(".")[0]
    # Installed code: its own package counts.
    if folder.name in ("site-packages", "dist-packages"):
        paths = {str(path.relative_to(folder)): path for path in top.rglob("*.py")}
    else:
        finder = ModuleFinder([str(folder)], excludes=[__package__.partition(".")[0]])
        finder.import_hook(module)
        modules: Mapping[str, Any] = finder.modules
        paths = {name: Path(each.__file__) for name, each in modules.items() if each.__file__}
    digests = (f"{name} {sha256_of_file(paths[name])}" for name in sorted(paths))
    return Input(Path(module), hashlib.sha256("\n".join(digests).encode()).hexdigest())


@contextlib.contextmanager
def promised(identities: Mapping[str, str]) -> Iterator[None]:
    """Makes `check_promise` compare inputs with those of the plan, by path, while the block runs."""
    _PROMISED.update(identities)
    try:
        yield
    finally:
        _PROMISED.clear()


def promises(inputs: Iterable[Opened]) -> dict[str, str]:
    return {str(each.where): each.identity for each in inputs}


def check_promise(each: Opened) -> None:
    """Refuses an input that changed after the plan named the run's directory by it."""
    if each.identity != _PROMISED.get(str(each.where), each.identity):
        is_code = isinstance(each, Input) and each.stamp is None
        raise UserError(
            f"{each.where} changed after this run was planned; "
            f"{'restart workers that imported the old code, and ' * is_code}give the same command again"
        )


@dataclass(frozen=True)
class Identity:
    """Arguments of a stage that identify a run; an argument that is not named counts by its value.

    Each stage has one as `IDENTITY`, in the module of its function.

    Attributes:
      inputs: for each argument that names files or directories, what opens each of them.
      places: arguments that say where something lies or is kept; they do not count.
      speed: arguments that change time, memory, safety or logs but no number; they do not count.
      settings: class of the arguments, whose `LATER` fields do not count at their defaults.
      settle: called with the parameters and inputs that count, which it changes in place: it removes
        what has no effect in this call, and gives equal calls equal values. It reads no file.
      find_files: called with all arguments, the parameters, the inputs and the memory of `on_disk`; returns
        parameters and inputs as files decide them, such as the files that fit a pattern. Outputs of planned
        runs are passed through.
    """

    inputs: Mapping[str, Callable[[str], Opened]] = field(default_factory=dict)
    places: tuple[str, ...] = ()
    speed: tuple[str, ...] = ()
    settings: type | None = None
    settle: Callable[[Values, Values], None] = lambda *_: None
    find_files: Callable[[Mapping[str, Any], Values, Values, _Memory], _Counted] = lambda *a: a[1:3]

    def of(self, arguments: Mapping[str, Any]) -> _Counted:
        """Returns the parameters and the inputs that identify a call.

        Args:
          arguments: all keyword arguments of the stage; `run_dir` does not count.

        Returns:
          Parameters by name and inputs by name, as given; those that are None or empty are left out.
        """
        uncounted = {"run_dir", *self.places, *self.speed}
        parameters = {name: arguments[name] for name in arguments if name not in uncounted}
        inputs = {name: parameters.pop(name) for name in self.inputs if name in parameters}
        self.settle(parameters, inputs)
        if self.settings is not None:
            parameters = without_later_defaults(parameters, self.settings)
        return parameters, {n: each for n, each in inputs.items() if each not in (None, [], ())}

    def on_disk(self, arguments: Mapping[str, Any], memory: _Memory | None = None) -> _Counted:
        """Returns the result of `of` with inputs opened, as `runs.directory.RunDirectory` takes them.

        Args:
          memory: what a plan has opened, by argument and path; what this call opens is added.
        """
        memory = {} if memory is None else memory
        parameters, inputs = self.find_files(arguments, *self.of(arguments), memory)
        return parameters, self.open(inputs, arguments.get("run_dir"), memory)

    def open(self, inputs: Values, run_dir: str | None, memory: _Memory | None = None) -> Values:
        """Returns inputs opened, each path by the opener of its name; see `on_disk`."""
        known = {} if memory is None else memory
        if run_dir is not None:
            recall(Path(run_dir) / INPUTS)

        def open_leaf(name: str, leaf: Any) -> Any:
            if not isinstance(leaf, (str, Path)):
                return leaf
            if (name, leaf) not in known:
                known[name, leaf] = self.inputs.get(name, opened)(str(leaf))
            return known[name, leaf]

        return {
            name: with_leaves(functools.partial(open_leaf, name), value)
            for name, value in inputs.items()
        }


def without_later_defaults(values: Mapping[str, Any], settings: type) -> Values:
    """Returns values by name, without those of `LATER` fields that have their default."""
    later = [each for each in dataclasses.fields(settings) if each.metadata.get("later")]
    defaults = {each.name: each.default for each in later}.items()
    return {name: value for name, value in values.items() if (name, value) not in defaults}
