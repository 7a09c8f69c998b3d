"""Finds the columns of a table of predictions: by the names that were given, or by usual ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.readers.rows import (
    BY_COLUMNS,
    BY_MODEL,
    BY_NAME,
    BY_TIME,
    FACT_NAMES,
    GAP,
    NUMBERED,
    POSITION,
    SEED_NAMES,
    SEED_WORDS,
    TEXT_NAMES,
    ReadAs,
    Rows,
    any_of,
)
from multiberts.runs import console
from multiberts.runs.errors import UserError, counted
from multiberts.runs.parameters import shortened

if TYPE_CHECKING:
    import pandas

# By role, names of columns in lower case; the first that a table has is taken.
USUAL_NAMES: dict[str, tuple[str, ...]] = {
    "arm": ("arm", "procedure", "model", "system", "condition", "method", "group"),
    "seed": (*SEED_NAMES, "seed_id"),
    "run": ("finetune_seed", "run", "epoch", "repeat"),
    "example": (
        "example_id", "example", "doc_id", "sample_id", "question_id", "instance_id", "guid", "id",
        "idx", "index", "row_id", "item",
    ),
    "prediction": (
        "prediction", "predictions", "predicted", "pred", "y_pred", "answer", "output",
        "predicted_label", "pred_label", "predicted_class", "prediction_text", "model_output", "hyp",
        "y_hat",
    ),
    "score": (
        "score", "correct", "is_correct", "acc", "accuracy", "exact_match", "em", "f1", "right",
    ),
    "label": (
        "label", "labels", "target", "gold", "reference", "references", "y_true", "truth",
        "true_label", "gold_label", "ground_truth", "actual", "ref", "answers",
    ),
    "cluster": ("cluster", "template", "passage_id"),
}  # fmt: skip
# Names of runs that are seeds where nothing else is.
_RUNS = ("run", "repeat")
# Names of scores that other programs call the label.
_SCORE_OR_LABEL = ("correct", "right", "acc")
# An index without a name, as pandas reads it back.
_INDEX = re.compile(r"Unnamed: \d+(\.\d+)?")
_TAG = re.compile(r"O|[BI]-\S+")
# `--seed=columns`: one column per seed, whatever stands before the number of the seed.
COLUMNS = "columns"
# A column of one run, such as `seed_0`, `base_seed_0` or `seed_0_base`.
_RUN_COLUMN = re.compile(
    rf"(?:(?P<before>.+?){GAP}+)??(?:{SEED_WORDS}){GAP}*(?P<seed>\d+)(?:{GAP}+(?P<after>\D.*))?",
    re.IGNORECASE,
)
_NUMBERED = re.compile(rf"(?P<before>.*?){GAP}*(?P<seed>\d+)(?P<after>)")
# Words that say what the columns of runs hold, with their role and usual name.
_VALUE_ROLES = ("prediction", "score", "label")
_VALUES = {
    name.replace("_", ""): (role, name) for role in _VALUE_ROLES for name in USUAL_NAMES[role]
}
_WORD = any_of(name for _, name in _VALUES.values())
_WORD_LAST = re.compile(rf"(?:(?P<arm>.+?){GAP}+)??(?P<word>{_WORD})", re.IGNORECASE)
_WORD_FIRST = re.compile(rf"(?P<word>{_WORD}){GAP}+(?P<arm>.+)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class RowNames:
    """Names of columns by role; None: found by its usual name, if the table has it.

    Attributes:
      arm: of the column that names the model, method or condition of each row.
      seed: of the column of seeds; `columns` where each seed has a column of its own.
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
        whose names hold the word seed or run and a number (`seed_0`, `base_seed_1`), or with the seed
        `columns` a number alone (`base_1`).
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

    by_columns = names.seed == COLUMNS and COLUMNS not in frame.columns
    columns = _found(frame, replace(names, seed=None) if by_columns else names, what)
    if by_columns:
        columns.pop("seed", None)
    elif seed is None and "seed" not in columns and columns.get("run", "").lower() in _RUNS:
        columns["seed"] = columns.pop("run")
    unused = _passed_over(frame, names, columns)
    run_columns = []
    if by_columns or (seed is None and not {"seed", "prediction"} & {*columns}):
        run_columns = _run_columns(frame, columns, by_columns)
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
    if run_columns:
        rows = _from_wide(frame, columns, run_columns, names, what, by)
        return replace(rows, read=replace(rows.read, unused=[*rows.read.unused, *unused]))
    if by_columns:
        raise UserError(
            f"{what}: found no column with a number in its name for --seed={COLUMNS}, only {_listed(frame)}; "
            "name the column of seeds with --seed=COLUMN"
        )
    frame = _with_plain_cells(frame, columns.items(), what)
    if not {"prediction", "score"} & {*columns}:
        _ask_of_numbers(frame, columns, what, has_seeds=seed is not None or "seed" in columns)
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
    return _with_possible_ids(Rows(roles, further, ReadAs(columns=read, unused=unused)))


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
    read = replace(rows.read, unused=[*rows.read.unused, columns.pop(lost)], columns=columns)
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


