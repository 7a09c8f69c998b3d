"""Finds the columns of a table of predictions: by the names that were given, or by usual ones."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from multiberts.runs.errors import UserError
from multiberts.runs.parameters import shortened

if TYPE_CHECKING:
    import pandas

# By role, names of columns in lower case; the first that a table has is taken.
USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "arm": ("arm", "procedure", "model", "system", "condition", "method", "group"),
    "seed": ("pretrain_seed", "seed", "model_seed", "random_seed"),
    "run": ("finetune_seed", "run", "epoch", "repeat"),
    "example": (
        "example_id", "example", "doc_id", "sample_id", "question_id", "instance_id", "guid", "id",
        "idx", "index",
    ),
    "prediction": ("prediction", "predictions", "predicted", "pred", "y_pred", "answer", "output"),
    "score": (
        "score", "correct", "is_correct", "acc", "accuracy", "exact_match", "em", "f1", "right",
    ),
    "label": (
        "label", "labels", "target", "gold", "reference", "references", "y_true", "truth",
    ),
    "cluster": ("cluster", "template", "passage_id"),
}  # fmt: skip
# What a reader recognises an example by, in the order of the columns of a pair.
TEXT_NAMES = (
    "text", "sentence", "sentence1", "sentence2", "question", "premise", "hypothesis", "context",
    "prompt", "input",
)  # fmt: skip

# One column per run: its arm, if any, then a number.
_RUN_COLUMN = re.compile(r"(?P<arm>.*?)[ _.\-/]*(?:seed|run)?[ _.\-/]*(?P<seed>\d+)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class ColumnNames:
    """Names of columns by role; None: found by its usual name, if the table has it.

    Attributes:
      arm: of the column that names the model, method or condition of each row.
      seed: of the column of seeds.
      run: of the column that tells several runs of one seed apart.
      example: of the column of example ids.
      prediction: of the column of predictions.
      score: of the column of each example's own score, such as 1 where the answer is right.
      label: of the column of labels.
      cluster: of a column of groups of examples that belong together.
    """

    arm: str | None = None
    seed: str | None = None
    run: str | None = None
    example: str | None = None
    prediction: str | None = None
    score: str | None = None
    label: str | None = None
    cluster: str | None = None


ROLES = tuple(field.name for field in fields(ColumnNames))


def standard_frame(
    frame: pandas.DataFrame, names: ColumnNames, what: str, seed: int | None = None
) -> pandas.DataFrame:
    """Returns a table with the columns of `ColumnNames` under those names, one row per prediction.

    Args:
      frame: long, one row per run and example; or wide, one row per example and one column per run,
        whose names end in the seed's number (`seed_0`, `base_seed_1`).
      names: of columns.
      what: names the table in error messages.
      seed: of all rows, where no column holds it (one file per seed).

    Returns:
      Columns seed, example, prediction or score, and arm, run, label, cluster and texts where the
      table has them. Without a column of examples, rows are numbered per run.

    Raises:
      UserError: a column that was named does not exist, or one that is needed is not found; the
        line lists the columns and the flags that name them.

    Example:
      >>> import pandas
      >>> wide = pandas.DataFrame({"id": ["a", "b"], "label": [1, 0], "seed_0": [1, 1], "seed_1": [1, 0]})
      >>> standard_frame(wide, ColumnNames(), "file")["prediction"].tolist()
      [1, 1, 1, 0]
    """
    found = _found(frame, names, what)
    _refuse_lists(frame, found.values(), what)
    if "seed" not in found and seed is None and "prediction" not in found:
        wide = _from_wide(frame, found, what)
        if wide is not None:
            return wide
    if {"prediction", "score"} <= {*found}:
        # A score alongside predictions is another program's, and all there is where labels lack.
        by_score = names.score is not None or "label" not in found
        found.pop("score" if names.prediction is not None or not by_score else "prediction")
    texts = [
        name
        for name in frame.columns
        if str(name).lower() in TEXT_NAMES and name not in found.values()
    ]
    chosen = frame[[*found.values(), *texts]].rename(columns={v: k for k, v in found.items()})
    if "seed" not in chosen:
        if seed is None:
            line = _lacking(frame, what, "seeds", "seed")
            raise UserError(f"{line}, or name each seed's file by it (seed_0.csv)")
        chosen["seed"] = seed
    if "prediction" not in chosen and "score" not in chosen:
        raise _lacking(frame, what, "predictions or scores", "prediction", "score")
    if "example" not in chosen:
        keys = [name for name in ("arm", "seed", "run") if name in chosen]
        chosen["example"] = chosen.groupby(keys, sort=False).cumcount()
    return chosen


def default_metric(predictions: NDArray | None) -> str:
    """Returns the metric of scores (None), or of predictions that are classes.

    Raises:
      UserError: the predictions are fractions.

    Example:
      >>> import numpy as np
      >>> default_metric(None), default_metric(np.array([1.0, 0.0]))
      ('mean', 'accuracy')
    """
    if predictions is None:
        return "mean"
    if predictions.dtype.kind == "f" and np.any(predictions[~np.isnan(predictions)] % 1):
        raise UserError(
            "the predictions are fractions, which accuracy does not take; name a metric with "
            "--metric, or give each example's score with --score"
        )
    return "accuracy"


def _found(frame: pandas.DataFrame, names: ColumnNames, what: str) -> dict[str, str]:
    """Returns the column of each role."""
    lower = {str(column).lower(): column for column in reversed(frame.columns)}
    found: dict[str, str] = {}
    for role, given in asdict(names).items():
        if given is not None:
            if given not in frame.columns:
                raise UserError(
                    f"{what}: found no column {given!r} for --{role}, only {_listed(frame)}; name one "
                    "of these"
                )
            found[role] = given
    for role, usual in USUAL_NAMES.items():
        if role not in found:
            column = next((lower[name] for name in usual if name in lower), None)
            if column is not None and column not in found.values():
                found[role] = column
    return found


def _refuse_lists(frame: pandas.DataFrame, columns: Iterable[str], what: str) -> None:
    """Refuses columns whose cells are neither texts nor numbers."""
    for column in columns:
        if frame[column].dtype != object:
            continue
        for row, cell in enumerate(frame[column], 1):
            if not (cell is None or isinstance(cell, (str, bool, int, float, np.generic))):
                raise UserError(
                    f"{what}: found {shortened(cell)} in column {column!r}, row {row}, expected one text or "
                    "number; write one value per row"
                )


def _from_wide(
    frame: pandas.DataFrame, found: dict[str, str], what: str
) -> pandas.DataFrame | None:
    """Returns a wide table as a long one, or None where it is not wide."""
    import pandas

    columns = [
        (column, match)
        for column in frame.columns
        if column not in found.values()
        and str(column).lower() not in TEXT_NAMES
        and (match := _RUN_COLUMN.fullmatch(str(column)))
    ]
    if not columns:
        return None
    if len({bool(match["arm"]) for _, match in columns}) > 1:
        raise UserError(
            f"{what}: found columns of runs with and without the name of an arm among {_listed(frame)}; "
            "the first line must name the columns, such as seed, id, prediction and label, or base_0, "
            "base_1, new_0 and new_1"
        )
    value = "prediction" if "label" in found else "score"
    _refuse_lists(frame, [column for column, _ in columns], what)
    kept = {
        role: frame[name] for role, name in found.items() if role in ("example", "label", "cluster")
    }
    kept |= {name: frame[name] for name in frame.columns if str(name).lower() in TEXT_NAMES}
    example = kept.pop("example", pandas.Series(range(len(frame))))
    parts = []
    for column, match in columns:
        run = {"example": example, **kept, "seed": int(match["seed"]), value: frame[column]}
        if match["arm"]:
            run["arm"] = match["arm"]
        parts.append(pandas.DataFrame(run))
    return pandas.concat(parts, ignore_index=True)


def _lacking(frame: pandas.DataFrame, what: str, role: str, *flags: str) -> UserError:
    options = " or ".join(f"--{flag}=COLUMN" for flag in flags)
    return UserError(
        f"{what}: found no column of {role} among {_listed(frame)}; name it with {options}"
    )


def _listed(frame: pandas.DataFrame) -> str:
    names = [repr(str(column)) for column in frame.columns]
    return ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "")
