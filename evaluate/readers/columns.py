"""Finds the columns of a table of predictions: by the names that were given, or by usual ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.readers.rows import (
    BY_COLUMNS,
    BY_MODEL,
    BY_NAME,
    BY_TIME,
    FACT_NAMES,
    NUMBERED,
    POSITION,
    TEXT_NAMES,
    ReadAs,
    Rows,
)
from multiberts.runs import console
from multiberts.runs.errors import UserError, counted
from multiberts.runs.parameters import shortened

if TYPE_CHECKING:
    import pandas

# By role, names of columns in lower case; the first that a table has is taken.
USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "arm": ("arm", "procedure", "model", "system", "condition", "method", "group"),
    "seed": (
        "pretrain_seed", "seed", "model_seed", "random_seed", "training_seed", "rng_seed", "init_seed",
        "seed_id", "trial", "replicate",
    ),
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
# Names of runs that are seeds where nothing else is.
_RUNS = ("run", "repeat")
# Names of scores that other programs call the label.
_SCORE_OR_LABEL = ("correct", "right", "acc")
# Words before a number that is rarely a seed.
_NO_SEEDS = re.compile(
    r"(steps?|epochs?|folds?|layers?|checkpoint|ckpt|iter(ation)?s?|version|v|part|shard|split|gpt|llama)"
    r"[ _.\-=]*\d+",
    re.IGNORECASE,
)

# An index without a name, as pandas reads it back.
_INDEX = re.compile(r"Unnamed: \d+(\.\d+)?")
# One column per run: its arm, if any, then a number.
_RUN_COLUMN = re.compile(r"(?P<arm>.*?)[ _.\-/]*(?:seed|run)?[ _.\-/]*(?P<seed>\d+)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class RowNames:
    """Names of columns by role; None: found by its usual name, if the table has it.

    Attributes:
      arm: of the column that names the model, method or condition of each row.
      seed: of the column of seeds.
      run: of the column that distinguishes several runs of one seed.
      example: of the column of example ids.
      prediction: of the column of predictions.
      score: of the column of each example's own score, such as 1 where the answer is right.
      label: of the column of labels.
    """

    arm: str | None = None
    seed: str | None = None
    run: str | None = None
    example: str | None = None
    prediction: str | None = None
    score: str | None = None
    label: str | None = None


@dataclass(frozen=True, kw_only=True)
class ColumnNames(RowNames):
    """Names of columns by role, with that of a column of clusters.

    Attributes:
      cluster: of a column of groups of examples that belong together.
    """

    cluster: str | None = None


@dataclass(frozen=True, kw_only=True)
class SliceNames(ColumnNames):
    """Names of columns, with that of a column of slices.

    Attributes:
      by: column whose values split the examples into slices, which are compared one by one: a category,
        a language, `label`, or `length` (the words of the texts); numbers are cut at their quartiles.
    """

    by: str | None = None


ROLES = tuple(field.name for field in fields(ColumnNames))


def standard_rows(
    frame: pandas.DataFrame, names: ColumnNames, what: str, seed: int | None = None
) -> Rows:
    """Finds the role of every column of a table.

    Args:
      frame: long, one row per run and example; or wide, one row per example and one column per run,
        whose names end in the seed's number (`seed_0`, `base_seed_1`).
      names: of columns, where they are not the usual ones.
      what: names the table in error messages.
      seed: of all rows, where no column holds it (one file per seed).

    Returns:
      Rows with `seed`, `prediction` or `score` (or both, see `settled`), and `arm`, `run`, `example`,
      `label`, `cluster` and `by` where the table has them.

    Example:
      >>> import pandas
      >>> wide = pandas.DataFrame({"id": ["a", "b"], "label": [1, 0], "seed_0": [1, 1], "seed_1": [1, 0]})
      >>> standard_rows(wide, ColumnNames(), "file").roles["prediction"].tolist()
      [1, 1, 1, 0]
    """
    import pandas

    columns = _found(frame, names, what)
    if seed is None and "seed" not in columns and columns.get("run", "").lower() in _RUNS:
        columns["seed"] = columns.pop("run")
    frame = frame.loc[:, ~frame.columns.duplicated()].reset_index(drop=True)
    frame = frame.drop(columns=[name for name in frame if _is_index(frame, name, columns)])
    by = names.by if isinstance(names, SliceNames) else None
    if by is not None and by not in frame.columns:
        if by not in ("label", "length"):
            raise UserError(
                f"{what}: found no column {by!r} for --by, only {_listed(frame)}; name one of these, label "
                "or length"
            )
        by = None
    _refuse_lists(frame, columns.values(), what)
    if "seed" not in columns and seed is None and "prediction" not in columns:
        wide = _from_wide(frame, columns, what, by)
        if wide is not None:
            return wide
    roles = pandas.DataFrame({role: frame[name] for role, name in columns.items()}, copy=False)
    if "seed" not in columns:
        if seed is None:
            line = _lacking(frame, what, "seeds", "seed")
            raise UserError(
                f"{line}, or give a folder of files with one seed each, named by it (seed_0.csv)"
            )
        roles["seed"] = seed
    if "prediction" not in columns and "score" not in columns:
        raise _lacking(frame, what, "predictions or scores", "prediction", "score")
    for role in {"arm", "seed", "run", "example"} & {*roles.columns}:
        roles[role] = _stripped(roles[role])
    read = {"seed": BY_NAME, **columns}
    if by is not None:
        roles["by"], read["by"] = frame[by], by
    if columns.get("run", "").lower() == "epoch" and names.run is None:
        _warn_of_epochs(roles, what)
    further = frame[[name for name in frame if name not in columns.values()]]
    further.columns = further.columns.map(str)
    return _with_possible_ids(Rows(roles, further, ReadAs(columns=read)))


def _stripped(column: pandas.Series) -> pandas.Series:
    """Returns names without spaces around them: "a1 " is the example "a1"."""
    if column.dtype == "str":
        return column.str.strip()
    if column.dtype.kind not in "OT":
        return column
    return column.map(lambda name: name.strip() if isinstance(name, str) else name)


def _with_possible_ids(rows: Rows) -> Rows:
    """Keeps of the further columns texts and facts, and those that could be ids."""
    further = rows.further
    if further.empty:
        return rows
    runs, texts = rows.runs, [*filter(_is_text, further)]
    ids = [name for name in further if name not in texts and _tells_apart(runs, further[name])]
    kept = [name for name in further if name in texts or name in ids]
    return replace(rows, further=further[kept], possible_ids=ids)


def _is_index(frame: pandas.DataFrame, name: object, columns: Mapping[str, str]) -> bool:
    """Returns whether a column is the index that `to_csv` writes, and not the only ids there are."""
    if not _INDEX.fullmatch(str(name)) or name in columns.values():
        return False
    position = np.arange(len(frame))
    return "example" in columns or frame[name].isna().all() or _counts(frame[name], position)


def _is_text(name: object) -> bool:
    """Returns whether a column without a role holds texts or facts of examples."""
    return str(name).lower() in (*TEXT_NAMES, *FACT_NAMES)


def _tells_apart(runs: NDArray, column: pandas.Series) -> bool:
    """Returns whether a column could be of ids: one value for each example of every run."""
    import pandas

    if column.dtype.kind not in "iuOT" or column.isna().any():
        return False
    try:
        codes, values = pandas.factorize(column)
    except TypeError:  # lists
        return False
    return not pandas.Series(runs * len(values) + codes).duplicated().any()


def _warn_of_epochs(roles: pandas.DataFrame, what: str) -> None:
    epochs = roles["run"].unique().tolist()
    if len(epochs) > 1:
        console.warn(
            f"{what}: the {len(epochs)} epochs of each seed ({', '.join(map(str, epochs[:5]))}) are "
            "averaged, as if they were runs; keep the rows of one epoch if they are not"
        )


def settled(rows: Rows, names: ColumnNames, what: str) -> Rows:
    """Decides, by all rows of a task, what a table's names leave open: scores, labels and ids.

    A column `correct`, `right` or `acc` beside predictions is the score where it is 0 or 1 and differs
    between runs, and the label where it stays the same while predictions differ. Without a column of
    a usual name, the ids are the first column with one value for every example of a run and the same
    values in all runs; without such a column rows are numbered per run.

    Args:
      rows: as `standard_rows` returns them, of one file or several.
      names: of columns, where they are not the usual ones.
      what: names the table in error messages.

    Returns:
      The rows, with the role `example` and one of `prediction` and `score`; what was read as what has the
      columns that identify examples, and those left out.
    """
    if {"prediction", "score"} <= {*rows.roles}:
        rows = _value_of(rows, names, what)
    elif "score" in rows.roles and names.score is None:
        _refuse_classes(rows, what)
    return _with_ids(rows, names, what)


def _value_of(rows: Rows, names: ColumnNames, what: str) -> Rows:
    """Keeps the predictions or the scores of a table that has both."""
    if names.prediction is not None and names.score is not None:
        raise UserError(
            f"{what}: found --prediction={names.prediction} and --score={names.score}, expected one of "
            "them; leave the other out"
        )
    columns = dict(rows.read.columns)
    kept = "score" if names.score is not None else "prediction"
    if names.prediction is None and names.score is None and "label" not in rows.roles:
        # Scores alongside predictions are another program's, and all there is where labels lack.
        kept = "score"
        if columns["score"].lower() in _SCORE_OR_LABEL and not _is_score(rows, what):
            columns["label"] = columns.pop("score")
            return replace(
                rows,
                roles=rows.roles.rename(columns={"score": "label"}),
                read=replace(rows.read, columns=columns),
            )
    lost = "prediction" if kept == "score" else "score"
    read = replace(rows.read, unused=[columns.pop(lost)], columns=columns)
    return replace(rows, roles=rows.roles.drop(columns=lost), read=read)


def _is_score(rows: Rows, what: str) -> bool:
    """Returns whether a column that may be either holds scores, and not labels."""
    roles = rows.roles
    marks, predictions = roles["score"], roles["prediction"]
    is_mark = set(marks.dropna().unique().tolist()) <= {0, 1}
    if is_mark and not set(predictions.dropna().unique().tolist()) & {0, 1}:
        return True  # of texts or other classes: a label would be one of them
    if "example" in roles:
        keys = [name for name in ("arm", "example") if name in roles]
        groups = roles.groupby(keys, sort=False, dropna=False)
        varies = groups[["score", "prediction"]].nunique() > 1
        if is_mark and varies["score"].any():
            return True
        if varies["prediction"].any() and not varies["score"].any():
            return False
    score, prediction = rows.read.columns["score"], rows.read.columns["prediction"]
    raise UserError(
        f"{what}: the column {score!r} beside the predictions {prediction!r} may hold scores or labels; "
        f"say which with --score={score} or --label={score}"
    )


def _refuse_classes(rows: Rows, what: str) -> None:
    """Refuses a column named for right answers that holds something else, such as the gold class."""
    values, name = rows.roles["score"].dropna(), rows.read.columns["score"]
    is_share = values.dtype.kind in "biuf" and bool(values.between(0, 1).all())
    if name.lower() in _SCORE_OR_LABEL and not is_share:
        examples = ", ".join(repr(value) for value in values.unique().tolist()[:5])
        raise UserError(
            f"{what}: the column {name!r} holds {examples}, expected 0 and 1, the score of each "
            f"example; if these are labels, name the predictions, too (--label={name} "
            f"--prediction=COLUMN), and if they are scores give --score={name}"
        )


def _with_ids(rows: Rows, names: ColumnNames, what: str) -> Rows:
    """Finds ids where the table names none, and which columns must agree with another table's."""
    roles, further, columns = rows.roles, rows.further, dict(rows.read.columns)
    texts = [*filter(_is_text, further)]
    if "example" in roles and not {*rows.possible_ids, *texts}:
        return rows
    runs = rows.runs
    position = roles.groupby(runs, sort=False).cumcount().to_numpy()
    candidates = [
        name
        for name in further
        if (name in rows.possible_ids or name in texts)
        and name.lower() != "target"
        # Some rows may be missing, but not most.
        and further[name].nunique() <= 1.1 * (position.max() + 1)
        and _tells_apart(runs, further[name])
        and not _counts(further[name], position)
    ]
    if "example" in roles:
        first, own = roles["example"], columns.get("example", POSITION)
        is_number = _counts(first, position)
        rivals = [name for name in candidates if further[name].dtype.kind in "OT" or is_number]
        rivals = [] if names.example is not None else rivals
    else:
        first, rivals = (further[candidates[0]] if candidates else None), candidates[1:]
        columns["example"] = own = candidates[0] if candidates else POSITION
    for name in rivals:
        pairs = further[[name]].assign(**{"": first}).drop_duplicates()
        # Two examples may have one text, but a text has one example where ids are right.
        if pairs[""].duplicated().any() and pairs[name].duplicated().any():
            raise UserError(
                f"{what}: the columns {own!r} and {name!r} both look like ids, but pair the "
                f"examples of different runs differently; name the right one with --example={own} or "
                f"--example={name}"
            )
    if "example" not in roles:
        roles = roles.assign(example=position if first is None else first)
    is_new = first is not None and "example" not in rows.roles
    told_apart = [
        name
        for place, name in enumerate(candidates)
        if name in texts or (name not in roles and not (is_new and place == 0))
    ]
    examples = roles["example"].nunique()
    identifying = [  # a rank in each run identifies none
        name
        for name in told_apart
        if len(further[[name]].assign(**{"": roles["example"]}).drop_duplicates()) <= examples
    ]
    for name in [fact for fact in FACT_NAMES if fact in further]:
        values = further[name].groupby(roles["example"]).nunique()
        if values.max() > 1:
            raise UserError(
                f"{what}: found several values of {name!r} for the example {values.idxmax()!r}, expected the "
                "same in all runs; compare runs on the same data, or name the column of ids with --example"
            )
        identifying += [name] * (name not in identifying)
    kept = [name for name in further if name not in rows.possible_ids or name in told_apart]
    read = replace(rows.read, columns=columns, identifying=identifying)
    return replace(rows, roles=roles, further=further[kept], read=read)


