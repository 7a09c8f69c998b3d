"""Parameters of a pre-training run, read back from its directory."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from multiberts.runs.directory import CONFIG, fingerprint, read_config
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

_STAGE = "pretrain."


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """The frozen configuration of a pre-training run.

    Attributes:
      path: the run's directory.
      parameters: arguments of `pretrain` that change its numbers, by name.
      inputs: for each input, the path that was given and the SHA-256 of what it held.
    """

    path: Path
    parameters: dict[str, Any]
    inputs: dict[str, tuple[str, str]]

    @property
    def name(self) -> str:
        """Procedure and seeds of the run, for people."""
        seed, order = self.parameters["pretrain_seed"], self.parameters["data_seed"]
        apart = "" if order == seed else f", data seed {order}"
        return f"{self.parameters['procedure']} seed {seed}{apart}"

    def input_path(self, name: str, moved_to: PathLike | None = None) -> Path:
        """Returns where an input lies, if it still holds what the run read.

        Args:
          name: of the input, such as `corpus`.
          moved_to: where it lies now; None: where the run found it.

        Raises:
          UserError: it is not there, or it holds something else.
        """
        given, content = self.inputs[name]
        path = Path(given if moved_to is None else moved_to)
        if not path.exists():
            raise UserError(
                f"{path}, the {name} of {self.path}, does not exist here; give --{name} with its path"
            )
        if fingerprint(path) != content:
            raise UserError(
                f"{path} is not the {name} that {self.path} was trained with (its checksum differs); "
                f"give --{name} with the right one"
            )
        return path


def read_run_record(run_dir: PathLike) -> RunRecord:
    """Reads the `config.gin` of a pre-training run, finished or not.

    Raises:
      UserError: there is none, it is of another stage, or it was edited.
    """
    path = Path(run_dir) / CONFIG
    if not path.is_file():
        raise UserError(f"{run_dir} has no {CONFIG}; give the directory of a pre-training run")
    parameters: dict[str, Any] = {}
    inputs: dict[str, tuple[str, str]] = {}
    for name, value, content in read_config(path):
        if not name.startswith(_STAGE):
            raise UserError(
                f"{path}: found {name!r}, expected parameters of pretrain; give the directory of a "
                "pre-training run"
            )
        if content is not None:
            inputs[name.removeprefix(_STAGE)] = (value, content)
        else:
            parameters[name.removeprefix(_STAGE)] = value
    return RunRecord(Path(run_dir), parameters, inputs)
