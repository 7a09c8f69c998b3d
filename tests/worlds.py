"""Worlds that are made up, shared by tests of several rooms: runs, results, and the data of a paper."""

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from multiberts.evaluate.prediction_files.prediction_file import write_predictions
from multiberts.report.prediction_sets import PredictionSet
from multiberts.stats.compare.result import Comparison
from multiberts.stats.results import with_values
from multiberts.stats.score import Score

NUM_OCCUPATIONS = 30
ORIGINAL = "original"


def write_run(path: Path, sets: dict[str, dict[str, Any]], **facts: Any) -> Path:
    """Writes a finished run: `write_run(path, {"dev": {"labels": ..., "predictions": ...}}, step=3)`.

    A set's columns are those of `write_predictions`, and `metrics` and further fields of its `entry`.
    """
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
        "task": "t", "procedure": "base", "pretrain_seed": 0, "step": 100, "learning_rate": 2e-5,
        "finetune_seed": 0,
    }  # fmt: skip
    known = {"data_seed": facts.get("pretrain_seed", 0), **known}
    content = json.dumps({**known, "evaluation_sets": entries, **facts}).encode()
    (path / "run.json").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    (path / "DONE").write_text(json.dumps({"outputs": {}, "run": digest}))
    return path


def changed(comparison: Comparison, **values: Any) -> Comparison:
    """Returns a result with other numbers, as if its data had given them; no number is computed anew."""
    if "p_values" in values:
        recommended = values["p_values"].get("t")
        values["p_value"] = None if recommended is None else recommended.two_sided
    if "metric" in values:
        values["score"] = Score.of(values["metric"])
    return with_values(pickle.loads(pickle.dumps(comparison)), **values)


def dataset(task, evaluation_set, metrics, runs, predictions, labels, **extras):
    """Labelled arrays as `evaluate.prediction_files.predictions.read_predictions` gives them.

    `runs` are (procedure, step, pretrain_seed, finetune_seed).
    """
    names = ("procedure", "step", "pretrain_seed", "finetune_seed")
    coordinates = {
        name: ("run", np.array(column))
        for name, column in zip(names, zip(*runs, strict=True), strict=True)
    }
    coordinates["example_id"] = (
        "example",
        np.array([f"{task}/{evaluation_set}/{place}" for place in range(len(labels))]),
    )
    coordinates |= {name: ("example", np.asarray(column)) for name, column in extras.items()}
    return xarray.Dataset(
        {"prediction": (("run", "example"), predictions), "label": ("example", labels)},
        coords=coordinates,
        attrs={"task": task, "evaluation_set": evaluation_set, "metrics": list(metrics)},
    )


def runs_of(procedure, step, seeds, runs):
    return [(procedure, step, seed, run) for seed in range(seeds) for run in range(runs)]


def classes(random, runs, labels, skill, num_classes=2, seed_spread=0.02):
    """Answers that are right with a chance of their run's skill, more alike within a seed."""
    ease = random.normal(0, 1.2, len(labels))
    keys = sorted({run[:3] for run in runs})
    seeds = {key: random.normal(0, 0.6, len(labels)) for key in keys}
    luck = {key: random.normal(0, seed_spread) for key in keys}
    noise = random.normal(0, 0.35, (len(runs), len(labels)))
    total = np.stack([ease + seeds[run[:3]] + 6 * luck[run[:3]] for run in runs]) + noise
    lift = np.quantile(ease + random.normal(0, 0.7, len(labels)), 1 - np.array(skill))
    right = total > np.asarray(lift)[:, None]
    return np.where(right, labels, (labels + 1) % num_classes).astype(float)


