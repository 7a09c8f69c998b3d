"""The state of training, in memory and in a run's `state/`, from which a stopped run resumes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.files import parse_json_fields, remove, replaced

Arrays = dict[str, np.ndarray]

STATE = "state"

# If the newest is damaged, training resumes from the one before.
KEPT_STATES = 2

_PARTS = ("parameters", "m", "v")

# Entry of a state's file with the machine of the training.
_MACHINE = "machine"
_NAME = re.compile(r"step_(\d+)\.npz")


class DeviceWeights(Arrays):
    """Read-only weights with one copy on the device, made on first use and released with them."""

    _copy: Mapping[str, Any] | None = None

    def on_device(self, put: Callable[[Arrays], Mapping[str, Any]]) -> Mapping[str, Any]:
        if self._copy is None:
            self._copy = put(self)
        return self._copy


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """Everything that one training step passes to the next: float32 arrays by variable name.

    Attributes:
      machine: devices, processor and versions of the training, which may change last bits.
    """

    parameters: Arrays
    m: Arrays
    v: Arrays
    step: int
    machine: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes one `.npz` file atomically."""
        arrays = {
            f"{part}:{name}": values
            for part in _PARTS
            for name, values in getattr(self, part).items()
        }
        with replaced(path) as temporary, open(temporary, "wb") as handle:
            machine = np.frombuffer(json.dumps(self.machine, sort_keys=True).encode(), np.uint8)
            arrays = {_MACHINE: machine, **arrays}
            np.savez(handle, allow_pickle=False, step=np.int64(self.step), **arrays)

    @classmethod
    def load(cls, path: Path) -> TrainingState:
        """Reads a file of `save`."""
        parts: dict[str, Arrays] = {part: {} for part in _PARTS}
        try:
            with np.load(path, allow_pickle=False) as content:
                step = int(content["step"])
                machine = content[_MACHINE].tobytes() if _MACHINE in content.files else b"{}"
                for key in content.files:
                    part, separator, name = key.partition(":")
                    if separator:
                        parts[part][name] = content[key]
        # The arrays have checksums; the other errors come from a damaged table of contents.
        except (
            zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, KeyError,
            RuntimeError,
        ) as error:  # fmt: skip
            raise _damaged(path, str(error)) from error
        names = parts["parameters"].keys()
        if not names or any(parts[part].keys() != names for part in _PARTS):
            raise _damaged(path, "some of its arrays are missing")
        # Resuming from a diverged state would diverge again; an earlier state may be good.
        for part in _PARTS:
            for name, values in parts[part].items():
                if not np.isfinite(values).all():
                    raise _damaged(path, f"{part} of {name} are not finite")
        return cls(**parts, step=step, machine=parse_json_fields(machine, str(path)))

    def digest(self) -> bytes:
        """Returns the SHA-256 over every bit of the state."""
        whole = hashlib.sha256(str(self.step).encode())
        # Hash names and shapes too: the same bytes can be split into different arrays.
        for part in _PARTS:
            for name, values in sorted(getattr(self, part).items()):
                whole.update(f"{part}:{name} {values.shape}".encode())
                whole.update(np.ascontiguousarray(values).data)
        return whole.digest()


def load_newest_state(run_dir: Path) -> TrainingState | None:
    """Reads the newest undamaged state of a run and reports newer damaged ones.

    Returns:
      None if no state is saved.
    """
    first_error = None
    for path in reversed(_states(run_dir)):
        try:
            state = load_state(run_dir, _step_of(path))
        except UserError as error:
            first_error = first_error or error
            continue
        if first_error:
            console.progress(f"warning: {first_error}; resuming from step {state.step} instead")
        return state
    if first_error:
        raise first_error
    return None


def saved_step(run_dir: Path) -> int:
    """Returns the step from which training in a run's directory would resume; 0 without a saved state."""
    states = _states(run_dir)
    return _step_of(states[-1]) if states else 0


def load_state(run_dir: Path, step: int) -> TrainingState:
    path = _path(run_dir, step)
    state = TrainingState.load(path)
    if state.step != step:
        raise _damaged(path, f"it holds step {state.step}")
    return state


def save_state(state: TrainingState, run_dir: Path) -> None:
    """Saves a state, then removes all but the last `KEPT_STATES` up to its step."""
    # Save before removing: a kill in between leaves one state too many, never none.
    state.save(_path(run_dir, state.step))
    # Later states exist if they were damaged and training resumed from an earlier one.
    others = _states(run_dir)
    newest = [path for path in others if _step_of(path) <= state.step][-KEPT_STATES:]
    for old in others:
        if old not in newest:
            remove(old)


class StateWriter(contextlib.AbstractContextManager["StateWriter"]):
    """Saves states in a background thread, one at a time. Leaving the context waits for the last write.

    Examples:
      >>> weights = {"kernel": np.zeros(3, np.float32)}
      >>> with StateWriter(Path("seed_0")) as writer:
      ...     writer.save(TrainingState(weights, weights, weights, step=25))
      >>> saved_step(Path("seed_0"))
      25
    """

    def __init__(self, run_dir: Path):
        self._run_dir = run_dir
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._saving: concurrent.futures.Future[None] | None = None

    def save(self, state: TrainingState) -> None:
        """Starts saving a state after the previous one is saved.

        Args:
          state: state whose arrays no longer change.
        """
        self.wait()
        self._saving = self._thread.submit(save_state, state, self._run_dir)

    def check(self) -> None:
        """Raises the error of a finished save, without waiting for a running one."""
        if self._saving and self._saving.done():
            self.wait()

    def wait(self) -> None:
        """Waits until the last state is saved."""
        saving, self._saving = self._saving, None
        if saving:
            saving.result()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._thread.shutdown()
        if kind is None:
            self.wait()


def remove_states(run_dir: Path) -> None:
    """Removes the states of a finished run, which nothing needs any more; errors are ignored."""
    with contextlib.suppress(OSError):
        remove(run_dir / STATE)


def _path(run_dir: Path, step: int) -> Path:
    return run_dir / STATE / f"step_{step}.npz"


def _step_of(state: Path) -> int:
    return int(state.stem.removeprefix("step_"))


def _states(run_dir: Path) -> list[Path]:
    """Returns the saved states, oldest first; reports other files once."""
    files = sorted((run_dir / STATE).glob("*.npz"))
    for file in files:
        if not _NAME.fullmatch(file.name):
            console.note_once(f"{file} is ignored: its name is not that of a state (step_<n>.npz)")
    # Sorted by number: as text, step_1000 comes before step_200.
    return sorted((file for file in files if _NAME.fullmatch(file.name)), key=_step_of)


def _damaged(path: Path, fault: str) -> UserError:
    return UserError(f"{path} is damaged ({fault}); remove it to resume from an earlier state")
