"""Shares of sources of randomness: hand computations, coverage where the truth is known, refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from multiberts import stats
from multiberts.launch.plan.seed_design import SeedDesign, seeds_of_runs

NAMES = ["data", "initialisation", "dropout"]
Sources = tuple[str, ...]


def scores_and_seeds(
    random: np.random.Generator,
    parts: dict[Sources, float],
    num_seeds: int,
    design: SeedDesign = "crossed",
) -> tuple[np.ndarray, dict[str, list[int]]]:
    """A world in which each set of sources adds a draw of its own, of a known variance."""
    runs = seeds_of_runs(NAMES, [], range(num_seeds), design)
    effects: dict[tuple, float] = {}
    scores = [
        sum(
            effects.setdefault(
                (part, *(run[name] for name in part)), random.normal(0, variance**0.5)
            )
            for part, variance in parts.items()
        )
        for run in runs
    ]
    return np.array(scores), {name: [run[name] for run in runs] for name in NAMES}


def test_two_crossed_sources_by_hand() -> None:
    """Mean squares 8 of rows, 2 of columns and 0 of the rest: components 8/3 and 2/3."""
    rows, columns = np.repeat([-1.0, 0.0, 1.0], 3), np.tile([-1.0, 0.0, 1.0], 3)
    scores = rows * np.sqrt(8 / 3) + columns * np.sqrt(2 / 3)
    found = stats.seed_sources(scores, {"row": rows.tolist(), "column": columns.tolist()})
    assert found.variance == pytest.approx(8 / 3 + 2 / 3)
    assert [source.total for source in found.sources] == pytest.approx([0.8, 0.2])
    assert [source.alone for source in found.sources] == pytest.approx([0.8, 0.2])


def test_crossed_components_are_those_of_the_table_of_seeds_and_examples() -> None:
    """Seeds by examples is a crossing, too: another part of the package has its mean squares."""
    table = np.random.default_rng(0).normal(size=(5, 7)) + np.arange(5)[:, None] + np.arange(7)
    rows, columns = np.indices(table.shape)
    found = stats.seed_sources(table.ravel(), {"seed": rows.ravel(), "example": columns.ravel()})
    parts = stats.variance_components(table, truncate=False)
    total = parts.seed + parts.example + parts.residual
    assert found.variance == pytest.approx(total)
    assert found.sources[0].alone == pytest.approx(parts.seed / total)
    assert found.sources[0].total == pytest.approx((parts.seed + parts.residual) / total)


def test_one_at_a_time_by_hand() -> None:
    """Pairs differ by 1 in the first source and not in the second; bases have variance 1."""
    seeds = {"head": [0, 3, 0, 1, 4, 1, 2, 5, 2], "order": [0, 0, 3, 1, 1, 4, 2, 2, 5]}
    scores = [-1.0, 0.0, -1.0, 0.0, 1.0, 0.0, 1.0, 2.0, 1.0]
    found = stats.seed_sources(scores, seeds)
    unrelated = [  # pairs without a seed in common
        (scores[a] - scores[b]) ** 2 / 2
        for a, b in itertools.combinations(range(9), 2)
        if all(own[a] != own[b] for own in seeds.values())
    ]
    assert found.variance == pytest.approx(np.mean(unrelated))
    head, order = found.sources
    assert head.total == pytest.approx(0.5 / np.mean(unrelated)) and head.num_seeds == 3
    assert (order.total, order.total_ci) == (0.0, (0.0, 0.0))


@pytest.mark.parametrize(
    ("parts", "design", "num_seeds"),
    [
        ({("data",): 1.0, ("initialisation",): 1.0}, "crossed", 4),
        ({("data",): 1.0, ("data", "initialisation"): 1.0}, "crossed", 4),
        # Chaos: any change gives another draw, and every source has all of the variance.
        ({("data", "initialisation", "dropout"): 1.0}, "crossed", 4),
        ({("data",): 1.0, ("data", "initialisation"): 1.0, ("dropout",): 0.5}, "one_at_a_time", 6),
    ],
    ids=["additive", "together", "chaos", "one at a time"],
)
def test_intervals_cover_the_truth(
    parts: dict[Sources, float], design: SeedDesign, num_seeds: int
) -> None:
    """And a source that moves nothing has a share of 0 in every data set, with an interval that holds 0."""
    random = np.random.default_rng(1)
    total = sum(parts.values())
    truths = {
        name: (
            sum(variance for part, variance in parts.items() if name in part) / total,
            parts.get((name,), 0.0) / total,
        )
        for name in NAMES
    }
    num_data_sets = 150
    held: dict[tuple[str, str], int] = dict.fromkeys(
        itertools.product(NAMES, ("total", "alone")), 0
    )
    for _ in range(num_data_sets):
        found = stats.seed_sources(*scores_and_seeds(random, parts, num_seeds, design))
        for source in found.sources:
            for what, ci, truth in zip(
                ("total", "alone"),
                (source.total_ci, source.alone_ci),
                truths[source.name],
                strict=True,
            ):
                assert (ci is None) == (what == "alone" and design == "one_at_a_time")
                held[source.name, what] += ci is None or ci.low <= truth <= ci.high
            if truths[source.name][0] == 0:
                assert (source.total, source.total_ci) == (0.0, (0.0, 0.0))
    # Three standard errors of a share of .95 below it.
    assert min(held.values()) / num_data_sets > 0.95 - 3 * (0.95 * 0.05 / num_data_sets) ** 0.5


def test_an_interval_becomes_narrower_with_seeds() -> None:
    random = np.random.default_rng(2)
    widths = []
    for num_seeds in (3, 12):
        parts: dict[Sources, float] = {("data",): 1.0, ("initialisation",): 1.0}
        ci = stats.seed_sources(*scores_and_seeds(random, parts, num_seeds)).sources[0].total_ci
        widths.append(ci.high - ci.low)
    assert widths[1] < widths[0]