def _passed_over(
    frame: pandas.DataFrame, names: ColumnNames, columns: Mapping[str, str]
) -> list[str]:
    """Returns the columns of usual names whose role has another column, which nobody named."""
    roles = {
        usual: role
        for role, own in USUAL_NAMES.items()
        if role in columns and role not in ("example", "cluster") and getattr(names, role) is None
        for usual in own
    }
    used = {*columns.values(), *asdict(names).values(), *FACT_NAMES}
    return [
        str(name) for name in frame.columns if str(name).lower() in roles and str(name) not in used
    ]


def _refuse_twice(what: str, role: str, columns: Sequence[str]) -> None:
    if len(columns) > 1:
        same = len({*columns}) == 1
        raise UserError(
            f"{what}: found {counted(len(columns), 'column')} for the {role}, "
            f"{' and '.join(map(repr, columns))}; "
            + ("rename or remove one" if same else f"name the right one with --{role}=COLUMN")
        )


def _with_plain_cells(
    frame: pandas.DataFrame, roles: Iterable[tuple[str, str]], what: str
) -> pandas.DataFrame:
    """Returns a table with one text or number in each cell of its roles, or a set of texts.

    Lists of texts, of predictions and labels, are sets of labels or the references of an answer, sorted
    tuples; lists of tags are texts of tags. Truth values among missing ones, as R and JSON have them, become
    1, 0 and NaN.
    """
    import pandas

    frame = frame.copy(deep=False)
    for role, column in roles:
        cells = frame[column]
        if cells.dtype != object:
            continue
        kind = pandas.api.types.infer_dtype(cells, skipna=True)
        if kind == "string":
            continue
        if kind == "boolean":
            frame[column] = cells.astype("boolean").to_numpy(np.float64, na_value=np.nan)
            continue
        may_be_lists = role in ("prediction", "label")
        if may_be_lists and any(map(_is_list, cells)):
            cells = pandas.Series(_sets_or_tags([*cells], role), frame.index, dtype=object)
            frame[column] = cells
        for row, cell in enumerate(cells, 1):
            is_set = may_be_lists and isinstance(cell, tuple) and _texts_in(cell) is not None
            if not (
                is_set or cell is None or isinstance(cell, (str, bool, int, float, np.generic))
            ):
                raise UserError(
                    f"{what}: found {shortened(cell)} in column {column!r}, row {row}, expected one text or "
                    "number; write one value per row"
                )
    return frame


def _is_list(cell: object) -> bool:
    return isinstance(cell, list | tuple | dict | np.ndarray)


def _sets_or_tags(cells: list[Any], role: str) -> list[Any]:
    """Returns lists of texts as sorted tuples, or tags of sentences as texts; other cells as they are."""
    lists = [_texts_in(cell) for cell in cells]
    every = {text for texts in lists if texts is not None for text in texts}
    are_tags = bool(every) and all(map(_TAG.fullmatch, every))

    def joined(cell: Any, texts: list[str] | None) -> Any:
        if texts is None or are_tags:
            return cell if texts is None else " ".join(texts)
        # A prediction with a text twice is not a set; the references of an answer may be alike.
        is_set = role == "label" or len({*texts}) == len(texts)
        return tuple(sorted({*texts})) if is_set else cell

    return [joined(cell, texts) for cell, texts in zip(cells, lists, strict=True)]


def _texts_in(cell: Any) -> list[str] | None:
    """Returns the texts of a list, or of a text among lists; None of anything else."""
    # The answers of SQuAD, as `datasets` has them, are an object with lists of texts and places.
    texts = cell.get("text", cell) if isinstance(cell, dict) else cell
    texts = [texts] * bool(texts) if isinstance(texts, str) else texts
    is_list = isinstance(texts, list | tuple | np.ndarray)
    return [*texts] if is_list and all(isinstance(text, str) for text in texts) else None


