"""Checks that the arms of a comparison are of one kind, and notes what readers must know of them.

Every comparison passes here, from files or from arrays (`stats.compare.question.prepare_arms`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.metrics.answer_checks import Answers, check_answers
from multiberts.evaluate.metrics.register import METRICS
from multiberts.evaluate.readers.columns import FACT_NAMES, POSITION, UNNAMED
from multiberts.runs.errors import counted
from multiberts.stats.errors import DataError
from multiberts.stats.metrics import MetricLike
from multiberts.stats.runs_table import Arm

# With fewer examples two good models may well agree on all.
_FEWEST_EXAMPLES = 20


def check_sources(sources: Mapping[str, Any], design: str) -> None:
    """Refuses labelled arrays that cannot be arms of one comparison.

    Args:
      sources: by arm, labelled arrays; of files, `attrs` have what was read as what.
    """
    if len(sources) < 2:
        return
    kinds = {
        name: "prediction" if "prediction" in data else "score"
        for name, data in sources.items()
        if hasattr(data, "data_vars")
    }
    if len({*kinds.values()}) > 1:
        found = " and ".join(
            f"{kind}s of {name}{_column(sources[name], kind)}" for name, kind in kinds.items()
        )
        raise DataError(
            f"found {found}, expected the same of all; give predictions and labels of both "
            "(--prediction, --label), or each example's own score of both (--score)"
        )
    numbers = {name: seeds_of(data) for name, data in sources.items()}
    unnamed: dict[str, list[str]] = {}
    for name, data in sources.items():
        if (by := seeds_by(data)) in UNNAMED:
            unnamed.setdefault(by, []).append(name)
    if not all(numbers.values()):
        return  # refused later
    if design == "paired" and unnamed and len({*map(frozenset, numbers.values())}) > 1:
        found = ", ".join(f"{counted(len(own), 'seed')} of {name}" for name, own in numbers.items())
        known = " and ".join(
            f"those of {' and '.join(names)} are known only by the {by}"
            for by, names in unnamed.items()
        )
        raise DataError(
            f"found {found}, and {known}, so that pairs may be of different seeds; "
            "name the seeds (a column or coordinate, files seed_0.csv), or use design='unpaired'"
        )


def seeds_of(data: Any) -> list:
    """Returns the distinct seeds of labelled arrays, in their order."""
    if "pretrain_seed" not in data.coords:
        return []
    return list(dict.fromkeys(data["pretrain_seed"].to_numpy().ravel().tolist()))


def seeds_by(data: Any) -> str:
    """Returns what names the seeds: a column, or one of `UNNAMED`; "" where it is not known."""
    return str(data.attrs.get("columns", {}).get("seed", ""))


def _column(data: Any, role: str) -> str:
    name = data.attrs.get("columns", {}).get(role)
    return f" ({name!r})" if name else ""


def check_aligned(sources: Mapping[str, Any], arms: Sequence[Arm]) -> None:
    """Refuses arms that give one id to different examples.

    Args:
      sources: as in `check_sources`; `attrs["identifying"]` of files has coordinates that both arms
        must have alike, such as the harness's hash of the document.
      arms: of the sources, with their examples in one order.
    """
    import pandas

    datas = list(sources.values())
    common = [
        name
        for name in datas[0].attrs.get("identifying", ())
        if name in datas[1].attrs.get("identifying", ())
    ]
    for name in common:
        own, other = (
            values_in_order(data, name, arm) for data, arm in zip(datas, arms, strict=True)
        )
        empty = pandas.isna(own) & pandas.isna(other)  # in both; nan is not equal to itself
        different = np.flatnonzero((own != other) & ~empty)
        # Texts that differ as a set, such as prompts, do not say which examples belong together.
        is_fact = name in FACT_NAMES or {*own.tolist()} == {*other.tolist()}
        if different.size and is_fact:
            place = int(different[0])
            ids = arms[0].example_ids
            shown = place if ids is None else ids.tolist()[place]
            raise DataError(
                f"base and experiment have different {name!r} for {counted(different.size, 'example')} of "
                f"one id, first {shown!r}: {own[place]!r} and {other[place]!r}; compare runs on the same "
                "data, or name the column of ids with --example"
            )


def values_in_order(data: Any, name: str, arm: Arm) -> NDArray:
    """Returns a coordinate of examples in the order of an arm's, whose ids are those of the data."""
    values = np.asarray(data[name].to_numpy())
    if arm.example_ids is None or "example_id" not in data.coords:
        return values
    place = {example: row for row, example in enumerate(data["example_id"].to_numpy().tolist())}
    return np.asarray(values[[place[example] for example in arm.example_ids.tolist()]])


