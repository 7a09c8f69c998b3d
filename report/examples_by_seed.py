"""The examples on which seeds disagree: a grid of examples by seeds, for the page of a report."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.register import METRICS
from multiberts.report.answers.slicing import slices_of
from multiberts.report.prediction_sets import PredictionSet, task_of
from multiberts.stats.bootstrap.pseudo_values import arm_table
from multiberts.stats.compare.comparison_spec import ComparisonSpec
from multiberts.stats.compare.prepared_arms import TaskData, prepare_arms
from multiberts.stats.compare.shared import SharedArms
from multiberts.stats.errors import DataError
from multiberts.stats.runs_table import Arm, align, pair
from multiberts.stats.score import Score, as_read, metric_name
from multiberts.stats.settings import ComparisonSettings

# Number of rows on a page without its script.
ROWS_SHOWN = 10
# Largest number of distinct values of a column with a filter.
_MOST_GROUPS = 60
# Signs from never right to always right.
GLYPHS = "○◔◑◕●"


@dataclass(frozen=True)
class ExampleGrid:
    """Scores of every example by every seed of one or two arms, on one evaluation set.

    Attributes:
      evaluation_set, metric: readable names.
      scores: float64 [seeds, examples] of each arm, between 0 (wrong) and 1 (right); the runs of a
        seed are averaged.
      texts: text of each example, or None if the predictions have none.
      groups: further columns with few values, by name, as text.
      intervals: {column: {value: (low, high, level)}}, interval of the difference (of the score if there is
        one arm).
    """

    evaluation_set: str
    metric: str
    ids: Sequence[str]
    arms: Sequence[str]
    seeds: Sequence[Sequence[str]]
    scores: Sequence[NDArray[np.float64]]
    texts: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    intervals: Mapping[str, Mapping[str, tuple[float, float, float]]] = field(default_factory=dict)

    @cached_property
    def means(self) -> NDArray[np.float64]:
        """Returns each arm's mean score of each example [arms, examples]."""
        return np.array([scores.mean(axis=0) for scores in self.scores])

    @cached_property
    def disagreement(self) -> NDArray[np.float64]:
        """Returns the disagreement between seeds of an arm on each example, averaged over arms [examples].

        It is the mean absolute difference of two seeds; for right and wrong, the probability that they
        differ.
        """
        total = np.zeros(len(self.ids))
        for scores in self.scores:
            count = len(scores)
            if count > 1:
                ranked = np.sort(scores, axis=0)
                weights = 2 * np.arange(count) - count + 1
                total += 2 * (weights @ ranked) / (count * (count - 1))
        return total / len(self.scores)

    @property
    def has_fractions(self) -> bool:
        """Returns whether any score is neither 0 nor 1."""
        return any(((scores > 0) & (scores < 1)).any() for scores in self.scores)

    @property
    def share_in_dispute(self) -> list[float]:
        return [float((scores != scores[0]).any(axis=0).mean()) for scores in self.scores]

    @property
    def num_decided(self) -> int:
        """Returns the number of examples with equal scores for all seeds of all arms."""
        every = np.concatenate(list(self.scores))
        return int((every == every[0]).all(axis=0).sum())

    def first_rows(self) -> list[dict[str, Any]]:
        """Returns the rows shown without a script, largest disagreement first."""
        assert self.texts is not None
        order = np.argsort(-self.disagreement, kind="stable")[:ROWS_SHOWN]
        return [
            {
                "text": self.texts[row],
                "label": self.labels[row] if self.labels else "",
                "marks": [marks(scores[:, row]) for scores in self.scores],
                "means": [100 * float(mean) for mean in self.means[:, row]],
            }
            for row in order.tolist()
        ]

    @cached_property
    def packed(self) -> str:
        """Returns the grid for the page's script: JSON, deflated, in base64."""
        columns = {
            "ids": list(self.ids), "texts": self.texts, "labels": self.labels,
            "groups": dict(self.groups), "arms": list(self.arms), "intervals": dict(self.intervals),
            "seeds": [list(names) for names in self.seeds],
            "scores": [_bytes(np.rint(255 * scores)) for scores in self.scores],
            "disagreement": _bytes(np.rint(255 * self.disagreement)),
        }  # fmt: skip
        text = json.dumps(columns, ensure_ascii=False, separators=(",", ":"))
        return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def marks(scores: NDArray[np.float64]) -> str:
    """Returns one sign per seed, from an empty circle (wrong) to a full one (right).

    Examples:
      >>> marks(np.array([0.0, 1.0, 0.5, 0.2]))
      '○●◑◔'
    """
    # Use the first and the last sign for exactly 0 and 1 only.
    glyphs = np.where(scores <= 0, 0, np.where(scores >= 1, 4, np.clip(np.rint(4 * scores), 1, 3)))
    return "".join(GLYPHS[glyph] for glyph in glyphs.astype(int))


