"""A new answer is its class and an entry in the list: everything that shows answers shows it, too."""

import json
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pytest

from multiberts.report.answers.listed import ANSWERS
from multiberts.report.compare_command import FileComparison, compare_files
from multiberts.report.evidence import Pair, Request, compare_all
from multiberts.report.prediction_sets import PredictionSet
from multiberts.report.presentation.answer import FurtherAnswer
from multiberts.report.presentation.sections import ReportSection
from multiberts.report.presentation.table_writer import Table
from multiberts.runs.figure_style import canvas
from multiberts.stats.settings import ComparisonSettings
from multiberts.tests.report.test_page import made_up


@dataclass(frozen=True, eq=False, repr=False)
class Worst(FurtherAnswer):
    """How far the worst seed of the experiment lies below the base's mean."""

    key: ClassVar[str] = "worst"
    parameter: ClassVar[str] = "rng"  # a setting that the command has and that always has a value

    gap: float
    p: float | None = None

    @classmethod
    def corrected(cls, answers):
        return [cls(each.comparison, each.gap, p) for each, p in answers]

    def sentences(self):
        return [f"The worst seed lies at {self.gap:.4f}."]

    def more_needed(self):
        return ["A worse seed would need luck."]

    def methods(self):
        return ["The worst seed was looked at."], ["Murphy (1949)."]

    def table(self):
        return Table(["which", "gap"], [["worst", self.gap]], note="Of the worst seed.")

    def heading(self):
        return "Worst seed"

    def figure(self):
        return ReportSection("worst", "The worst seed", partial(draw, self))


def worst(comparison, value):
    return Worst(comparison, float(comparison.experiment.seed_scores.min()) - value / 1000)


def draw(answer):
    with canvas(2, 2) as (figure, axes):
        axes.plot([0], [answer.gap], "o")
    return figure


@pytest.fixture
def toy():
    ANSWERS[Worst] = worst
    yield
    del ANSWERS[Worst]


def test_a_toy_answer_is_everywhere(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, skill in (("old", 0.6), ("new", 0.8)):
        right = np.random.default_rng(len(name)).random((5, 100)) < skill
        np.savez(f"{name}.npz", predictions=right, labels=np.ones(100, int))
    files = {
        "results": "old.npz",
        "experiment": ["new.npz"],
        "metric": "accuracy",
        "n_resamples": 40,
    }
    text = compare_files(**files, html="page.html", latex="table.tex", csv="all.csv")
    (record,) = json.loads(compare_files(**files, json=True))
    gap = f"{record['worst']['gap']:.4f}"
    assert f"The worst seed lies at {gap}." in text and "A worse seed would need luck." in text
    assert "Note: Of the worst seed." in text
    page = (tmp_path / "page.html").read_text()
    for part in (f"lies at {gap}", "need luck", "Worst seed:", "Murphy (1949)",
                 "Of the worst seed.", 'aria-label="The worst seed"'):  # fmt: skip
        assert part in page, part
    assert "worst & " in (tmp_path / "table.tex").read_text()
    header, row = (tmp_path / "all.csv").read_text().splitlines()
    columns = dict(zip(header.split(","), row.split(","), strict=True))
    assert float(columns["worst_gap"]) == record["worst"]["gap"]
    assert float(columns["worst_p"]) == record["worst"]["p"] == record["p_holm"]


def test_a_report_asks_it_of_every_pair(toy):
    sides = [made_up(3, 60, skill, seed) for seed, skill in ((1, 0.6), (2, 0.8))]
    sets = [
        PredictionSet("t", "dev", name, None, ("accuracy",), data)
        for name, data in zip("ab", sides, strict=True)
    ]
    pairs = [
        Pair(sets, measure, ("a", "b"), "a and b", measure) for measure in ("accuracy", "f1_macro")
    ]
    settings = ComparisonSettings(n_resamples=40)
    (compared,) = compare_all([Request("both", settings, pairs, {"rng": 42})])
    assert [type(answer) for one in compared.items for answer in one.answers] == [Worst, Worst]
    for one in compared.items:
        assert [answer.record()["p"] for answer in one.answers] == [one.adjusted]


def test_every_answer_of_the_list_is_asked_for_by_a_setting_of_its_own():
    parameters = [kind.parameter for kind in ANSWERS]
    assert len({*parameters}) == len({kind.key for kind in ANSWERS}) == len(ANSWERS)
    assert {*parameters} <= {*FileComparison.__dataclass_fields__}