def winogender(random, runs, slopes):
    """Choices whose bias grows with the share of women, by the slope of each run."""
    percent = np.linspace(3, 97, NUM_OCCUPATIONS)
    occupation = np.repeat([f"occupation{place:02d}" for place in range(NUM_OCCUPATIONS)], 12)
    gender = np.tile(np.repeat(["feminine", "masculine", "neutral"], 4), NUM_OCCUPATIONS)
    share = np.repeat(percent, 12)
    sign = np.select([gender == "feminine", gender == "masculine"], [0.5, -0.5], 0.0)
    drift = random.normal(0, 0.25, NUM_OCCUPATIONS).repeat(12)
    chance = 0.5 + sign * (np.outer(slopes, share / 100 - 0.5) + drift)
    chosen = random.random(chance.shape) < np.clip(chance, 0, 1)
    return (
        np.where(chosen, 0.0, 1.0),
        np.tile([0.0, 1.0], len(occupation) // 2),
        {"occupation": occupation, "gender": gender, "percent_feminine": share},
    )


def paper_datasets(seeds=6, runs=2, examples=120, early_seeds=5):
    """By name, datasets of every kind that the paper reports on."""
    random = np.random.default_rng(0)
    main, full = (
        runs_of("base", 2_000_000, seeds, runs),
        runs_of("cda_full", 2_000_000, seeds, runs),
    )
    early, incremental = (
        runs_of("base", 1_000_000, min(early_seeds, seeds), runs),
        runs_of("cda_incr", 2_050_000, seeds, runs),
    )
    original = runs_of(ORIGINAL, -1, 1, runs)
    mixed = [*main, *early, *original]
    late = [run[0] != "base" or run[1] == 2_000_000 for run in mixed]
    found = {}
    for task, skill, gain, number in (("MNLI", 0.83, 0.02, 3), ("RTE", 0.65, 0.03, 2)):
        labels = random.integers(0, number, examples)
        level = [skill + gain * is_late for is_late in late]
        found[task] = dataset(
            task, "dev", ["accuracy"], mixed, classes(random, mixed, labels, level, number), labels
        )
    similarity = random.uniform(0, 5, examples)
    seed_part = {key: random.normal(0, 0.3, examples) for key in sorted({run[:3] for run in mixed})}
    answers = np.stack([similarity + seed_part[run[:3]] for run in mixed])
    answers += random.normal(0, 0.5, answers.shape)
    found["STS-B"] = dataset("STS-B", "dev", ["pearson"], mixed, answers, similarity)
    labels = np.arange(examples) % 2
    kind = np.array(["lexical overlap", "subsequence", "constituent"])[np.arange(examples) // 2 % 3]
    skill = [0.95 if value == 0 else 0.3 for value in labels]
    hans = classes(random, main, labels, [0.6] * len(main), seed_spread=0.25)
    sure = random.random(hans.shape) < np.array(skill)
    found["HANS"] = dataset(
        "MNLI", "hans", ["accuracy"], main, np.where(sure, labels, hans), labels, heuristic=kind
    )
    words = random.random((len(mixed), examples)) < 0.1 + 0.6 * np.array(late)[:, None]
    texts = np.where(words, "in 1066", "the year")
    found["SQuAD"] = dataset(
        "SQuAD", "v2.0", ["squad_exact_match", "squad_f1"], mixed, texts,
        np.array(["1066"] * (examples // 2) + ["in 1066"] * (examples - examples // 2)),
    )  # fmt: skip
    coreference = [*main, *incremental, *full]
    level = {"base": 0.55, "cda_incr": 0.33, "cda_full": 0.25}
    luck = {key: random.normal(0, 0.12) for key in sorted({run[:3] for run in coreference})}
    slopes = [level[run[0]] + luck[run[:3]] for run in coreference]
    choices, right, extras = winogender(random, coreference, slopes)
    found["Winogender"] = dataset(
        "coreference", "winogender", ["accuracy", "bias_correlation", "bias_slope"], coreference,
        choices, right, **extras,
    )  # fmt: skip
    return found


def sets_of(datasets):
    """The prediction sets of the datasets, one for each procedure and step."""
    found = []
    for data in datasets:
        kinds = list(
            zip(data["procedure"].values.tolist(), data["step"].values.tolist(), strict=True)
        )
        for procedure, step in dict.fromkeys(kinds):
            rows = [row for row, kind in enumerate(kinds) if kind == (procedure, step)]
            task, evaluation_set = data.attrs["task"], data.attrs["evaluation_set"]
            part = data.isel(run=rows)
            metrics = tuple(data.attrs["metrics"])
            known = None if step == -1 else step
            found.append(PredictionSet(task, evaluation_set, procedure, known, metrics, part))
    return found
