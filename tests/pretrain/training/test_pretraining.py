"""Pre-training: refusals, resuming from a checkpoint, and learning."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint
from multiberts.bert.checkpoint.conversion import convert_checkpoint
from multiberts.bert.model.configuration import REQUIRED
from multiberts.bert.model.initialization import initial_parameters
from multiberts.pretrain.training.pretraining import checkpoint_path, pretrain
from multiberts.runs.errors import UserError
from multiberts.tests.bert.model.test_configuration import HARMLESS
from multiberts.tests.bert.training.shared_programs import live_bytes
from multiberts.tests.pretrain.conftest import MODEL
from multiberts.tests.pretrain.training.breaking_off import pretrain_until
from multiberts.tests.tools.fake_hub import FakeHub, hub_command

Arguments = Callable[..., dict[str, Any]]
SHORT = {"num_steps": 2}
SCHEDULE = {
    "num_steps": 120, "warmup_steps": 20, "checkpoint_steps": [0, 30, 60],
    "save_state_every_steps": 25, "log_every_steps": 2,
}  # fmt: skip


def test_it_learns_and_keeps_its_schedule(arguments: Arguments, tmp_path: Path) -> None:
    """The only test that a loss falls."""
    run, before = tmp_path / "run", live_bytes()
    pretrain(**arguments(run, **SCHEDULE))
    assert live_bytes() <= before, "the trainer's weights are still in memory"
    kept = {path.name for path in (run / "checkpoints").iterdir()}
    assert kept == {f"step_{step}" for step in (0, 30, 60, 120)}
    lines = (run / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["masked_lm_loss"] for line in lines]
    assert np.mean(losses[-10:]) < 0.75 * np.mean(losses[:5])
    first = read_checkpoint(checkpoint_path(run, 0))
    named = {name: first.provenance[name] for name in ("procedure", "pretrain_seed", "data_seed")}
    assert named == {"procedure": "base", "pretrain_seed": 3, "data_seed": 3}
    assert first.provenance["step"] == 0
    wanted = initial_parameters(first.config, 3)
    assert all(np.array_equal(first.parameters[name], wanted[name]) for name in wanted)


def test_same_command_again_touches_nothing(arguments: Arguments, tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = arguments(run, num_steps=2)
    pretrain(**given)
    before = {p: p.stat().st_mtime_ns for p in run.rglob("*")}
    pretrain(**given)
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*")} == before
    with pytest.raises(UserError, match=r"learning_rate \(there 0\.002, now 0\.001\)"):
        pretrain(**{**given, "learning_rate": 0.001})
    # Fields with their only value make the same run.
    pretrain(**{**given, "model": {**MODEL, **REQUIRED, **HARMLESS}})
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*")} == before


def test_continues_from_a_checkpoint(arguments: Arguments, tmp_path: Path) -> None:
    """With the other GELU and without an update, whose program would be another, too."""
    exact = {**MODEL, "hidden_act": "gelu_exact"}
    at_start = {**SHORT, "checkpoint_steps": [0]}
    pretrain_until(0, arguments(tmp_path / "base", **at_start, model=exact))
    base = checkpoint_path(tmp_path / "base", 0)
    more = {"initial_checkpoint": str(base), "procedure": "more", "pretrain_seed": 4}
    pretrain_until(0, arguments(tmp_path / "more", **at_start, **more))
    first = read_checkpoint(checkpoint_path(tmp_path / "more", 0))
    assert first.config.hidden_act == "gelu_exact"
    wanted = read_checkpoint(base).parameters
    assert all(np.array_equal(first.parameters[name], wanted[name]) for name in wanted)
    more["model"] = {**MODEL, "hidden_act": "gelu"}
    with pytest.raises(UserError, match="another model .*: hidden_act gelu_exact, expected gelu; "):
        pretrain(**arguments(tmp_path / "other", **SHORT, **more))


def test_a_further_phase_starts_from_the_first_as_the_refusal_says(
    arguments: Arguments, tmp_path: Path
) -> None:
    """Longer, or with fewer masks, for which it only starts: they need a program of their own."""
    first = {**SCHEDULE, "num_steps": 4, "warmup_steps": 1, "checkpoint_steps": [2]}
    pretrain(**arguments(tmp_path / "run", **first))
    for number, phase in enumerate(
        (
            {"num_steps": 2, "max_predictions_per_sequence": 2, "checkpoint_steps": [0]},
            {"num_steps": 6},
            {"num_steps": 6, "checkpoint_steps": [0, 5]},
        )
    ):
        second = arguments(tmp_path / "run", **{**first, "checkpoint_steps": [], **phase})
        with pytest.raises(UserError, match="was made with other parameters") as error:
            pretrain(**second)
        start = re.search(r"another run_dir, with --initial_checkpoint=(\S+) ", str(error.value))
        assert start is not None
        run = tmp_path / f"next_{number}"
        further = second | {"run_dir": str(run), "initial_checkpoint": start[1]}
        if "max_predictions_per_sequence" in phase:
            pretrain_until(0, further)
        else:
            pretrain(**further)
        [last, *_] = sorted((run / "checkpoints").iterdir(), reverse=True)
        assert last.name == f"step_{0 if number == 0 else 6}"
        assert read_checkpoint(last).provenance["parent"]["step"] == 4


def test_another_experiment_does_not_start_from_this_one_nor_any_without_its_last_checkpoint(
    arguments: Arguments, tmp_path: Path
) -> None:
    run, given = tmp_path / "run", {**SHORT, "checkpoint_steps": [0]}
    pretrain(**arguments(run, **given))
    refused = "; choose another run_dir or give the same parameters"
    for change in (
        {"pretrain_seed": 4},
        {"learning_rate": 1e-3},
        {"batch_size": 4},
        {"num_steps": 6, "dropout_seed": 1},
    ):
        with pytest.raises(UserError, match=refused):
            pretrain(**arguments(run, **given | change))
    shutil.rmtree(checkpoint_path(run, 2))
    (run / "DONE").unlink()
    with pytest.raises(UserError, match=refused):
        pretrain(**arguments(run, **given | {"num_steps": 3}))


def test_seeds_of_continued_training_are_paired_by_their_parent(
    arguments: Arguments, tmp_path: Path
) -> None:
    """Base against continued training, fine-tuned and compared from predictions; seed 1 has two bases."""
    from multiberts.evaluate.prediction_files.predictions import read_predictions
    from multiberts.finetune.finetuning import finetune
    from multiberts.stats import compare

    short = {**SHORT, "checkpoint_steps": [1]}
    rows = "sentence\tlabel\nabc abd\t0\nabe abc\t1\nab ac\t0\nae\t1\n"
    (tmp_path / "train.tsv").write_text(rows)
    (tmp_path / "dev.tsv").write_text(rows + "ad ae\t1\n")

    def made(name: str, seed: int, *finetuned_steps: int, **changes: object) -> Path:
        seeds = {"pretrain_seed": seed, "procedure": name.split("_")[0]}
        run = tmp_path / f"{name}_{seed}"
        pretrain(**arguments(run, **short, **seeds, **changes))
        for step in finetuned_steps:
            finetune(
                run_dir=str(tmp_path / "finetuned" / f"{name}_{seed}_{step}"),
                checkpoint=str(checkpoint_path(run, step)), task="sentences", labels=["0", "1"],
                options={"text_columns": ["sentence"]}, data_dir=str(tmp_path), sequence_length=16,
                batch_size=2, num_epochs=1, compile_step=False,
            )  # fmt: skip
        return checkpoint_path(run, 2)

    def pairing(base: str, step: int) -> str | None:
        names = [
            [f"{arm}_{seed}_{of}" for seed in (0, 1)] for arm, of in ((base, step), ("more", 2))
        ]
        base_side, experiment_side = (
            read_predictions([tmp_path / "finetuned" / name for name in side], "dev")
            for side in names
        )
        result = compare(base_side, experiment_side, "accuracy", n_resamples=40)
        alike = np.array_equal(base_side["prediction"], experiment_side["prediction"])
        assert ("are identical" in str(result)) == alike
        # Identical predictions leave nothing to test, so their sentence says nothing of the pairing.
        said = result.pairing == "seed number" and not alike
        assert ("by their numbers" in str(result)) == said
        return result.pairing

    for seed in (0, 1):
        start = made("base", seed, 1, 2)
        made("more", seed, 2, initial_checkpoint=str(start))
        made("base_elsewhere", seed, 2, learning_rate=1e-4)  # of the same name, other weights
        made("other", seed, 2)
    parent = json.loads((tmp_path / "finetuned/more_0_2/run.json").read_text())["parent"]
    own = json.loads((tmp_path / "finetuned/base_0_2/run.json").read_text())
    assert "parent" not in own
    assert parent == {
        **{name: own[name] for name in ("procedure", "pretrain_seed", "step")},
        "sha256": own["checkpoint"]["sha256"],
        "parent": None,
    }
    assert pairing("base", 2) == pairing("base", 1) == "parent"
    assert pairing("base_elsewhere", 2) == pairing("other", 2) == "seed number"


def test_a_checkpoint_tells_its_training_and_data_wherever_it_lies(
    arguments: Arguments, corpus: Path, tmp_path: Path
) -> None:
    """The card of a copy has them, without the run or the corpus beside it."""
    run, alone = tmp_path / "run", tmp_path / "alone"
    pretrain(**arguments(run, num_steps=2, warmup_steps=1))
    shutil.copytree(checkpoint_path(run, 2), alone / "checkpoint")
    shutil.rmtree(run)
    directory, _ = convert_checkpoint(alone / "checkpoint", tmp_path / "card", "hugging_face")
    card = (directory / "README.md").read_text().replace(",", "")
    facts = json.loads((corpus / "corpus.json").read_text())
    expected = {"batch_size": 8, "learning_rate": 0.002, "num_steps": 2, "warmup_steps": 1}
    expected |= {"gradient_shards": 2, "dupe_factor": 2}
    expected |= {name: facts["counts"][name] for name in ("documents", "tokens")}
    for name, value in expected.items():
        assert f"| {name} | {value} |" in card
    assert facts["sources"][0]["sha256"] in card
    assert "Unknown" not in card
    text = (directory / "checkpoint.json").read_text()
    assert str(tmp_path) not in text and str(corpus.parent) not in text


@pytest.mark.slow
def test_starts_from_a_checkpoint_of_the_hub(arguments: Arguments, tmp_path: Path) -> None:
    """To the weights to which its directory leads; the parent's checksum is recorded."""
    pytest.importorskip("huggingface_hub")
    pretrain(**arguments(tmp_path / "base", **SHORT))
    start, _ = convert_checkpoint(
        checkpoint_path(tmp_path / "base", 2), tmp_path / "start", "hugging_face"
    )
    pretrain(**arguments(tmp_path / "local", **SHORT, initial_checkpoint=str(start)))
    given = arguments(tmp_path / "hub", **SHORT, initial_checkpoint="hub:me/start")
    bindings = [f"--gin_param=pretrain.{name} = {value!r}" for name, value in given.items()]
    hub = FakeHub(tmp_path / "uploads", {"models/me/start": {"1" * 40: start}})
    with hub.serve() as endpoint:
        done = hub_command(endpoint, tmp_path / "home", "pretrain", *bindings)
        assert done.returncode == 0, done.stderr
    assert f"hub:me/start is me/start@{'1' * 40}" in done.stderr
    local, other = (
        read_checkpoint(checkpoint_path(tmp_path / name, 2)) for name in ("local", "hub")
    )
    assert all(
        np.array_equal(values, other.parameters[name]) for name, values in local.parameters.items()
    )
    parents = [each.provenance["parent"] for each in (local, other)]
    assert [each["procedure"] for each in parents] == ["base", "base"]
    assert re.fullmatch("[0-9a-f]{64}", parents[1]["sha256"])


