"""What any step of a pre-training run saw.

    multiberts show-batch --run_dir=results/base-seed_0 --step=1200

Steps count as in `metrics.jsonl`: the first update is step 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from multiberts.pretrain.inspection.run_record import RunRecord, read_run_record
from multiberts.pretrain.training.learning_rate_schedule import CONTINUE, RESTART, learning_rates
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike


def show_batch(
    *,
    run_dir: PathLike,
    step: int,
    rows: int | None = 4,
    corpus: PathLike | None = None,
    initial_checkpoint: PathLike | None = None,
) -> str:
    """Describes the batch of a step, made again from the run's seeds.

    Args:
      run_dir: the run's directory; the run need not have finished, or reached that step.
      step: of the update, from 1.
      rows: how many sequences are spelled out; None or 0: all.
      corpus: where the run's corpus lies, if it was moved.
      initial_checkpoint: where the checkpoint lies that it resumed from, likewise.

    Returns:
      Text: learning rate, seeds and numbers of the corpus's instances, then for
      each sequence its label and its pieces. A piece to predict stands as `{seen=answer}`.

    Raises:
      UserError: there is no such run or step, or the corpus is not there or another.
    """
    from multiberts.pretrain.batches.corpus_batches import open_batches
    from multiberts.pretrain.batches.masking import Masking

    record = read_run_record(run_dir)
    parameters = record.parameters
    if not 1 <= step <= parameters["num_steps"]:
        raise UserError(
            f"--step is {step}, but the steps of {run_dir} are 1 to {parameters['num_steps']}; give "
            "one of them"
        )
    batches = open_batches(
        record.input_path("corpus", corpus),
        Masking.of(parameters),
        data_seed=parameters["data_seed"],
        batch_size=parameters["batch_size"],
    )
    index = step - 1
    batch, ids = batches.batch(index), batches.instance_ids(index)
    masked = int(batch["masked_lm_weights"].sum())
    random_next = int(batch["next_sentence_labels"].sum())
    lines = [
        f"{record.name}, step {step} of {parameters['num_steps']}",
        f"learning rate {_learning_rate(record, index, initial_checkpoint):.8g}",
        f"{len(ids)} sequences of {batches.corpus}, epoch {index * len(ids) // batches.num_instances}: "
        f"{masked} masked pieces, {random_next} random next",
        "instances " + " ".join(str(number) for number in ids),
    ]
    pieces = batches.tokenizer.vocabulary
    for row in range(min(rows or len(ids), len(ids))):
        is_random = bool(batch["next_sentence_labels"][row])
        lines.append("")
        lines.append(f"instance {ids[row]}: {'random' if is_random else 'true'} next")
        lines.append(_spelled(batch, row, pieces))
    return "\n".join(lines)


def _learning_rate(record: RunRecord, index: int, moved_to: PathLike | None) -> float:
    """Returns the learning rate of the update that follows `index` finished ones."""
    parameters = record.parameters
    treatment = parameters.get("learning_rate_treatment", RESTART)
    steps_before = 0
    if treatment == CONTINUE:
        from multiberts.bert.checkpoint.checkpoint import read_provenance

        steps_before = read_provenance(record.input_path("initial_checkpoint", moved_to))["step"]
    return learning_rates(
        treatment=treatment,
        learning_rate=parameters["learning_rate"],
        warmup_steps=parameters["warmup_steps"],
        num_steps=parameters["num_steps"],
        steps_before=steps_before,
    )(index)


def _spelled(batch: Mapping[str, np.ndarray], row: int, pieces: Sequence[str]) -> str:
    """Returns one sequence in pieces, without padding."""
    length = int(batch["input_mask"][row].sum())
    words = [pieces[number] for number in batch["input_ids"][row, :length]]
    count = int(batch["masked_lm_weights"][row].sum())
    positions, answers = batch["masked_lm_positions"][row], batch["masked_lm_ids"][row]
    for position, answer in zip(positions[:count], answers[:count], strict=True):
        words[position] = f"{{{words[position]}={pieces[answer]}}}"
    return " ".join(words)