def example_grid(
    prediction_sets: Sequence[PredictionSet],
    names: Sequence[str],
    compared: ComparisonSpec,
    shared: SharedArms | None = None,
) -> ExampleGrid | None:
    """Makes the grid of one evaluation set.

    Args:
      prediction_sets: prediction set of one arm, or those of base and experiment.
      compared: comparison of the prediction sets; a paired design keeps their common seeds.
      shared: cache of arms, shared with the comparisons of these prediction sets.

    Returns:
      The grid; None if no metric gives example scores between 0 and 1, the arms have different examples,
      there is one score per run, or predictions are missing.
    """
    measure = _measure_of_examples(prediction_sets[0])
    if measure is None:
        return None
    measured = [predictions.arm(measure, shared) for predictions in prediction_sets]
    arms = [arm for arm, _ in measured]
    score = Score.of(as_read(measured[0][1], arms))
    no_cells = any(arm.observed is not None or arm.num_examples == 1 for arm in arms)
    if no_cells or not score.more_is_better:  # 1 would be shown as right
        return None
    if len(arms) == 2:
        if set(_names(arms[0])) != set(_names(arms[1])):
            return None
        arms = list(align(*arms))
        arms = list(pair(*arms)) if compared.settings.design == "paired" else arms
    tables = [np.concatenate(list(arm_table(arm, measured[0][1]).blocks()), axis=1) for arm in arms]
    if any(table.min() < 0 or table.max() > 1 for table in tables):
        return None
    task = task_of(*prediction_sets, measure=measure)
    columns = {name: values.tolist() for name, values in arms[0].of_examples.items()}
    labels = columns.pop("label", None)
    groups = _groups_of(columns)
    kinds = groups if labels is None else groups | {"label": list(map(_as_text, labels))}
    return ExampleGrid(
        prediction_sets[0].set_name,
        metric_name(measure),
        _names(arms[0]),
        names,
        [[str(seed) for seed in arm.seeds] for arm in arms],
        tables,
        _texts_of(columns),
        kinds.get("label"),
        groups,
        # A borrowed spread does not apply to slices.
        {} if compared.prior[1] else _intervals(task, compared.settings, arms[0], kinds, shared),
    )


def _intervals(
    task: TaskData,
    settings: ComparisonSettings,
    arm: Arm,
    kinds: Mapping[str, Sequence[str]],
    shared: SharedArms | None,
) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Returns the intervals of slices by each column; see `ExampleGrid.intervals`."""
    intervals: dict[str, dict[str, tuple[float, float, float]]] = {}
    try:
        spec = ComparisonSpec.of(prepare_arms(task, settings, shared), settings, shared=shared)
    except DataError:
        return intervals
    for name, texts in kinds.items():
        by = texts if arm.example_ids is None else dict(zip(arm.example_ids, texts, strict=True))
        try:
            slices = slices_of(spec, None, by).slices
        except DataError:  # too many kinds of examples: the page says "no interval"
            continue
        intervals[name] = {
            each.name: (each.ci.low, each.ci.high, each.ci.level) for each in slices if each.ci
        }
    return intervals


def _names(arm: Arm) -> list[str]:
    """Returns the example ids as text, or their numbers if there are no ids."""
    if arm.example_ids is None:
        return [str(number) for number in range(arm.predictions.shape[1])]
    return [str(name) for name in arm.example_ids.tolist()]


def _measure_of_examples(predictions: PredictionSet) -> str | None:
    """Returns the first metric that is a mean of example scores, or accuracy."""
    measures = [name for name in predictions.measures if name in METRICS]
    for name in measures:
        if Score.of(name).is_mean and Score.of(name).more_is_better:
            return name
    sizes = getattr(predictions.data, "sizes", {})
    has_classes = sizes.get("class", 0) > 1 and any(
        METRICS[name].uses != "text" for name in measures
    )
    return "accuracy" if has_classes else None


def _texts_of(columns: Mapping[str, list]) -> list[str] | None:
    """Returns the joined texts of each example, or None without texts."""
    parts = [values for values in columns.values() if _is_text(values)]
    return [" | ".join(row) for row in zip(*parts, strict=True)] if parts else None


def _is_text(values: list) -> bool:
    """Returns whether a column holds mostly distinct texts of several words."""
    if not all(isinstance(value, str) for value in values):
        return False
    return 2 * len(set(values)) > len(values) and any(" " in value for value in values)


def _groups_of(columns: Mapping[str, list]) -> dict[str, list[str]]:
    """Returns the columns with few values, as text."""
    groups = {}
    for name, values in columns.items():
        texts = [_as_text(value) for value in values]
        if not _is_text(values) and 1 < len(set(texts)) <= _MOST_GROUPS:
            groups[name.replace("_", " ")] = texts
    return groups


def _as_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return " / ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _bytes(values: NDArray[np.float64]) -> str:
    return base64.b64encode(values.astype(np.uint8).tobytes()).decode()
