"""Checkpoints of a pre-training run: the one it starts from, and those that it keeps."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multiberts.bert.checkpoint.checkpoint import Checkpoint, write_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.training.state import STATE
from multiberts.bert.vocabulary import Vocabulary
from multiberts.pretrain.training.settings import CONTINUE
from multiberts.runs.directory import read_unfetched
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike


def check_initial_checkpoint(start: Checkpoint, config: BertConfig, vocabulary: Vocabulary) -> None:
    """Refuses, without TensorFlow, a checkpoint of another model or with another vocabulary."""
    differences = [
        f"{field.name} {getattr(start.config, field.name)}, expected {getattr(config, field.name)}"
        for field in dataclasses.fields(config)
        if getattr(start.config, field.name) != getattr(config, field.name)
    ]
    if differences:
        raise UserError(
            f"{start.name} is of another model than pretrain.model with the corpus's vocabulary: "
            f"{'; '.join(differences)}; give pretrain.model the checkpoint's values and prepare the "
            "corpus with its vocab.txt"
        )
    if differ := start.vocabulary.difference(vocabulary):
        raise UserError(f"{differ}; prepare the corpus with the checkpoint's vocabulary")


def steps_before(start: Checkpoint | None, treatment: str) -> int:
    """Returns the updates of the initial checkpoint, where the learning rate depends on them."""
    if start is None or treatment != CONTINUE:
        return 0
    step = start.provenance["step"]
    if step is None:
        raise UserError(
            f"{start.name} does not record its step, which pretrain.learning_rate_treatment 'continue' "
            "needs; choose 'restart' or 'constant'"
        )
    return int(step)


def checkpoint_path(run_dir: PathLike, step: int) -> Path:
    """Returns the path of a pre-training run's checkpoint of a step.

    Examples:
      >>> checkpoint_path("results/seed_0", 2000).as_posix()
      'results/seed_0/checkpoints/step_2000'
    """
    return Path(run_dir) / "checkpoints" / f"step_{step}"


# Differences between the phases of a training (Devlin et al. 2019, appendix A.2).
_OF_A_PHASE = {
    *("num_steps", "checkpoint_steps", "corpus"),
    *("sequence_length", "max_predictions_per_sequence"),
}


def advice_for_another_run(run_dir: PathLike, differences: Collection[str]) -> str:
    """Returns the advice for other parameters: a further phase starts from the newest checkpoint here."""
    names = [path.name[5:] for path in checkpoint_path(run_dir, 0).parent.glob("step_*")]
    newest = max(map(int, filter(str.isdecimal, names)), default=0)
    if not newest or {name.partition(".")[2] for name in differences} - _OF_A_PHASE:
        return "choose another run_dir"
    return (
        f"choose another run_dir, with --initial_checkpoint={checkpoint_path(run_dir, newest)} to go on "
        "from the newest checkpoint here (a further phase of the training),"
    )


@dataclasses.dataclass(frozen=True)
class KeptCheckpoints:
    """The checkpoints of one run, each written once and never changed.

    Attributes:
      steps: numbers of finished updates at which a checkpoint is kept.
      provenance: facts in every checkpoint's record, besides its step and measurements.
    """

    run_dir: Path
    steps: Sequence[int]
    config: BertConfig
    vocabulary: Vocabulary
    provenance: Mapping[str, Any]

    def write(
        self, step: int, weights: Mapping[str, np.ndarray], measured: Mapping[str, float]
    ) -> None:
        """Writes the checkpoint of a step, if it is one to keep and is not there yet.

        Args:
          step: finished updates.
          weights: float32 arrays by name.
          measured: metrics on held-out text; may be empty.
        """
        directory = checkpoint_path(self.run_dir, step)
        if step not in self.steps:
            return
        if directory.exists():
            # One that somebody removed files from is made again.
            with contextlib.suppress(UserError):
                Checkpoint.open(directory)
                return
        provenance = {**self.provenance, "step": step}
        if measured:
            provenance["evaluation"] = dict(measured)
        write_checkpoint(directory, weights, self.config, self.vocabulary, provenance)

    def check_before(self, step: int) -> None:
        """Refuses to resume from a step if an earlier checkpoint was lost.

        It could not be made again: training is past it.
        """
        for saved in self.steps:
            if not step or saved > step or self._unfetched(saved):  # which is in the bucket
                continue
            directory, state = checkpoint_path(self.run_dir, saved), self.run_dir / STATE
            if not directory.exists():
                raise UserError(
                    f"{directory} is missing, but {state} is past that step; put it back, or remove "
                    f"{state} to train from the start"
                )
            Checkpoint.open(directory)

    def outputs(self) -> list[str]:
        """Returns all files, relative to the run's directory."""
        names: list[str] = []
        for step in self.steps:
            directory = checkpoint_path(self.run_dir, step)
            if directory.exists():
                names += [str(file.relative_to(self.run_dir)) for file in directory.iterdir()]
            else:
                names += self._unfetched(step)
        return sorted(names)

    def _unfetched(self, step: int) -> list[str]:
        folder = f"{checkpoint_path('.', step)}/"
        return [name for name in read_unfetched(self.run_dir) if name.startswith(folder)]