def check_scales(arms: Sequence[Arm], metric: MetricLike) -> None:
    """Refuses scores from 0 to 1 beside scores from 0 to 100."""
    if metric.uses_labels or any(arm.predictions.dtype.kind not in "biuf" for arm in arms):
        return
    scales: dict[str, list[str]] = {"0 to 1": [], "0 to 100": []}
    for name, arm in zip(("base", "experiment"), arms, strict=False):
        for seed, values in zip(arm.run_seeds, arm.predictions, strict=True):
            low, high = float(values.min()), float(values.max())
            if low >= 0 and 0.5 < high <= 1:
                scales["0 to 1"].append(f"{name}, seed {seed}")
            if low >= 0 and 50 < high <= 100:
                scales["0 to 100"].append(f"{name}, seed {seed}")
    runs = sum(len(arm.run_seeds) for arm in arms)
    if all(scales.values()) and sum(map(len, scales.values())) == runs:
        found = " and ".join(f"from {scale} ({names[0]})" for scale, names in scales.items())
        raise DataError(f"found scores {found}, expected one scale; divide per cent by 100")


def answers_of(arms: Sequence[Arm], metric: MetricLike) -> list[Answers]:
    """Returns the answers of arms for `check_answers`; none where it knows nothing of the metric."""
    if metric is not METRICS.get(metric.name) or any(arm.predictions.ndim != 2 for arm in arms):
        return []
    roles = ("base", "experiment") if len(arms) > 1 else ("",)
    return [
        Answers(arm.predictions, role, arm.observed, arm.seed_weights.mean(axis=1), arm.num_units)
        for role, arm in zip(roles, arms, strict=False)
    ]


def check_labels(arms: Sequence[Arm], metric: MetricLike) -> list[list[str]]:
    """Looks at the answers of each arm against the labels; see `check_answers`."""
    answers = answers_of(arms, metric)
    try:
        return (
            check_answers(metric.name, arms[0].labels, answers) if answers else [[] for _ in arms]
        )
    except ValueError as error:
        raise DataError(str(error)) from error


def check_named(values: NDArray, what: str, cure: str) -> None:
    """Refuses examples without a value, whose cell is empty."""
    import pandas

    missing = int(pandas.isna(values).sum())
    if values.dtype.kind in "OU":
        missing += sum(isinstance(value, str) and not value.strip() for value in values.tolist())
    if missing:
        raise DataError(
            f"found {counted(missing, 'example')} of {len(values)} without {what}; {cure}"
        )


def notes_of_clusters(arm: Arm) -> list[str]:
    """Notes a cluster that holds a tenth of the examples or more."""
    sizes = arm.cluster_sizes
    if sizes is None or sizes.max() < 0.1 * sizes.sum():
        return []
    called = f" ({arm.cluster_name})" if arm.cluster_name else ""
    return [
        f"The largest of {counted(len(sizes), 'cluster')}{called} holds "
        f"{100 * sizes.max() / sizes.sum():.0f} % of the examples, so that the result rests on few clusters; "
        "its interval takes their sizes into account."
    ]


def notes_of(data: Any, arm: Arm, design: str) -> list[str]:
    """Returns what a reader must know of an arm; `{arm}` stands for its name."""
    found = []
    columns = data.attrs.get("columns", {})
    if columns.get("seed") in UNNAMED and "files" in data.attrs and design == "paired":
        found.append(
            f"Seeds of {{arm}} are paired by the {columns['seed']}: nothing else names them."
        )
    if columns.get("example") == POSITION and "files" in data.attrs:
        found.append(
            "Examples of {arm} are known by the order of rows: no column has one value for each example "
            "of every run; name one with --example if there is."
        )
    if data.attrs.get("one_checkpoint"):
        found.append(
            "The seeds of {arm} are fine-tuning seeds of one checkpoint: the result is about this "
            "checkpoint only, and not about pre-training again."
        )
    if arm.observed is not None:
        missing = int((~arm.observed).sum())
        found.append(
            f"{missing:,} of {arm.observed.size:,} predictions of {{arm}} are missing and left out, as if "
            "they were missing at random."
        )
    return [*found, *_copies(arm)]


def _is_constant(values: np.ndarray) -> bool:
    if values.dtype.kind == "O":  # perhaps tuples, which NumPy would compare item by item
        return len({*values.ravel().tolist()}) == 1
    return bool((values == values.flat[0]).all())


def _copies(arm: Arm) -> list[str]:
    """Notes different seeds whose runs have the same predictions throughout."""
    if arm.num_examples < _FEWEST_EXAMPLES:
        return []
    seeds: dict[Any, list] = {}
    for seed, values in zip(arm.run_seeds, arm.predictions, strict=True):
        if _is_constant(values) or (
            values.shape == arm.labels.shape and (values == arm.labels).all()
        ):
            continue
        key = tuple(values.tolist()) if values.dtype.kind == "O" else values.tobytes()
        own = seeds.setdefault(key, [])
        if seed not in own:
            own.append(seed)
    return [
        f"Seeds {', '.join(map(str, alike[:-1]))} and {alike[-1]} of {{arm}} have the same predictions on "
        f"all {arm.num_examples} examples; if they are copies of one run, keep one."
        for alike in seeds.values()
        if len(alike) > 1
    ]
