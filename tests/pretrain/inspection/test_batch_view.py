"""Any past batch can be looked at."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.training.engine import Trainer
from multiberts.pretrain.inspection.batch_view import RunRecord, show_batch
from multiberts.pretrain.training.pretraining import pretrain
from multiberts.runs.errors import UserError
from multiberts.tests import good_files
from multiberts.tests.tools import warm

Arguments = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def seen(
    arguments: Arguments, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict[str, Any]], list[float]]:
    """A run, and the batches and learning rates that its engine was given."""
    run = tmp_path_factory.mktemp("shown") / "run"
    batches: list[dict[str, Any]] = []
    rates: list[float] = []
    real = Trainer.steps

    def noting(self: Trainer, given: Any, learning_rates: Any, *others: Any) -> Any:
        batches.extend(dict(batch) for batch in given)
        rates.extend(learning_rates)
        return real(self, given, learning_rates, *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "steps", noting)
        pretrain(**arguments(run, num_steps=6, warmup_steps=2, data_seed=11))
    return run, batches, rates


@pytest.mark.slow
def test_it_shows_what_the_engine_was_given(seen: Any, corpus: Path) -> None:
    run, batches, rates = seen
    pieces = (corpus / "vocab.txt").read_text().split("\n")
    for step in (1, 4, 6):
        text = show_batch(run_dir=run, step=step, rows=None)
        batch = batches[step - 1]
        assert f"base seed 3, data seed 11, step {step} of 6" in text
        assert f"learning rate {rates[step - 1]:.8g}" in text
        instances = re.findall(r"^instance (\d+): (true|random) next\n(.*)$", text, re.MULTILINE)
        assert len(instances) == 8
        listed = re.search(r"^instances ([\d ]+)$", text, re.MULTILINE)
        assert listed and listed[1].split() == [number for number, _, _ in instances]
        for row, (_, label, words) in enumerate(instances):
            assert (label == "random") == bool(batch["next_sentence_labels"][row])
            length = int(batch["input_mask"][row].sum())
            read = [re.fullmatch(r"\{(.+)=(.+)\}", word) for word in words.split(" ")]
            shown = [m[1] if m else w for m, w in zip(read, words.split(" "), strict=True)]
            assert shown == [pieces[number] for number in batch["input_ids"][row, :length]]
            masked = {place: m[2] for place, m in enumerate(read) if m}
            count = int(batch["masked_lm_weights"][row].sum())
            assert masked == {
                int(place): pieces[answer]
                for place, answer in zip(
                    batch["masked_lm_positions"][row][:count],
                    batch["masked_lm_ids"][row][:count],
                    strict=True,
                )
            }


@pytest.mark.slow
def test_corpus_that_was_moved_or_changed(seen: Any, corpus: Path, tmp_path: Path) -> None:
    run, _, _ = seen
    moved = tmp_path / "moved"
    shutil.copytree(corpus, moved)
    here, there = (show_batch(run_dir=run, step=2, corpus=place) for place in (None, moved))
    assert here.replace(str(corpus), "") == there.replace(str(moved), "")
    with pytest.raises(UserError, match=r"is not the corpus that .* was trained with"):
        show_batch(run_dir=run, step=2, corpus=corpus.parent / "held_out")
    with pytest.raises(UserError, match=r"absent, the corpus of .*, does not exist here"):
        show_batch(run_dir=run, step=2, corpus=tmp_path / "absent")


@pytest.mark.slow
def test_command(seen: Any) -> None:
    run, _, _ = seen
    shown = warm.run(["show", str(run), "--step=3", "--rows=1"])
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.strip() == show_batch(run_dir=run, step=3, rows=1)
    late = warm.run(["show", str(run), "--step=7"])
    assert late.returncode == 2
    assert late.stderr.strip() == (
        f"error: --step is 7, but the steps of {run} are 1 to 6; give one of them"
    )


def test_the_checkpoint_of_a_run_is_known_by_what_decides_numbers(tmp_path):
    start = tmp_path / "start"
    good_files.checkpoint(start)
    (start / "checkpoint.json").unlink()  # as others publish it
    inputs = {"initial_checkpoint": (str(start), Checkpoint.open(start).identity)}
    record = RunRecord(tmp_path / "run", {}, inputs)
    (start / "README.md").write_text("a card")
    assert record.input_path("initial_checkpoint") == start
    config = start / "bert_config.json"
    config.write_text(
        config.read_text().replace('"hidden_dropout_prob": 0.1', '"hidden_dropout_prob": 0')
    )
    with pytest.raises(UserError, match="is not the initial_checkpoint that"):
        record.input_path("initial_checkpoint")