class _RunColumn(NamedTuple):
    """A column of one run, and what its name says: arm, seed, and the role with its word, if any."""

    column: str
    arm: str
    seed: int
    role: str
    word: str


def _numbered(frame: pandas.DataFrame, roles: Mapping[str, str]) -> list[str]:
    """Returns the columns without a role whose names hold a number."""
    return [
        column
        for column in frame.columns
        if column not in roles.values()
        and not _is_text(column)
        and not _INDEX.fullmatch(str(column))
        and re.search(r"\d", str(column))
    ]


def _run_columns(
    frame: pandas.DataFrame, roles: Mapping[str, str], by_number: bool
) -> list[_RunColumn]:
    """Returns the columns of runs, by the word seed or run in their names or by any number."""
    stems: list[tuple[str, str, int]] = []
    for column in _numbered(frame, roles):
        match = _RUN_COLUMN.fullmatch(str(column))
        if match is None and by_number:
            match = _NUMBERED.fullmatch(str(column))
        if match:
            stem = "_".join(filter(None, (match["before"], match["after"])))
            stems.append((column, stem, int(match["seed"])))
    first = {stem: _WORD_FIRST.fullmatch(stem) for _, stem, _ in stems}
    # `pred_base` and `label_base` are of one arm, but `label_smoothing` alone is an arm.
    num_roles = len({_role_of(match["word"]) for match in first.values() if match})
    columns = []
    for column, stem, seed in stems:
        match = _WORD_LAST.fullmatch(stem) or (first[stem] if num_roles > 1 else None)
        arm, word = (match["arm"] or "", match["word"]) if match else (stem, "")
        columns.append(_RunColumn(column, arm, seed, *_role_of(word)))
    return columns


def _role_of(word: str) -> tuple[str, str]:
    return _VALUES.get(re.sub(GAP, "", word.lower()), ("", ""))


def _ask_of_numbers(
    frame: pandas.DataFrame, roles: Mapping[str, str], what: str, *, has_seeds: bool
) -> None:
    """Asks what columns with numbers are, where nothing else holds predictions or scores."""
    columns = [name for name in _numbered(frame, roles) if re.search(r"\d$", str(name))]
    bare = [name for name in columns if str(name).isdecimal()]
    if bare and len(bare) < len(columns) and not has_seeds:
        raise UserError(
            f"{what}: found the columns {_listed(frame)}; the first line must name the columns, such as "
            "seed, id, prediction and label"
        )
    by_stem: dict[str, list[str]] = {}
    for name in columns:
        by_stem.setdefault(re.sub(r"\d+$", "", str(name)), []).append(name)
    for of_classes in by_stem.values():
        if _is_distribution(frame[of_classes]):
            cure = f"name that of class 1 (--prediction={of_classes[-1]} --metric=auc)"
            if len(of_classes) > 2:
                cure = "write the class that is predicted into a column (--prediction=COLUMN)"
            raise UserError(
                f"{what}: the columns {of_classes[0]} to {of_classes[-1]} sum to 1 in every row, as the "
                f"probabilities of classes do; {cure}"
            )
    if columns and not has_seeds:
        raise UserError(
            f"{what}: the columns {', '.join(map(str, columns[:4]))} end in numbers, which may be seeds or "
            f"something else; give --seed={COLUMNS} if there is one column per seed, otherwise name columns "
            "with --seed=COLUMN and --prediction=COLUMN or --score=COLUMN"
        )


def _is_distribution(table: pandas.DataFrame) -> bool:
    """Returns whether columns are shares that sum to 1 in every row, but for rounding to two decimals."""
    if table.shape[1] < 2 or any(kind.kind not in "iuf" for kind in table.dtypes):
        return False
    values = table.to_numpy(np.float64)
    are_shares = bool(((values >= 0) & (values <= 1)).all())
    return are_shares and bool((np.abs(values.sum(axis=1) - 1) <= 0.005 * table.shape[1]).all())


