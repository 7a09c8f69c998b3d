"""The batch of any step of a pre-training run.

    multiberts show results/base-seed_0 --step=1200

Steps count as in `metrics.jsonl`: the first update is step 1.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from multiberts.pretrain.batches.corpus_batches import Batches
from multiberts.pretrain.batches.masking import Masking
from multiberts.pretrain.training.settings import CONTINUE, IDENTITY, learning_rates
from multiberts.runs.console import joined
from multiberts.runs.directory import CONFIG, read_config
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike
from multiberts.runs.parameters import NonNegativeInt, PositiveInt


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """The frozen configuration of a pre-training run.

    Attributes:
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
        """Returns the path of an input, if its content is unchanged since the run.

        Args:
          name: of the input, such as `corpus`.
          moved_to: current path of the input; None: the run's path.
        """
        given, content = self.inputs[name]
        path = Path(given if moved_to is None else moved_to)
        if not path.exists():
            raise UserError(
                f"{path}, the {name} of {self.path}, does not exist here; give --{name} with its path"
            )
        if IDENTITY.inputs[name](str(path)).identity != content:
            raise UserError(
                f"{path} is not the {name} that {self.path} was trained with (its checksum differs); "
                f"give --{name} with the right one"
            )
        return path


def read_run_record(run_dir: PathLike) -> RunRecord:
    """Reads the `config.gin` of a pre-training run, finished or not."""
    path = Path(run_dir) / CONFIG
    if not path.is_file():
        raise UserError(f"{run_dir} has no {CONFIG}; give the directory of a pre-training run")
    parameters: dict[str, Any] = {}
    inputs: dict[str, tuple[str, str]] = {}
    for binding, value, content in read_config(path):
        name = binding.removeprefix("pretrain.")
        if name == binding:
            raise UserError(
                f"{path}: found {name!r}, expected parameters of pretrain; give the directory of a "
                "pre-training run"
            )
        if content is not None:
            inputs[name] = (value, content)
        else:
            parameters[name] = value
    return RunRecord(Path(run_dir), parameters, inputs)


def show_batch(
    *,
    run_dir: PathLike,
    step: PositiveInt,
    rows: NonNegativeInt | None = 4,
    corpus: PathLike | None = None,
    initial_checkpoint: PathLike | None = None,
) -> str:
    """Describes the batch of a step, made again from the run's seeds.

    Args:
      run_dir: the run's directory; the run need not have finished, or reached that step.
      step: number of the update, from 1.
      rows: number of sequences that are spelled out; None or 0: all.
      corpus: the run's corpus, if it was moved.
      initial_checkpoint: the checkpoint that the run started from, if it was moved.

    Returns:
      Text: learning rate, seeds and numbers of the corpus's instances, then for
      each sequence its label and its pieces. A piece to predict stands as `{seen=answer}`.
    """
    record = read_run_record(run_dir)
    parameters = record.parameters
    if not 1 <= step <= parameters["num_steps"]:
        raise UserError(
            f"--step is {step}, but the steps of {run_dir} are 1 to {parameters['num_steps']}; give "
            "one of them"
        )
    batches = Batches(
        record.input_path("corpus", corpus),
        Masking.of(parameters),
        data_seed=parameters["data_seed"],
        batch_size=parameters["batch_size"],
        mask_seed=parameters.get("mask_seed"),
    )
    index = step - 1
    batch, ids = batches.batch(index), batches.instance_ids(index)
    steps_before = 0
    if parameters["learning_rate_treatment"] == CONTINUE:
        from multiberts.bert.checkpoint.checkpoint import read_provenance

        start = record.input_path("initial_checkpoint", initial_checkpoint)
        steps_before = read_provenance(start)["step"]
    learning_rate = learning_rates(
        treatment=parameters["learning_rate_treatment"],
        steps_before=steps_before,
        **{name: parameters[name] for name in ("learning_rate", "warmup_steps", "num_steps")},
    )(index)
    names = ("masked_lm_weights", "next_sentence_labels")
    masked, random_next = (int(batch[name].sum()) for name in names)
    lines = [
        f"{record.name}, step {step} of {parameters['num_steps']}",
        f"learning rate {learning_rate:.8g}",
        f"{len(ids)} sequences of {batches.corpus}, epoch {index * len(ids) // batches.num_instances}: "
        f"{masked} masked pieces, {random_next} random next",
        "instances " + " ".join(str(number) for number in ids),
    ]
    pieces = batches.vocabulary.pieces
    for row in range(min(rows or len(ids), len(ids))):
        kind = "random" if batch["next_sentence_labels"][row] else "true"
        lines += ["", f"instance {ids[row]}: {kind} next"]
        length = int(batch["input_mask"][row].sum())
        words = [pieces[number] for number in batch["input_ids"][row, :length]]
        count = int(batch["masked_lm_weights"][row].sum())
        positions, answers = batch["masked_lm_positions"][row], batch["masked_lm_ids"][row]
        for position, answer in zip(positions[:count], answers[:count], strict=True):
            words[position] = f"{{{words[position]}={pieces[answer]}}}"
        lines.append(" ".join(words))
    return joined(lines)
