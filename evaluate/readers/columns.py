"""Finds the columns of a table of predictions: by the names that were given, or by usual ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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
# Names by which a reader recognises an example, in the order of the columns of a pair.
TEXT_NAMES = (
    "text", "sentence", "sentence1", "sentence2", "question", "premise", "hypothesis", "context",
    "prompt", "input",
)  # fmt: skip

# Names of scores that other programs call the label.
_SCORE_OR_LABEL = ("correct", "right", "acc")
# Facts that harnesses record of an example, the same for every model.
FACT_NAMES = ("doc_hash", "target")
# Marks columns without a role until `settled` has looked for ids among them.
_OTHER = "other: "
# Names of seeds and examples where no column names them.
BY_COLUMNS = "numbers in the names of columns"
POSITION, BY_NAME = "order of rows", "names of files"
NUMBERED = "numbers in the names of files"  # such as run1.csv, without the word "seed"
BY_TIME, BY_MODEL = "order of the logs in time", "models and folders of the logs"
UNNAMED = (POSITION, NUMBERED, BY_TIME)  # seeds that are paired by their order alone
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


def standard_frame(
    frame: pandas.DataFrame, names: ColumnNames, what: str, seed: int | None = None
) -> pandas.DataFrame:
    """Returns a table with the columns of `ColumnNames` under those names, one row per prediction.

    Args:
      frame: long, one row per run and example; or wide, one row per example and one column per run,
        whose names end in the seed's number (`seed_0`, `base_seed_1`).
      what: names the table in error messages.
      seed: of all rows, where no column holds it (one file per seed).

    Returns:
      Columns seed, prediction or score (or both, see `settled`), and arm, run, example, label, cluster
      and texts where the table has them; `attrs["columns"]` has their names in the table, by role.

    Example:
      >>> import pandas
      >>> wide = pandas.DataFrame({"id": ["a", "b"], "label": [1, 0], "seed_0": [1, 1], "seed_1": [1, 0]})
      >>> standard_frame(wide, ColumnNames(), "file")["prediction"].tolist()
      [1, 1, 1, 0]
    """
    found = _found(frame, names, what)
    if seed is None and "seed" not in found and found.get("run", "").lower() in _RUNS:
        found["seed"] = found.pop("run")
    frame = frame.loc[:, ~frame.columns.duplicated()]
    frame = frame.drop(columns=[name for name in frame if _is_index(frame, name, found)])
    by = names.by if isinstance(names, SliceNames) else None
    if by is not None and by not in frame.columns:
        if by not in ("label", "length"):
            raise UserError(
                f"{what}: found no column {by!r} for --by, only {_listed(frame)}; name one of these, label "
                "or length"
            )
        by = None
    _refuse_lists(frame, found.values(), what)
    if "seed" not in found and seed is None and "prediction" not in found:
        wide = _from_wide(frame, found, what, by)
        if wide is not None:
            return wide
    texts = [name for name in frame.columns if _is_text(name, found)]
    others = {
        name: f"{_OTHER}{name}" for name in frame.columns if name not in (*found.values(), *texts)
    }
    # Another column may have the name of a role that a column of another name has.
    chosen = frame.rename(columns={**others, **{v: k for k, v in found.items()}})
    if "seed" not in found:
        if seed is None:
            line = _lacking(frame, what, "seeds", "seed")
            raise UserError(
                f"{line}, or give a folder of files with one seed each, named by it (seed_0.csv)"
            )
        chosen["seed"] = seed
    if "prediction" not in found and "score" not in found:
        raise _lacking(frame, what, "predictions or scores", "prediction", "score")
    for role in ("arm", "seed", "run", "example"):
        if role in chosen and chosen[role].dtype.kind in "OT":  # "a1 " is the example "a1"
            chosen[role] = chosen[role].map(
                lambda cell: cell.strip() if isinstance(cell, str) else cell
            )
    keys = [name for name in ("arm", "seed", "run") if name in chosen]
    unused = [name for name, own in others.items() if not _tells_apart(chosen, keys, own)]
    chosen = chosen.drop(columns=[others[name] for name in unused])
    if found.get("run", "").lower() == "epoch" and names.run is None:
        _warn_of_epochs(chosen, what)
    read = {"seed": BY_NAME, **found}
    chosen.attrs = {"columns": {**read, **frame.attrs.get("columns", {})}}
    if by is not None:
        chosen["by"], chosen.attrs["columns"]["by"] = frame[by], by
    return chosen


def _is_index(frame: pandas.DataFrame, name: object, found: Mapping[str, str]) -> bool:
    """Returns whether a column is the index that `to_csv` writes, and not the only ids there are."""
    if not _INDEX.fullmatch(str(name)) or name in found.values():
        return False
    position = np.arange(len(frame))
    return "example" in found or frame[name].isna().all() or _counts(frame[name], position)


def _is_text(name: object, found: dict[str, str]) -> bool:
    return str(name).lower() in (*TEXT_NAMES, *FACT_NAMES) and name not in found.values()


def _tells_apart(frame: pandas.DataFrame, keys: Sequence[str], name: str) -> bool:
    """Returns whether a column could be of ids: one value for each example of every run."""
    column = frame[name]
    if column.dtype.kind not in "iuOT" or column.isna().any():
        return False
    try:
        return not frame.duplicated([*keys, name]).any()
    except TypeError:  # lists
        return False


def _warn_of_epochs(frame: pandas.DataFrame, what: str) -> None:
    epochs = frame["run"].unique().tolist()
    if len(epochs) > 1:
        console.warn(
            f"{what}: the {len(epochs)} epochs of each seed ({', '.join(map(str, epochs[:5]))}) are "
            "averaged, as if they were runs; keep the rows of one epoch if they are not"
        )


def settled(
    frame: pandas.DataFrame, names: ColumnNames, what: str, columns: dict[str, str]
) -> pandas.DataFrame:
    """Decides, by all rows of a task, what a table's names leave open: scores, labels and ids.

    A column `correct`, `right` or `acc` beside predictions is the score where it is 0 or 1 and differs
    between runs, and the label where it stays the same while predictions differ. Without a column of
    a usual name, the ids are the first column with one value for every example of a run and the same
    values in all runs; without such a column rows are numbered per run.

    Args:
      frame: as `standard_frame` returns it, of one file or several.
      what: names the table in error messages.
      columns: the table's name of each role.

    Returns:
      The rows, with columns `example` and one of `prediction` and `score`. `attrs` has `columns` (what
      was read as what), `identifying` (columns whose values another file must have for the same
      examples) and `unused` columns.
    """
    columns = dict(columns)
    unused = []
    if {"prediction", "score"} <= {*frame.columns}:
        frame, left_out = _value_of(frame, names, what, columns)
        unused.append(left_out)
    elif "score" in frame and names.score is None:
        _refuse_classes(frame, what, columns)
    frame, identifying = _with_ids(frame, names, what, columns)
    frame = frame.drop(columns=[name for name in frame if str(name).startswith(_OTHER)])
    frame.attrs = {
        "columns": columns,
        "identifying": identifying,
        "unused": [*filter(None, unused)],
    }
    return frame


def _value_of(
    frame: pandas.DataFrame, names: ColumnNames, what: str, columns: dict[str, str]
) -> tuple[pandas.DataFrame, str]:
    """Keeps the predictions or the scores of a table that has both, and returns what it left out."""
    if names.prediction is not None and names.score is not None:
        raise UserError(
            f"{what}: found --prediction={names.prediction} and --score={names.score}, expected one of "
            "them; leave the other out"
        )
    kept = "score" if names.score is not None else "prediction"
    if names.prediction is None and names.score is None and "label" not in frame:
        # Scores alongside predictions are another program's, and all there is where labels lack.
        kept = "score"
        if columns["score"].lower() in _SCORE_OR_LABEL and not _is_score(frame, what, columns):
            frame = frame.rename(columns={"score": "label"})
            columns["label"] = columns.pop("score")
            return frame, ""
    lost = "prediction" if kept == "score" else "score"
    return frame.drop(columns=lost), columns.pop(lost)


def _is_score(frame: pandas.DataFrame, what: str, columns: dict[str, str]) -> bool:
    """Returns whether a column that may be either holds scores, and not labels."""
    marks, predictions = frame["score"], frame["prediction"]
    is_mark = set(marks.dropna().unique().tolist()) <= {0, 1}
    if is_mark and not set(predictions.dropna().unique().tolist()) & {0, 1}:
        return True  # of texts or other classes: a label would be one of them
    keys = [name for name in ("arm", "example") if name in frame]
    if "example" in frame:
        groups = frame.groupby(keys, sort=False, dropna=False)
        varies = groups[["score", "prediction"]].nunique() > 1
        if is_mark and varies["score"].any():
            return True
        if varies["prediction"].any() and not varies["score"].any():
            return False
    score, prediction = columns["score"], columns["prediction"]
    raise UserError(
        f"{what}: the column {score!r} beside the predictions {prediction!r} may hold scores or labels; "
        f"say which with --score={score} or --label={score}"
    )


def _refuse_classes(frame: pandas.DataFrame, what: str, columns: dict[str, str]) -> None:
    """Refuses a column named for right answers that holds something else, such as the gold class."""
    values = frame["score"].dropna()
    is_share = values.dtype.kind in "biuf" and bool(values.between(0, 1).all())
    if columns["score"].lower() in _SCORE_OR_LABEL and not is_share:
        found = ", ".join(repr(value) for value in values.unique().tolist()[:5])
        raise UserError(
            f"{what}: the column {columns['score']!r} holds {found}, expected 0 and 1, the score of each "
            f"example; if these are labels, name the predictions, too (--label={columns['score']} "
            f"--prediction=COLUMN), and if they are scores give --score={columns['score']}"
        )


def _with_ids(
    frame: pandas.DataFrame, names: ColumnNames, what: str, columns: dict[str, str]
) -> tuple[pandas.DataFrame, list[str]]:
    """Finds ids where the table names none, and returns which columns must agree with another table's."""
    keys = [name for name in ("arm", "seed", "run") if name in frame]
    runs = frame.groupby(keys, sort=False, dropna=False)
    largest = int(runs.size().max())
    position = runs.cumcount().to_numpy()
    candidates = [
        name
        for name in frame.columns
        if (str(name).startswith(_OTHER) or _is_text(name, columns))
        and str(name).lower() != "target"
        and _tells_apart(frame, keys, name)
        # Some rows may be missing, but not most.
        and frame[name].nunique() <= 1.1 * largest
        and not _counts(frame[name], position)
    ]
    shown = {name: str(name).removeprefix(_OTHER) for name in candidates}
    if "example" in frame:
        rivals = [
            name
            for name in candidates
            if names.example is None
            and (frame[name].dtype.kind in "OT" or _counts(frame["example"], position))
        ]
        first = "example" if columns.get("example") != POSITION else None
    else:
        first, rivals = next(iter(candidates), None), candidates[1:]
    for name in rivals if first is not None else []:
        pairs = frame[[first, name]].drop_duplicates()
        # Two examples may have one text, but a text has one example where ids are right.
        if pairs[first].duplicated().any() and pairs[name].duplicated().any():
            own = columns["example"] if first == "example" else shown[first]
            raise UserError(
                f"{what}: the columns {own!r} and {shown[name]!r} both look like ids, but pair the "
                f"examples of different runs differently; name the right one with --example={own} or "
                f"--example={shown[name]}"
            )
    if "example" not in frame:
        frame = frame.copy()
        columns["example"] = POSITION if first is None else shown[first]
        frame["example"] = position if first is None else frame[first]
    renamed = {name: own for name, own in shown.items() if own not in frame and name != first}
    frame = frame.rename(columns=renamed)
    identifying = [own for name, own in shown.items() if name in renamed or own == name]
    examples = frame["example"].nunique()
    for name in [*identifying]:
        if len(frame[["example", name]].drop_duplicates()) > examples:  # such as a rank in each run
            identifying.remove(name)
    for name in FACT_NAMES:
        if name in frame and frame.groupby("example")[name].nunique().max() > 1:
            differing = frame.groupby("example")[name].nunique().idxmax()
            raise UserError(
                f"{what}: found several values of {name!r} for the example {differing!r}, expected the "
                "same in all runs; compare runs on the same data, or name the column of ids with --example"
            )
    facts = [name for name in FACT_NAMES if name in frame and name not in identifying]
    return frame, [*identifying, *facts]


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
    order = ("prediction", "score", "label", "example", "seed", "run", "arm", "cluster", "by")
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
    frame: pandas.DataFrame, found: dict[str, str], what: str, by: str | None = None
) -> pandas.DataFrame | None:
    """Returns a wide table as a long one, or None where it is not wide."""
    import pandas

    columns = [
        (column, match)
        for column in frame.columns
        if column not in found.values()
        and not _is_text(column, found)
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
    value = "prediction" if "label" in found else "score"
    _refuse_lists(frame, [column for column, _ in columns], what)
    kept = {
        role: frame[name] for role, name in found.items() if role in ("example", "label", "cluster")
    }
    runs = [column for column, _ in columns]
    kept |= {name: frame[name] for name in frame.columns if _is_text(name, found)}
    for name in frame.columns:
        if name not in (*runs, *found.values(), *kept) and _tells_apart(frame, [], name):
            kept[f"{_OTHER}{name}"] = frame[name]
    if by is not None:
        kept["by"] = frame[by]
    parts = []
    for column, match in columns:
        run = {**kept, "seed": int(match["seed"]), value: frame[column]}
        if match["arm"]:
            run["arm"] = match["arm"]
        parts.append(pandas.DataFrame(run))
    table = pandas.concat(parts, ignore_index=True)
    of_runs = f"{runs[0]} ... {runs[-1]}" if len(runs) > 1 else str(runs[0])
    own = {role: name for role, name in found.items() if role in kept}
    table.attrs["columns"] = {"seed": BY_COLUMNS, value: of_runs, **own}
    if by is not None:
        table.attrs["columns"]["by"] = by
    return table


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
