"""The state of training, in memory and in a run's `state/`, from which a stopped run resumes."""

from __future__ import annotations

import dataclasses
import hashlib
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from multiberts.runs.errors import UserError
from multiberts.runs.files import replaced

Arrays = dict[str, np.ndarray]

STATE = "state"

_PARTS = ("parameters", "m", "v")


@dataclasses.dataclass(frozen=True)
class TrainingState:
    """All that training carries from one step to the next, as float32 arrays by variable name."""

    parameters: Arrays
    m: Arrays
    v: Arrays
    step: int

    def save(self, path: Path) -> None:
        """Writes one `.npz` file, whole or not at all.

        Raises:
          UserError: the disk is full or the directory cannot be written.
        """
        arrays = {
            f"{part}:{name}": values
            for part in _PARTS
            for name, values in getattr(self, part).items()
        }
        with replaced(path) as temporary, open(temporary, "wb") as handle:
            np.savez(handle, allow_pickle=False, step=np.int64(self.step), **arrays)

    @classmethod
    def load(cls, path: Path) -> TrainingState:
        """Reads what `save` wrote.

        Raises:
          UserError: the file is not there, or is damaged (its checksums fail).
        """
        parts: dict[str, Arrays] = {part: {} for part in _PARTS}
        try:
            with np.load(path, allow_pickle=False) as content:
                step = int(content["step"])
                for key in content.files:
                    part, separator, name = key.partition(":")
                    if separator:
                        parts[part][name] = content[key]
        except FileNotFoundError as error:
            raise UserError(
                f"{path} does not exist; processes that train together need the same run_dir, on a "
                "file system that they share"
            ) from error
        # The arrays have checksums; the other errors come from a damaged table of contents.
        except (
            zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError, KeyError,
            RuntimeError,
        ) as error:  # fmt: skip
            raise _damaged(path, str(error)) from error
        names = parts["parameters"].keys()
        if not names or any(parts[part].keys() != names for part in _PARTS):
            raise _damaged(path, "some of its arrays are missing")
        return cls(**parts, step=step)

    def digest(self) -> bytes:
        """Returns the SHA-256 over every bit of the state."""
        whole = hashlib.sha256(str(self.step).encode())
        for part in _PARTS:
            for name, values in sorted(getattr(self, part).items()):
                whole.update(f"{part}:{name} {values.shape}".encode())
                whole.update(np.ascontiguousarray(values).data)
        return whole.digest()


def saved_step(run_dir: Path) -> int:
    """Returns the step from which training in a run's directory would resume; 0 where nothing is saved."""
    states = _states(run_dir)
    return _step_of(states[-1]) if states else 0


def load_state(run_dir: Path, step: int) -> TrainingState:
    """Reads the state that a run saved at a step.

    Raises:
      UserError: it is not there, it is damaged, or it is of another step.
    """
    path = _path(run_dir, step)
    state = TrainingState.load(path)
    if state.step != step:
        raise _damaged(path, f"it holds step {state.step}")
    return state


def save_state(state: TrainingState, run_dir: Path, keep_last: int) -> None:
    """Saves a state, and only then drops those before the last few.

    Raises:
      UserError: the disk is full or the directory cannot be written; earlier states are left.
    """
    state.save(_path(run_dir, state.step))
    for old in _states(run_dir)[:-keep_last]:
        old.unlink()


def _path(run_dir: Path, step: int) -> Path:
    return run_dir / STATE / f"step_{step}.npz"


def _step_of(state: Path) -> int:
    return int(state.stem.removeprefix("step_"))


def _states(run_dir: Path) -> list[Path]:
    """Returns the saved states, the oldest first."""
    return sorted((run_dir / STATE).glob("step_*.npz"), key=_step_of)


def _damaged(path: Path, found: str) -> UserError:
    return UserError(f"{path} is damaged ({found}); remove it to resume from an earlier state")
