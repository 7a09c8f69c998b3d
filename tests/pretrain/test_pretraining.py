"""Pre-training: refusals, going on from a checkpoint, and learning."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bert.checkpoint import check_checkpoint, read_checkpoint, write_checkpoint
from bert.configuration import BertConfig
from bert.initialization import initial_parameters
from pretrain.pretraining import checkpoint_path, pretrain
from runs.errors import UserError

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
}
RECIPE = {
    "model": MODEL,
    "pretrain_seed": 3,
    "batch_size": 8,
    "sequence_length": 32,
    "max_predictions_per_sequence": 5,
    "learning_rate": 2e-3,
    "gradient_shards": 2,
}


def _arguments(run_dir: Path, corpus: Path, **changes: object) -> dict:
    return {"run_dir": str(run_dir), "corpus": str(corpus), **RECIPE, **changes}


SCHEDULE = {
    "num_steps": 240,
    "warmup_steps": 20,
    "checkpoint_steps": [0, 60, 120],
    "save_state_every_steps": 25,
    "log_every_steps": 2,
}


def test_it_learns_and_keeps_its_schedule(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretrain(**_arguments(run, corpus, **SCHEDULE))
    steps = [0, 60, 120, 240]
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == sorted(
        f"step_{step}" for step in steps
    )
    lines = (run / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["masked_lm_loss"] for line in lines]
    assert np.mean(losses[-10:]) < 0.75 * np.mean(losses[:5])
    first = read_checkpoint(checkpoint_path(run, 0))
    assert first.provenance == {
        "procedure": "base", "pretrain_seed": 3, "data_seed": 3, "step": 0
    }  # fmt: skip
    wanted = initial_parameters(first.config, 3)
    assert all(np.array_equal(first.parameters[name], wanted[name]) for name in wanted)


def test_same_command_again_touches_nothing(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = _arguments(run, corpus, num_steps=2, warmup_steps=0)
    pretrain(**arguments)
    before = {p: p.stat().st_mtime_ns for p in run.rglob("*")}
    pretrain(**arguments)
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*")} == before
    with pytest.raises(UserError, match=r"learning_rate \(there 0\.002, now 0\.001\)"):
        pretrain(**{**arguments, "learning_rate": 0.001})


def test_continues_from_a_checkpoint(corpus: Path, tmp_path: Path) -> None:
    short = {"num_steps": 2, "warmup_steps": 0}
    pretrain(**_arguments(tmp_path / "base", corpus, **short))
    base = checkpoint_path(tmp_path / "base", 2)
    more = {"initial_checkpoint": str(base), "checkpoint_steps": [0], "procedure": "more"}
    pretrain(**_arguments(tmp_path / "more", corpus, **short, **more))
    start, end = (
        read_checkpoint(checkpoint_path(tmp_path / "more", step)).parameters for step in (0, 2)
    )
    wanted = read_checkpoint(base).parameters
    assert all(np.array_equal(start[name], wanted[name]) for name in wanted)
    assert any(not np.array_equal(start[name], end[name]) for name in wanted)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 7}, "batch_size 7 is no multiple of pretrain.gradient_shards 2"),
        ({"sequence_length": 64}, "sequence_length 64 exceeds the model's 32 positions"),
        ({"checkpoint_steps": [0, 500]}, "checkpoint_steps holds 500"),
        ({"model": {**MODEL, "hidden_sise": 32}}, "unknown field 'hidden_sise'"),
        ({"model": {**MODEL, "num_attention_heads": 5}}, "no multiple of num_attention_heads"),
        ({"learning_rate": 0.0}, "give a positive number"),
        ({"warmup_steps": 9}, "warmup_steps 9 is outside"),
    ],
)
def test_bad_numbers_are_refused_before_anything_is_written(
    corpus: Path, tmp_path: Path, changes: dict, message: str
) -> None:
    arguments = _arguments(tmp_path / "run", corpus, num_steps=2, warmup_steps=0)
    with pytest.raises(UserError, match=message):
        pretrain(**{**arguments, **changes})
    assert not (tmp_path / "run").exists()


def test_checkpoint_of_another_vocabulary_is_refused(corpus: Path, tmp_path: Path) -> None:
    pieces = (corpus / "vocab.txt").read_text().split("\n")
    pieces[-2] = "other"
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    config = BertConfig.from_mapping({**MODEL, "vocab_size": len(pieces) - 1}, "test")
    foreign = tmp_path / "foreign"
    write_checkpoint(
        foreign, initial_parameters(config, 0), config, tmp_path / "vocab.txt", {"step": 0}
    )
    check_checkpoint(foreign)
    with pytest.raises(UserError, match=r"vocab\.txt differ"):
        pretrain(
            **_arguments(
                tmp_path / "run", corpus, num_steps=2, warmup_steps=0,
                initial_checkpoint=str(foreign),
            )
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_command_line_refusals(corpus: Path, tmp_path: Path) -> None:
    """One line on standard error, exit status 2, nothing written, TensorFlow never loaded."""

    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-m", "pretrain", *flags],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    unknown = run("--gin_param=pretrain.lerning_rate = 1e-4")
    incomplete = run(f"--gin_param=pretrain.corpus = {str(corpus)!r}")
    no_file = run("--gin_file=absent.gin")
    no_flag = run("--steps=3")
    for result, message in [
        (unknown, "lerning_rate"),
        (incomplete, "pretrain.model, pretrain.num_steps, pretrain.pretrain_seed"),
        (no_file, "--gin_file absent.gin does not exist"),
        (no_flag, "Unknown command line flag 'steps'"),
    ]:
        assert result.returncode == 2, result.stderr
        assert message in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert list(tmp_path.iterdir()) == []