@pytest.mark.parametrize(
    ("architecture", "is_trained"),
    [pytest.param("BertForMaskedLM", True, marks=pytest.mark.slow), ("BertModel", False)],
)
def test_what_a_start_lacks_is_drawn_of_the_seed_said_and_recorded(
    arguments: Arguments,
    corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    architecture: str,
    is_trained: bool,
) -> None:
    """Models of transformers without a pooler and next-sentence head, or without heads, with padded rows.

    Their rows are of another number, so that to train them takes a program more.
    """
    transformers = pytest.importorskip("transformers")
    model = getattr(transformers, architecture)(
        transformers.BertConfig(**MODEL, vocab_size=128, hidden_act="gelu_new")
    )
    model.save_pretrained(tmp_path / "start")
    tokenizer = transformers.BertTokenizer(vocab=str(corpus / "vocab.txt"))
    tokenizer.save_pretrained(tmp_path / "start")
    run = tmp_path / "run"
    start = str(tmp_path / "start")
    given = arguments(run, num_steps=2, checkpoint_steps=[0], initial_checkpoint=start)
    if is_trained:
        pretrain(**given)
    else:
        pretrain_until(0, given)
    first = read_checkpoint(checkpoint_path(run, 0))
    theirs = read_checkpoint(tmp_path / "start").parameters
    expected = {**initial_parameters(first.config, 3), **theirs}
    assert len(first.parameters["bert/embeddings/word_embeddings"]) == 128
    assert all(np.array_equal(first.parameters[name], expected[name]) for name in expected)
    drawn = first.provenance["initialised"]
    assert drawn["pretrain_seed"] == 3
    assert drawn["variables"] == sorted(expected.keys() - theirs.keys())
    assert "cls/seq_relationship/output_weights" in drawn["variables"]
    said = capsys.readouterr().err
    assert f"lacks {drawn['variables'][0]}, " in said
    assert "drawn as at step 0 of pretrain_seed 3" in said
    size = len((corpus / "vocab.txt").read_text().splitlines())
    assert f"{128 - size} of 128 rows of the embeddings" in said
    if is_trained:
        assert read_checkpoint(checkpoint_path(run, 2)).provenance["initialised"] == drawn


def test_a_corpus_that_changed_is_refused_when_the_run_starts(
    arguments: Arguments, corpus: Path, tmp_path: Path
) -> None:
    """One bit of a token, which no size tells."""
    shutil.copytree(corpus, tmp_path / "copy")
    tokens = tmp_path / "copy" / "tokens.npy"
    data = bytearray(tokens.read_bytes())
    data[-2] ^= 1
    tokens.write_bytes(data)
    with pytest.raises(UserError, match=r"tokens\.npy does not have the checksum"):
        pretrain(**arguments(tmp_path / "run", corpus=str(tmp_path / "copy"), num_steps=2))
    assert not (tmp_path / "run").exists()