def _counts(column: pandas.Series, position: NDArray) -> bool:
    """Returns whether values only count the rows of every run, from 0 or 1."""
    if column.dtype.kind not in "iu":
        return False
    return bool(np.isin(column.to_numpy() - position, (0, 1)).all())


def described(columns: Mapping[str, str]) -> str:
    """Returns which column was read as what.

    Example:
      >>> described({"prediction": "y_pred", "seed": BY_NAME})
      "prediction = 'y_pred', seed = names of files"
    """
    order = (
        "prediction",
        "score",
        "label",
        "example",
        "seed",
        "run",
        "arm",
        "task",
        "cluster",
        "by",
    )
    by = (POSITION, BY_NAME, NUMBERED, BY_COLUMNS, BY_TIME, BY_MODEL)
    return ", ".join(
        f"{role} = {columns[role] if columns[role] in by else repr(columns[role])}"
        for role in order
        if role in columns
    )


def default_metric(predictions: NDArray | None) -> str:
    """Returns the metric of scores (None), or of predictions that are classes.

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
    alike: dict[str, list[str]] = {}
    for column in frame.columns:
        alike.setdefault(str(column).lower(), []).append(str(column))
    found: dict[str, str] = {}
    for role, given in asdict(names).items():
        if given is not None and role != "by":
            if given not in frame.columns:
                raise UserError(
                    f"{what}: found no column {given!r} for --{role}, only {_listed(frame)}; name one "
                    "of these"
                )
            found[role] = given
            _refuse_twice(what, role, [name for name in alike[given.lower()] if name == given])
    for role, usual in USUAL_NAMES.items():
        if role not in found:
            name = next((name for name in usual if name in alike), None)
            if name is not None and alike[name][0] not in found.values():
                _refuse_twice(what, role, alike[name])
                found[role] = alike[name][0]
    return found


def _refuse_twice(what: str, role: str, columns: Sequence[str]) -> None:
    if len(columns) > 1:
        same = len({*columns}) == 1
        raise UserError(
            f"{what}: found {counted(len(columns), 'column')} for the {role}, "
            f"{' and '.join(map(repr, columns))}; "
            + ("rename or remove one" if same else f"name the right one with --{role}=COLUMN")
        )


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
    frame: pandas.DataFrame, roles: Mapping[str, str], what: str, by: str | None
) -> Rows | None:
    """Returns the rows of a wide table, or None where it is not wide."""
    import pandas

    columns = [
        (column, match)
        for column in frame.columns
        if column not in roles.values()
        and not _is_text(column)
        and not _INDEX.fullmatch(str(column))
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
    doubtful = [column for column, _ in columns if _NO_SEEDS.fullmatch(str(column))]
    doubtful = doubtful or [
        column
        for column, match in columns
        if re.fullmatch(r"(?!seed|run)[a-z]+\d+", str(column), re.I)
    ]
    if doubtful:
        warn_of_numbers(what, "columns", doubtful)
    value = "prediction" if "label" in roles else "score"
    _refuse_lists(frame, [column for column, _ in columns], what)
    runs = [column for column, _ in columns]
    # Each column of examples, once for each run.
    row = np.tile(np.arange(len(frame)), len(runs))
    read = {
        "seed": BY_COLUMNS,
        value: f"{runs[0]} ... {runs[-1]}" if len(runs) > 1 else str(runs[0]),
    }
    read |= {role: name for role, name in roles.items() if role in ("example", "label", "cluster")}
    read |= {"by": by} if by is not None else {}
    cells = {
        "seed": np.repeat([int(match["seed"]) for _, match in columns], len(frame)),
        value: pandas.concat([frame[name] for name in runs], ignore_index=True),
    }
    if columns[0][1]["arm"]:
        cells["arm"] = np.repeat([match["arm"] for _, match in columns], len(frame))
    cells |= {
        role: frame[name].take(row).reset_index(drop=True)
        for role, name in read.items()
        if role not in ("seed", value)
    }
    further = frame[[name for name in frame if name not in (*runs, *roles.values())]]
    further.columns = further.columns.map(str)
    rows = Rows(
        pandas.DataFrame(cells), further.take(row).reset_index(drop=True), ReadAs(columns=read)
    )
    return _with_possible_ids(rows)


def warn_of_numbers(what: str, of: str, names: Sequence[object]) -> None:
    console.warn(
        f"{what}: the numbers in the names of the {of} {', '.join(map(str, names[:3]))} are taken for "
        "seeds; if they are something else, write a column of seeds"
    )


def is_doubtful(name: str) -> bool:
    """Returns whether the number at the end of a name is rarely a seed.

    Example:
      >>> is_doubtful("step_100"), is_doubtful("gpt4"), is_doubtful("run_3")
      (True, True, False)
    """
    return _NO_SEEDS.fullmatch(name) is not None


def _lacking(frame: pandas.DataFrame, what: str, role: str, *flags: str) -> UserError:
    options = " or ".join(f"--{flag}=COLUMN" for flag in flags)
    return UserError(
        f"{what}: found no column of {role} among {_listed(frame)}; name it with {options}"
    )


def _listed(frame: pandas.DataFrame) -> str:
    names = [repr(str(column)) for column in frame.columns]
    return ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "")