def _from_wide(
    frame: pandas.DataFrame,
    roles: dict[str, str],
    run_columns: Sequence[_RunColumn],
    names: ColumnNames,
    what: str,
    by: str | None,
) -> Rows:
    """Returns the rows of a wide table."""
    import pandas

    words = {run.word for run in run_columns}
    # The first of several words for one role, as among the columns of a long table.
    chosen = {role: next((w for w in USUAL_NAMES[role] if w in words), "") for role in _VALUE_ROLES}
    has_label = "label" in roles or bool(chosen["label"])
    by_role: dict[str, dict[tuple[str, int], str]] = {role: {} for role in _VALUE_ROLES}
    for run in run_columns:
        role = run.role or ("prediction" if has_label else "score")
        if run.role and run.word != chosen[role]:
            continue
        if (run.arm, run.seed) in by_role[role]:
            raise UserError(
                f"{what}: the columns {str(by_role[role][run.arm, run.seed])!r} and {str(run.column)!r} are "
                f"both of seed {run.seed}; rename or remove one"
            )
        by_role[role][run.arm, run.seed] = run.column
    scores = by_role["score"].values()
    predictions = by_role["prediction"].values()
    if not has_label and chosen["score"] in _SCORE_OR_LABEL and predictions:
        # As in a long table, what stays the same while predictions differ is the label.
        is_label = _differing(frame, scores) is None and _differing(frame, predictions) is not None
        by_role |= {"label": by_role["score"], "score": {}} if is_label else {}
    labels = [] if "label" in roles else [*by_role["label"].values()]
    del by_role["label"]
    if labels:
        pair = _differing(frame, labels)
        if pair is not None:
            raise UserError(
                f"{what}: found different labels in the columns {pair[0]!r} and {pair[1]!r}, expected the "
                "same for every seed; put all into one order, or rename them if they are of an arm"
            )
        roles["label"] = labels[0]
    runs = [*dict.fromkeys(run for columns in by_role.values() for run in columns)]
    by_role = {role: columns for role, columns in by_role.items() if len(columns) == len(runs) > 0}
    if not by_role:
        raise _lacking(frame, what, "predictions or scores of every seed", "prediction", "score")
    arms = [arm for arm, _ in runs]
    if len({*map(bool, arms)}) > 1:
        raise UserError(
            f"{what}: found columns of runs with and without the name of an arm among {_listed(frame)}; "
            "write it into all of them, as in base_seed_0 and new_seed_0"
        )
    values = [(role, column) for role, own in by_role.items() for column in own.values()]
    frame = _with_plain_cells(frame, [*roles.items(), *values], what)
    # Each column of examples, once for each run.
    row = np.tile(np.arange(len(frame)), len(runs))
    read = {"seed": BY_COLUMNS}
    cells: dict[str, Any] = {"seed": np.repeat([seed for _, seed in runs], len(frame))}
    for role, columns in by_role.items():
        of_runs = [columns[run] for run in runs]
        cells[role] = pandas.concat([frame[name] for name in of_runs], ignore_index=True)
        read[role] = " ... ".join(map(str, dict.fromkeys((of_runs[0], of_runs[-1]))))
    of_rows: dict[str, str] = {
        role: roles[role] for role in ("example", "label", "cluster") if role in roles
    }
    if all(arms):
        cells["arm"] = np.repeat(arms, len(frame))
    elif names.arm is not None:
        of_rows["arm"] = names.arm
    of_rows |= {"by": by} if by is not None else {}
    cells |= {role: frame[name].take(row).reset_index(drop=True) for role, name in of_rows.items()}
    used = {*(column for _, column in values), *labels, *of_rows.values()}
    unused = [
        str(name)
        for name in (
            *(run.column for run in run_columns),
            *map(roles.get, (*_VALUE_ROLES, "arm", "run")),
        )
        if name is not None and name not in used
    ]
    own = {*(run.column for run in run_columns), *roles.values()}
    further = frame[[name for name in frame if name not in own]]
    further.columns = further.columns.map(str)
    return _with_possible_ids(
        Rows(
            pandas.DataFrame(cells),
            further.take(row).reset_index(drop=True),
            ReadAs(columns=read | of_rows, unused=unused),
        )
    )


def _differing(frame: pandas.DataFrame, columns: Iterable[str]) -> tuple[str, str] | None:
    """Returns the first column and another that differs from it, if one does."""
    first, *others = columns
    return next(((first, name) for name in others if not frame[first].equals(frame[name])), None)


def _lacking(frame: pandas.DataFrame, what: str, role: str, *flags: str) -> UserError:
    options = " or ".join(f"--{flag}=COLUMN" for flag in flags)
    return UserError(
        f"{what}: found no column of {role} among {_listed(frame)}; name it with {options}"
    )


def _listed(frame: pandas.DataFrame) -> str:
    names = [repr(str(column)) for column in frame.columns]
    return ", ".join(names[:30]) + (f" and {len(names) - 30} more" if len(names) > 30 else "")
