"""Finished fine-tuning runs with made-up predictions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.evaluate.prediction_files.prediction_file import write_predictions


def _make_run(path: Path, sets: dict[str, dict[str, Any]], **content: Any) -> Path:
    entries = {}
    for name, columns in sets.items():
        given = dict(columns)
        entry = {"metrics": given.pop("metrics", ["accuracy"]), **given.pop("entry", {})}
        given.setdefault("example_ids", [f"x/{row}" for row in range(len(given["predictions"]))])
        file = path / "predictions" / f"{name}.tfrecord"
        write_predictions(file, **given)
        entries[name] = {
            "file": f"predictions/{name}.tfrecord",
            "examples": len(given["example_ids"]),
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            **entry,
        }
    known = {
        "task": "t", "procedure": "base", "pretrain_seed": 0, "data_seed": 0, "step": 100,
        "learning_rate": 2e-5, "finetune_seed": 0,
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps({**known, "evaluation_sets": entries, **content}))
    (path / "DONE").write_text('{"outputs": {}}')
    return path


@pytest.fixture
def make_run() -> Callable[..., Path]:
    """Writes a run: `make_run(path, {"dev": {"labels": ..., "predictions": ...}}, pretrain_seed=3)`.

    A set's columns are those of `write_predictions`, and `metrics` and further fields of its `entry`.
    """
    return _make_run
