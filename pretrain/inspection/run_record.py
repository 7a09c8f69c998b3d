"""What a pre-training run was started with, read back from its directory."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

from multiberts.runs.directory import CONFIG, fingerprint
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike, read_lines

_STAGE = "pretrain."
_INPUT_MARK = "  # holds "


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
        """The run in a few words: its procedure and its seeds."""
        seed, order = self.parameters["pretrain_seed"], self.parameters["data_seed"]
        apart = "" if order == seed else f", data seed {order}"
        return f"{self.parameters['procedure']} seed {seed}{apart}"

    def input_path(self, name: str, moved_to: PathLike | None = None) -> Path:
        """Where an input lies, if it still holds what the run read.

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
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith("#") or not line:
            continue
        name, _, value = line.partition(" = ")
        if not name.startswith(_STAGE):
            raise UserError(
                f"{path} line {number}: found {line!r}, expected a parameter of pretrain; give the "
                "directory of a pre-training run"
            )
        literal, is_input, content = value.rpartition(_INPUT_MARK)
        try:
            read = ast.literal_eval(literal if is_input else value)
        except (ValueError, SyntaxError) as error:
            raise UserError(
                f"{path} line {number}: {value!r} is no Python literal; the file was edited: restore "
                "it"
            ) from error
        if is_input:
            inputs[name.removeprefix(_STAGE)] = (read, content)
        else:
            parameters[name.removeprefix(_STAGE)] = read
    return RunRecord(Path(run_dir), parameters, inputs)
