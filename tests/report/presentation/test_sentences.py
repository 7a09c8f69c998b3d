"""Situations and the sentences that each gets: `sentences.csv`, read aloud before it changes."""

import csv
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from multiberts.report.presentation import planning, words
from multiberts.stats import compare, same
from multiberts.stats.compare.result import Comparison
from multiberts.stats.intervals import PValues
from multiberts.tests.worlds import changed

LABELS = np.random.default_rng(5).integers(0, 2, 400)


def answers(skill: float, key: int, num_seeds: int = 5, spread: float = 0.02) -> np.ndarray:
    """Predictions [seeds, examples] of seeds whose accuracy varies around `skill`."""
    rng = np.random.default_rng([17, key])
    ability = skill + spread * rng.standard_normal((num_seeds, 1))
    return np.where(rng.random((num_seeds, 400)) < ability, LABELS, 1 - LABELS)


def made(base: np.ndarray, new: np.ndarray | None, metric: str = "accuracy", **how) -> Comparison:
    options = {"labels": LABELS, "n_resamples": 50, **how}
    if new is None:
        options["design"] = "single"
    return compare(base, new, metric, **options).named("old", "new")


OLD, LIKE, BETTER, WORSE = answers(0.7, 1), answers(0.7, 2), answers(0.85, 3), answers(0.5, 4)
ONE = answers(0.7, 6, num_seeds=1)
CONSTANT = np.ones_like(OLD)
FAILED = np.vstack([BETTER[:4], np.ones((1, 400), int)])
SIDES = {
    "better": (OLD, BETTER), "worse": (OLD, WORSE), "close": (OLD, LIKE), "identical": (OLD, OLD),
    "two seeds": (OLD[:2], BETTER[:2]), "constant": (OLD, CONSTANT), "one failed": (OLD, FAILED),
}  # fmt: skip
HOW: Mapping[str, dict] = {
    "paired": {},
    "unpaired": {"design": "unpaired"},
    "one fixed baseline": {"design": "fixed_baseline"},
    "examples alone": {"resample": "examples"},
    "seeds alone": {"resample": "seeds"},
    "margin of 5 points": {},
    "clusters": {"clusters": np.arange(400) // 4},
}
SITUATIONS: dict[str, Callable[[], Comparison]] = {
    f"{side}, {how}": partial(made, *(sides if "fixed" not in how else (ONE, sides[1])), **options)
    for side, sides in SIDES.items()
    for how, options in HOW.items()
    if (side, how) != ("identical", "one fixed baseline")
    and (side in ("better", "close", "identical", "worse") or how in ("paired", "unpaired"))
}
SITUATIONS |= {
    f"{side}, {metric}": partial(made, *SIDES[side], metric)
    for side in ("close", "better")
    for metric in ("f1", "matthews", "mse")
}
SITUATIONS |= {
    "one arm": partial(made, OLD, None),
    "one arm of constant seeds": partial(made, CONSTANT, None),
    "unpaired of unlike numbers": partial(made, OLD, LIKE[:3], design="unpaired"),
    "a failed seed": partial(made, OLD, np.vstack([BETTER[:4], answers(0.5, 9, num_seeds=1)])),
}
RIGHT = np.ones((5, 400), int)
SITUATIONS["all right against all wrong"] = partial(made, 1 - RIGHT, RIGHT, labels=RIGHT[0])
NO_P = PValues(1.0, 1.0, 1.0)
# As other data would have given them.
SITUATIONS |= {
    f"{name}, made up": lambda side=side, values=values: changed(made(*SIDES[side]), **values)
    for name, side, values in (
        ("p is below the floor of the seeds", "better", {"below_seed_floor": True}),
        ("nothing varies", "close", {"standard_error": 0.0, "p_values": {"t": NO_P}}),
        ("no difference", "close", {"estimate": 0.0}),
        ("scores of 0/0", "close", {"degenerate_replicates": 3}),
        ("a bias", "better", {"metric": "bias_slope"}),
        ("a metric of your own", "better", {"metric": "my_own"}),
    )
}
TABLE = Path(__file__).with_name("sentences.csv")
KINDS = ("finding", "interval", "needed", "notes")


def said(situation: str) -> dict[str, str]:
    item = SITUATIONS[situation]()
    answers = [same(item, 5)] if "margin of 5 points" in situation else []
    texts = (
        words.finding(item, answers=answers, pairing=False),
        words.interval_to_report(item),
        planning.what_is_needed(item, answers=answers),
        " ".join([*words.warnings(item), words.unseen_failures(item)]).strip(),
    )
    return dict(zip(KINDS, texts, strict=True))


def read_table() -> dict[str, dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {row.pop("situation"): row for row in csv.DictReader(file)}


def test_every_situation_has_its_sentence() -> None:
    assert list(read_table()) == list(SITUATIONS) and len(SITUATIONS) >= 40


@pytest.mark.parametrize("situation", SITUATIONS)
def test_sentences(situation: str) -> None:
    assert said(situation) == read_table()[situation]


def test_differences_that_cancel_are_not_called_identical() -> None:
    """Both seeds and all examples have equal means in both arms, and yet differ by turns."""
    base = np.array([[1, 0, 1, 0, 1, 1], [0, 1, 1, 0, 1, 1]])
    new = base.copy()
    new[:, :2] = 1 - base[:, :2]
    found = compare(base, new, "mean", n_resamples=40)
    assert found.estimate == found.standard_error == 0
    assert "have the same mean, 66.7 %" in words.finding(found)
    assert words.interval_to_report(found).startswith("Report ")
    alone = words.finding(compare(base, new, "mean", resample="seeds", n_resamples=40))
    assert "without a difference in any seed" in alone


def test_p_is_never_the_probability_of_chance() -> None:
    """Principle 2 of the ASA's statement on p-values."""
    assert not re.search("chance|likely", " ".join(row["finding"] for row in read_table().values()))
    rates = {0.025: "2.5 %", 0.07: "7 %", 0.6: "60 %", 0.999: "100 %", 3e-5: "fewer than 0.01 %"}
    assert {p: words.rate_text(p) for p in rates} == rates


def test_what_is_identical_has_no_p() -> None:
    found = {name: row for name, row in read_table().items() if name.startswith("identical")}
    for name, row in found.items():
        # Drawn apart, the seeds of both arms differ.
        alike = "unpaired" not in name
        assert ("are identical" in row["finding"]) == alike, name
        assert ("t test" in row["finding"]) != alike, name
