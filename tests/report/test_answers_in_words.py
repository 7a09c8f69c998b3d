"""Question answering from prediction files to intervals, and sets without labels."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_file import find_runs
from multiberts.papers.multiberts.run_agreement import agreement
from multiberts.report.reporting import report
from multiberts.report.selection import finished_runs, prediction_sets_of_runs
from multiberts.tests.worlds import write_run

NUMBER = 60
WORDS = ("denver", "broncos", "1066", "the", "normans", "of")


def run_of_words(path: Path, texts, references, **facts) -> None:
    """A run on `dev`, on an early checkpoint of it, and on a set without labels."""
    common = {
        "example_ids": [f"q{row}" for row in range(len(texts))],
        "predictions": [bool(text) for text in texts],
    }
    dev = {
        "labels": [bool(answers) for answers in references], "extras": {"answers": references},
        "outputs": {"prediction_text": texts}, "metrics": ["squad_f1", "squad_exact_match"],
    }  # fmt: skip
    early = {
        **dev, "outputs": {"prediction_text": ["early"] * len(texts)},
        "entry": {"set": "dev", "epochs": 1.5},
    }  # fmt: skip
    test = {"labels": None, "metrics": [], "outputs": {"prediction_text": texts}}
    sets = {"dev": dev, "dev@1.5": early, "test": test}
    sets = {name: {**common, **columns} for name, columns in sets.items()}
    write_run(path, sets, task="squad-v2.0", step=10, **facts)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """A folder of runs of two procedures, four seeds, two runs each; and the answers of all."""
    root = tmp_path_factory.mktemp("runs")
    random = np.random.default_rng(0)

    def text():
        return " ".join(random.choice(WORDS, size=random.integers(1, 4)))

    references = [tuple(text() for _ in range(random.integers(0, 4))) for _ in range(NUMBER)]
    texts = {}
    for procedure, skill in (("base", 0.4), ("longer", 0.8)):
        for seed in range(4):
            for run in range(2):
                given = [
                    (own[0] if own else "") if random.random() < skill else text()
                    for own in references
                ]
                texts[procedure, seed, run] = given
                facts = {"procedure": procedure, "pretrain_seed": seed, "finetune_seed": run}
                run_of_words(root / f"{procedure}-{seed}-{run}", given, references, **facts)
    return root, references, texts


def test_scores_of_runs_and_variance_components(answers):
    root, references, texts = answers
    prediction_sets, _ = prediction_sets_of_runs(finished_runs(str(root)))
    names = [(predictions.procedure, predictions.evaluation_set) for predictions in prediction_sets]
    assert names == [("base", "dev"), ("longer", "dev")]
    scores = prediction_sets[0].run_scores("squad_exact_match").by_seed
    exact = METRICS["squad_exact_match"]
    for seed in range(4):
        expected = [exact.score(references, texts["base", seed, run]) for run in range(2)]
        np.testing.assert_allclose(scores[seed], expected)
    assert prediction_sets[1].components("squad_f1").total > 0


def test_report_of_answers_in_words(answers, tmp_path):
    root, _, _ = answers
    request = {"name": "More", "base": {"procedure": "base"}, "experiment": {"procedure": "longer"}}
    given = {"predictions": str(root), "comparisons": [request], "n_resamples": 100}
    report(run_dir=str(tmp_path / "report"), title="Questions", **given)
    page = (tmp_path / "report" / "index.html").read_text()
    assert "F1 of words (%)" in page and "exact match (%)" in page
    csv = re.search(r'<pre[^>]*aria-label="As CSV".*?</pre>', page, re.DOTALL)  # for programs
    assert csv is not None and "squad_" not in page.replace(csv[0], "")
    assert "dev@1.5" not in page and not re.search(r">\s*test\s*<", page)


def test_agreement_compares_words_and_needs_no_labels(answers):
    root, _, texts = answers
    runs = [path for path, _ in find_runs(root) if path.name.startswith("base")]
    for name in ("dev", "test"):
        found = agreement(read_predictions(runs, name))
        assert found.kind == "classes"
        alike = [
            np.mean(np.array(texts["base", seed, 0]) == np.array(texts["base", seed, 1]))
            for seed in range(4)
        ]
        assert found.same_seed.value == pytest.approx(np.mean(alike))
