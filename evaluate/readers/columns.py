"""Finds the columns of a table of predictions, by the user's names or by usual names."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from multiberts.evaluate.readers.other_kinds import NoPredictionsError
from multiberts.evaluate.readers.rows import (
    ARM_COLUMNS,
    BY_NAME,
    FACT_NAMES,
    FOLDS_ARE_IN,
    INDEX,
    ONE_RUN,
    ONE_SCORE,
    POOLED,
    POSITION,
    SCORE_OR_LABEL,
    SPLITS,
    TASK_NAMES,
    USUAL_NAMES,
    ReadAs,
    Rows,
    columns_of,
    is_text,
)
from multiberts.evaluate.readers.wide_tables import COLUMNS, long_table
from multiberts.runs.errors import UserError, counted, listed
from multiberts.runs.parameters import shortened

if TYPE_CHECKING:
    import pandas

# Columns of runs with these names are seeds if there are no other seeds.
_RUNS = ("run", "repeat")
_TAG = re.compile(r"O|[BI]-\S+")
_PER_CENT = re.compile(r"\s*[-+]?[\d.]+\s*%\s*")
_LISTS, _PLAIN = (list, tuple, dict, np.ndarray), (str, bool, int, float, np.generic)


@dataclass(frozen=True, kw_only=True)
class RowNames:
    """Names of columns by role; None: a column with a usual name, if the table has one.

    Attributes:
      arm: column with the model, method or condition of each row.
      seed: column of seeds; `columns` if each seed has a column.
      run: column that distinguishes several runs of one seed.
      score: column of each example's score, such as 1 for a right answer.
      where: rows to use, as COLUMN=VALUE, several separated by commas.
    """

    arm: str | Literal["none"] | None = None
    seed: str | None = None
    run: str | None = None
    example: str | None = None
    prediction: str | None = None
    score: str | None = None
    label: str | None = None
    where: str | None = None

    @property
    def told(self) -> dict[str, str]:
        """Returns the names that the user gave, by role."""
        return {role: name for role in _TOLD if (name := getattr(self, role, None)) is not None}


@dataclass(frozen=True, kw_only=True)
class ColumnNames(RowNames):
    """Names of columns by role, with clusters."""

    cluster: str | None = None


@dataclass(frozen=True, kw_only=True)
class SliceNames(ColumnNames):
    """Names of columns by role, with slices.

    Attributes:
      by: column whose values split the examples into slices, which are compared separately: a category, a
        language, `label`, or `length` (words of the texts); numbers are split at their quartiles.
    """

    by: str | None = None


# Columns that part the rows of a run: chosen by `--where`, asked about, or named in the first line.
PARTING = {
    *TASK_NAMES, "split", "set", "partition", "phase", "epoch", "step", "checkpoint", "state", "status",
    "fold", "cv_fold", "domain",
}  # fmt: skip
_TIMES, _STATES = ("epoch", "step", "checkpoint"), ("state", "status")
_USUALLY_CHOSEN = re.compile(r"test([ _-]?set)?|finished|success(ful)?|completed?|done|ok", re.I)
_FOLDS = re.compile(r"((cv|k)[ _-]?)?(fold|split)s?([ _-]?(id|idx|index|number))?", re.I)
# Texts that several examples may be about.
_GROUPS = {"passage", "doc", "document", "context", "story"}
ROLES = tuple(field.name for field in fields(ColumnNames) if field.name != "where")
_TOLD = (*ROLES, "by")
NO_ARM = "none"


def standard_rows(
    frame: pandas.DataFrame, names: ColumnNames, where: str, seed: int | None = None
) -> Rows:
    """Finds the role of every column of a table.

    Args:
      frame: long, one row per run and example; or wide, see `wide_tables`.
      seed: seed of all rows, if no column has seeds (one file per seed).

    Examples:
      >>> import pandas
      >>> wide = pandas.DataFrame({"id": ["a", "b"], "label": [1, 0], "seed_0": [1, 1], "seed_1": [1, 0]})
      >>> standard_rows(wide, ColumnNames(), "file").roles["prediction"].tolist()
      [1, 1, 1, 0]
    """
    import pandas

    user_names = names.told
    columns, unused = columns_by_role(frame, user_names, where)
    has_seeds = seed is not None or "seed" in {**columns, **user_names}
    if not has_seeds and columns.get("run", "").lower() in _RUNS:
        columns["seed"] = columns.pop("run")
    header = [*frame.columns]
    frame = frame.loc[:, ~frame.columns.duplicated()].reset_index(drop=True)
    _refuse_summaries(frame, columns, where)
    named = {*columns.values(), *user_names.values()}
    without_ids = "example" not in columns
    indices = [name for name in frame if name not in named and _is_index(frame[name], without_ids)]
    frame = frame.drop(columns=indices)
    has_seeds = seed is not None or "seed" in columns
    frame, columns, more = long_table(
        frame, header, columns, user_names, where, has_seeds=has_seeds
    )
    has_seeds |= "seed" in columns
    frame = with_plain_cells(frame, columns, where).reset_index(drop=True)
    roles = pandas.DataFrame({role: frame[name] for role, name in columns.items()}, copy=False)
    has_values = bool({"prediction", "score"} & {*columns})
    is_one = not has_seeds and has_values and _is_one_run(frame, columns)
    lacks = ["seeds"] * (not has_seeds and not is_one)
    lacks += ["predictions or scores"] * (not has_values)
    if lacks:
        parts = parting(frame, {*columns.values(), *user_names.values()})
        account_for(Rows(roles.assign(**parts), frame), where)
        raise _ask(frame, columns, lacks, where)
    if "seed" not in columns:
        roles["seed"] = "one" if is_one else seed
    for role in {"arm", "seed", "run", "example"} & {*roles.columns}:
        roles[role] = stripped(roles[role])
    read = {"seed": ONE_RUN if is_one else BY_NAME} | {
        r: name for r, name in columns.items() if name != ARM_COLUMNS
    }
    if user_names.get("by") in frame.columns:
        roles["by"], read["by"] = frame[user_names["by"]], user_names["by"]
    further = frame[[name for name in frame if name not in columns.values()]]
    further.columns = further.columns.map(str)
    rows = Rows(roles, further)
    # Further columns: texts, facts and possible ids.
    runs = rows.runs
    ids = [name for name in further if not is_text(name) and _tells_apart(runs, further[name])]
    further_columns = [name for name in further if is_text(name) or name in ids]
    unused = [*more, *unused]
    accounted = {*further_columns, *unused, "task", "evaluation_set", user_names.get("by")}
    unused += [name for name in further if name not in accounted]
    read_as = ReadAs(columns=read, unused=unused)
    return replace(rows, further=further[further_columns], possible_ids=ids, read=read_as)


def _is_one_run(frame: pandas.DataFrame, columns: Mapping[str, str]) -> bool:
    """Returns whether rows without seeds are a single run, with different examples."""
    if "run" in columns:
        return False
    if "example" in columns:
        keys = [columns[role] for role in ("arm", "example") if role in columns]
        tasks = [name for name in ("task", "evaluation_set", *TASK_NAMES) if name in frame]
        return not frame[[*keys, *tasks]].duplicated().any()
    # Scores other than 0 and 1 may be scores of whole runs.
    return "prediction" in columns or bool(frame[columns["score"]].dropna().isin((0, 1)).all())


# Summary rows, which tables of papers and spreadsheets have below the runs.
_SUMMARIES = re.compile(
    r"\s*(mean|average|avg|median|std|sd|stdev|overall|total)\b.*", re.IGNORECASE
)


def _refuse_summaries(frame: pandas.DataFrame, columns: Mapping[str, str], where: str) -> None:
    """Refuses a row `mean` below numbered seeds or examples."""
    for role in {"seed", "run", "example"} & {*columns}:
        names = frame[columns[role]]
        if names.dtype.kind not in "OT":
            continue
        names = names.drop_duplicates().astype(str)
        sums = names.str.fullmatch(_SUMMARIES)
        if sums.any() and names[~sums].str.fullmatch(r"\D*\d+(\.0)?\s*").all():
            raise UserError(
                f"{where}: found {names[sums].iloc[0]!r} in column {columns[role]!r}, row "
                f"{names[sums].index[0] + 1}, which sums up others and is no {role}; remove such rows"
            )


def _ask(
    frame: pandas.DataFrame, columns: Mapping[str, str], lacks: Sequence[str], where: str
) -> UserError:
    guessed = _guessed(frame, columns) if len(frame) > 1 else {}
    used = {**columns, **guessed}.values()
    numbers = [name for name in frame if name not in used and frame[name].dtype.kind in "biuf"]
    problem = f"{where}: found no column of {' or of '.join(lacks)} among {columns_of(frame)}"
    if lacks == ["seeds"] and {*used} == {*frame} and "example" not in {*columns, *guessed}:
        # No column is left that could have the seeds.
        arm = columns.get("arm")
        counts = [len(frame)] if arm is None else frame[arm].value_counts().tolist()
        if max(counts) == 1:
            return UserError(
                f"{where}: found one score per {arm or 'table'}, from which no interval follows; give the "
                "scores of several runs, with their seeds in a column 'seed', or each example's score"
            )
        return UserError(f"{problem}; number the runs of each {arm or 'model'} in a column 'seed'")
    may_be_arms = not {"arm", "prediction", "score"} & {*columns, *guessed}
    if may_be_arms and "seeds" not in lacks and len(numbers) > 1:
        models = ", ".join(map(repr, numbers[:9]))
        return UserError(
            f"{problem}; give --arm={COLUMNS} if {models} are models, otherwise name it with "
            "--prediction=COLUMN or --score=COLUMN"
        )
    flags = [f"--{role}={name}" for role, name in guessed.items()]
    flags += ["--seed=COLUMN"] * ("seeds" in lacks and "seed" not in guessed)
    if not {"prediction", "score"} & {*columns, *guessed}:
        flags.append("--prediction=COLUMN or --score=COLUMN")
    it, its = ("it", "its") if len(flags) == 1 else ("them", "their")
    guess = f", a guess by {its} values" * bool(guessed)
    more = ", or give a folder of files with one seed each, named by it (seed_0.csv)"
    return UserError(
        f"{problem}; name {it} with {' '.join(flags)}{guess}{more * (lacks == ['seeds'])}"
    )


def _guessed(frame: pandas.DataFrame, columns: Mapping[str, str]) -> dict[str, str]:
    """Guesses roles of columns by their values: columns that distinguish rows are arm, seed and example."""
    roles = dict(columns)
    others = [
        name
        for name in frame
        if name not in columns.values()
        and re.fullmatch(r"[^\s;(),']+", str(name))
        and (frame[name].dtype.kind in "biuf" or frame[name].map(type).eq(str).all())
    ]
    may_distinguish = [name for name in others if frame[name].dtype.kind not in "bf"][:8]
    key_columns = [columns[role] for role in ("arm", "seed", "run", "example") if role in columns]
    keys: list[str] = next(
        (
            [*names]
            for size in range(4)
            for names in itertools.combinations(may_distinguish, size)
            if [*key_columns, *names] and not frame[[*key_columns, *names]].duplicated().any()
        ),
        [],
    )
    values = [name for name in others if name not in keys]
    # In a table with few rows, a score belongs to a whole run.
    distinct = frame[keys].nunique()
    are_whole = {frame[name].dtype.kind for name in values} == {"f"} and distinct.max() <= 50
    for name in distinct.sort_values(ascending=False, kind="stable").index:
        role = "seed" if frame[name].dtype.kind in "iu" else "arm"
        roles.setdefault("example" if "example" not in roles and not are_whole else role, name)
    if not {"prediction", "score"} & {*roles}:
        if "example" in roles and values:
            labels = [columns["label"]] if "label" in columns else values
            of_examples = frame.groupby(roles["example"])[[*dict.fromkeys([*labels, *values])]]
            varies = of_examples.nunique().max() > 1
            for label, value in itertools.product(labels, values):
                if varies[value] and not varies[label] and {*frame[value]} <= {*frame[label]}:
                    roles = {"label": label, "prediction": value} | roles
        numbers = [name for name in values if frame[name].dtype.kind in "biuf"]
        if "prediction" not in roles and "label" not in columns and len(numbers) == 1:
            roles["score"] = numbers[0]
    return {role: roles[role] for role in ROLES if role in roles and role not in columns}


def stripped(column: pandas.Series) -> pandas.Series:
    """Returns names without surrounding spaces: "a1 " is the example "a1"."""
    if column.dtype == "str":
        return column.str.strip()
    if column.dtype.kind not in "OT":
        return column
    return column.map(lambda name: name.strip() if isinstance(name, str) else name)


def _is_index(column: pandas.Series, without_ids: bool) -> bool:
    """Returns whether a column is the index written by `to_csv`, and not the only ids."""
    if not INDEX.fullmatch(str(column.name)):
        return False
    return not without_ids or bool(column.isna().all()) or _counts(column, np.arange(len(column)))


def _tells_apart(runs: NDArray, column: pandas.Series) -> bool:
    import pandas

    if column.dtype.kind not in "iuOT" or column.isna().any():
        return False
    try:
        codes, values = pandas.factorize(column)
    except TypeError:  # lists
        return False
    return not pandas.Series(runs * len(values) + codes).duplicated().any()


def settled(rows: Rows, names: ColumnNames, where: str) -> Rows:
    """Resolves ambiguous columns from all rows of a task: scores, labels and ids.

    A column `correct`, `right` or `acc` beside predictions is the score if it is 0 or 1 and differs between
    runs, and the label if it is constant while predictions differ. Without a column of a usual name, the ids
    are the first column with distinct values within a run and the same values in all runs; without such a
    column, rows are numbered per run.
    """
    if {"prediction", "score"} <= {*rows.roles}:
        rows = _value_of(rows, names, where)
    elif "score" in rows.roles and names.score is None:
        _refuse_classes(rows, where)
    if "score" in rows.roles:
        rows = replace(rows, roles=rows.roles.assign(score=_numbers(rows, where)))
    if names.cluster in rows.further and "cluster" not in rows.roles:  # of a log
        rows = rows.with_role("cluster", rows.further[names.cluster], str(names.cluster))
    rows = _with_ids(rows, names, where)
    _refuse_folds(rows.read.columns, where)
    if names.arm is None and rows.read.columns.get("arm", "").lower() in USUAL_NAMES["arm"]:
        _refuse_groups(rows, where)
    rows = replace(rows, read=replace(rows.read, possible_cluster=_possible_cluster(rows)))
    if rows.read.columns.get("score", "").lower() == "loss":
        rows = replace(rows, read=replace(rows.read, logged_metric="loss"))
    return rows


def _refuse_folds(columns: Mapping[str, str], where: str) -> None:
    """Refuses scores of whole folds, which share training data."""
    for name in [columns[role] for role in ("seed", "run", "example") if role in columns]:
        is_whole = columns.get("example", name) in (ONE_SCORE, POSITION, name)
        if _FOLDS.fullmatch(name) and is_whole and "score" in columns:
            raise UserError(
                f"{where}: found scores by {name!r}, expected runs that do not depend on each other: folds "
                "and random splits share training data, so that p is far too small; test them "
                f"{FOLDS_ARE_IN}, or give each example's predictions, with a column of seeds"
            )


def _refuse_groups(rows: Rows, where: str) -> None:
    """Refuses arms of a usual name that share no example: people or languages, not models."""
    examples, arms = rows.roles["example"], rows.roles["arm"]
    of_first = examples == examples.iloc[0]
    if arms[of_first].nunique() < arms.nunique():
        of_first = examples.isin(examples[arms == arms.iloc[0]])
    if arms[of_first].nunique() < arms.nunique():
        name, values = rows.read.columns["arm"], listed(map(repr, arms.unique()))
        raise UserError(
            f"{where}: the values of {name!r} ({values}) share no example, so they are groups and not "
            f"models; give --arm={NO_ARM} to read them together, and compare with --by={name} for each"
        )


def _possible_cluster(rows: Rows) -> str:
    """Returns a column of texts that several examples share, if clusters are unknown."""
    names = [] if "cluster" in rows.roles else [n for n in rows.further if n.lower() in _GROUPS]
    for name in names:
        pairs = rows.roles[["example"]].assign(value=rows.further[name]).drop_duplicates()
        most = pairs["example"].nunique() / 2
        if len(pairs) == 2 * most and 2 <= pairs["value"].nunique() <= most:
            return str(name)
    return ""


def parting(frame: pandas.DataFrame, accounted: Collection[str] = ()) -> dict[str, pandas.Series]:
    """Returns the columns without a role that may part the rows of a run, as texts."""
    names = [name for name in frame if str(name).lower() in PARTING and name not in accounted]
    cells = {name: frame[[name]].iloc[:, 0].astype(object) for name in names}
    return {name: column.map(str, na_action="ignore") for name, column in cells.items()}


def account_for(rows: Rows, where: str) -> Rows:
    """Refuses columns that part the rows of a run, such as splits and epochs; nothing is chosen silently.

    Returns:
      The rows without such columns. `read` has those whose values are pooled: an example of a run has one.
    """
    roles, pooled = rows.roles, ""
    ids = ["example"] * ("example" in roles)
    parts = parting(roles)
    for name, column in parts.items():
        frame = roles[ids].assign(run=rows.runs, value=column).dropna(subset=["value"])
        of_values = frame[[*ids, "value"]].drop_duplicates() if ids else frame
        sizes = of_values["value"].value_counts(sort=False)
        values = sizes.index.tolist()
        are_splits = any(map(SPLITS.fullmatch, values))
        is_state, is_time = name.lower() in _STATES, name.lower() in _TIMES and not are_splits
        has_parts = frame.groupby("run")["value"].nunique().max() > 1
        if len(sizes) < 2 or not (are_splits or is_state or has_parts):
            continue
        unit = [*ids, *["run"] * (not is_state)]
        is_pooled = not frame[[*unit, "value"]].drop_duplicates()[unit].duplicated().any()
        if not ids:  # several examples of each value, not scores of runs
            is_pooled = bool(frame.duplicated().any()) and not (is_state or is_time)
        if is_pooled and not are_splits:
            pooled += f"The rows of {len(sizes)} values of {name!r} ({listed(values)}) {POOLED} "
            continue
        if not are_splits and not (ids and "seed" in roles):
            _refuse_folds({"seed": name, "score": ""}, where)
        counts = [f"{value}: {size:,}" for value, size in zip(values, sizes, strict=True)]
        chosen = next(filter(_USUALLY_CHOSEN.fullmatch, values), values[-1])
        cure = f"--where={shlex.quote(f'{name}={chosen}')}"
        if is_time:
            cure = f"--where={name}=last for the last of each run, or one value ({cure})"
        by_name = " in the names of files" * (rows.read.columns.get(name) == BY_NAME)
        raise UserError(
            f"{where}: found {len(sizes)} values of {name!r}{by_name} ({listed(counts)} "
            f"{'examples' if ids else 'rows'}), expected rows of one; give {cure}"
        )
    read = replace(rows.read, pooled=pooled.strip())
    return replace(rows, roles=roles.drop(columns=[*parts]), read=read)


def chosen_rows(frame: pandas.DataFrame, names: RowNames, where: str) -> pandas.DataFrame:
    """Returns the rows that `--where` chooses; `last` is the largest number of each run."""
    conditions = [part.partition("=")[::2] for part in (names.where or "").split(",") if part]
    for name, value in sorted(conditions, key=lambda condition: condition[1] == "last"):
        if name not in frame or not value:
            raise UserError(
                f"{where}: found {name!r} in --where={names.where}, expected COLUMN=VALUE of the columns "
                f"{columns_of(frame)}; correct it"
            )
        texts = frame[[name]].iloc[:, 0].astype(str).str.strip().str.removesuffix(".0")
        are_chosen = texts == value.removesuffix(".0")
        if value == "last" and not are_chosen.any():
            numbers = texts.str.extract(r"(\d+(?:\.\d+)?)\D*$")[0].astype(float)
            columns, _ = columns_by_role(frame, names.told, where)
            of_runs = {columns.get(role) for role in ("arm", "seed", "run")}
            of_runs |= {"task", "evaluation_set", *TASK_NAMES}
            keys = [frame[key] for key in frame if key in of_runs and key != name]
            most = numbers.groupby(keys, dropna=False).transform("max") if keys else numbers.max()
            are_chosen = numbers == most
        if not are_chosen.any():
            values = [*texts.unique()]
            raise NoPredictionsError(
                f"{where}: found no {value!r} in column {name!r}, only {listed(values)}; choose one, such as "
                f"--where={shlex.quote(f'{name}={values[-1]}')}"
            )
        frame = frame[are_chosen].reset_index(drop=True)
    return frame


def _value_of(rows: Rows, names: ColumnNames, where: str) -> Rows:
    if names.prediction is not None and names.score is not None:
        raise UserError(
            f"{where}: found --prediction={names.prediction} and --score={names.score}, expected one of "
            "them; leave the other out"
        )
    columns, unused = dict(rows.read.columns), [*rows.read.unused]
    lost = "prediction" if names.score is not None else "score"
    if names.prediction is None and names.score is None and "label" not in rows.roles:
        # Without labels, only the scores of the other program can be used.
        lost = "prediction"
        if columns["score"].lower() in SCORE_OR_LABEL and not _is_score(rows, where):
            rows = rows.with_role("label", rows.roles["score"], columns["score"])
            lost, columns = "score", dict(rows.read.columns)
    name = columns.pop(lost)
    unused += [name] * (name not in columns.values())
    read = replace(rows.read, unused=unused, columns=columns)
    return replace(rows, roles=rows.roles.drop(columns=lost), read=read)


def _is_score(rows: Rows, where: str) -> bool:
    """Returns whether an ambiguous column holds scores, not labels."""
    roles = rows.roles
    marks, predictions = roles["score"], roles["prediction"]
    is_mark = set(marks.dropna().unique().tolist()) <= {0, 1}
    if is_mark and not set(predictions.dropna().unique().tolist()) & {0, 1}:
        return True  # predictions are other classes, so 0 and 1 cannot be labels
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
        f"{where}: the column {score!r} beside the predictions {prediction!r} may hold scores or labels; "
        f"say which with --score={score} or --label={score}"
    )


def _refuse_classes(rows: Rows, where: str) -> None:
    """Refuses a column with a name like `correct` that does not hold scores, but for example labels."""
    values, name = rows.roles["score"].dropna(), rows.read.columns["score"]
    is_share = values.dtype.kind in "biuf" and bool(values.between(0, 1).all())
    if name.lower() in SCORE_OR_LABEL and not is_share:
        examples = listed(repr(value) for value in values.unique().tolist()[:5])
        raise UserError(
            f"{where}: the column {name!r} holds {examples}, expected 0 and 1, the score of each "
            f"example; if these are labels, name the predictions, too (--label={name} "
            f"--prediction=COLUMN), and if they are scores give --score={name}"
        )


def _numbers(rows: Rows, where: str) -> pandas.Series:
    """Returns the scores as numbers, "81.2%" as 81.2; refuses a column with any other text."""
    import pandas

    cells = rows.roles["score"]
    texts = cells.dropna().astype(str)
    if cells.dtype.kind in "biuf" or texts.empty:
        return cells
    per_cents, expected = texts.str.fullmatch(_PER_CENT), "a number"
    if per_cents.any():
        texts, expected = texts.where(per_cents).str.rstrip("% "), "per cent as in other rows"
    numbers = pandas.to_numeric(texts, errors="coerce")
    if not numbers.isna().any():
        return numbers.reindex(cells.index)
    row = numbers.isna().idxmax()
    keys = [key for key in ("arm", "seed", "run", "example") if key in rows.roles]
    raise UserError(
        f"{where}: found {shortened(cells[row])} in column {rows.read.columns['score']!r} "
        f"({', '.join(f'{key} {rows.roles[key][row]}' for key in keys)}), expected {expected}; "
        "correct the cell, or leave the row out"
    )


# With fewer rows, a column that distinguishes them may also name models.
_FEWEST_IDS = 10


def _with_ids(rows: Rows, names: ColumnNames, where: str) -> Rows:
    """Finds ids if no column has their usual name, and the columns that identify examples."""
    roles, further, columns = rows.roles, rows.further, dict(rows.read.columns)
    texts = [*filter(is_text, further)]
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
    most_rows = int(position.max()) + 1  # of a run
    if "example" not in roles and most_rows < _FEWEST_IDS:
        guessed = [
            name
            for name in candidates
            if name in rows.possible_ids and not INDEX.fullmatch(str(name))
        ]
        if guessed and most_rows > 1:
            raise UserError(
                f"{where}: found {most_rows} rows of a run, which the column {guessed[0]!r} distinguishes; "
                f"give --arm={guessed[0]} if it names models, or --example={guessed[0]} if it names examples"
            )
        candidates = [name for name in candidates if name not in guessed]
    id_column = columns.get(
        "example", candidates[0] if candidates else POSITION if position.any() else ONE_SCORE
    )
    if "example" in roles:
        first, is_number = roles["example"], _counts(roles["example"], position)
        rivals = [name for name in candidates if further[name].dtype.kind in "OT" or is_number]
        rivals = [] if names.example is not None else rivals
    else:
        first, rivals = (further[id_column] if candidates else position), candidates[1:]
        roles, columns["example"] = roles.assign(example=first), id_column
    for name in rivals:
        pairs = further[[name]].assign(**{"": first}).drop_duplicates()
        # Two examples may share a text, but with the right ids not in both directions.
        if pairs[""].duplicated().any() and pairs[name].duplicated().any():
            raise UserError(
                f"{where}: the columns {id_column!r} and {name!r} both look like ids, but pair the "
                f"examples of different runs differently; name the right one with --example={id_column} or "
                f"--example={name}"
            )
    told_apart = [name for name in candidates if name in texts or name not in (id_column, *roles)]
    num_examples = roles["example"].nunique()
    identifying = [  # ranks within runs do not identify examples
        name
        for name in told_apart
        if len(further[[name]].assign(**{"": roles["example"]}).drop_duplicates()) <= num_examples
    ]
    for name in [fact for fact in FACT_NAMES if fact in further]:
        values = further[name].groupby(roles["example"]).nunique()
        if values.max() > 1:
            raise UserError(
                f"{where}: found several values of {name!r} for the example "
                f"{values.index.tolist()[values.argmax()]!r}, expected the same in all runs; compare runs on "
                "the same data, or name the column of ids with --example"
            )
        identifying += [name] * (name not in identifying)
    further_columns = [
        name for name in further if name not in rows.possible_ids or name in told_apart
    ]
    read = replace(rows.read, columns=columns, identifying=identifying)
    return replace(rows, roles=roles, further=further[further_columns], read=read)


def may_be_ids(column: pandas.Series, position: NDArray) -> bool:
    """Returns whether a column has distinct values that do not just count rows."""
    is_other = INDEX.fullmatch(str(column.name)) or is_text(column.name)
    one_run = np.zeros(len(column), np.int64)
    return not is_other and _tells_apart(one_run, column) and not _counts(column, position)


def _counts(column: pandas.Series, position: NDArray) -> bool:
    """Returns whether values just count the rows of every run, from 0 or 1."""
    if column.dtype.kind not in "iu":
        return False
    return bool(np.isin(column.to_numpy() - position, (0, 1)).all())


def columns_by_role(
    frame: pandas.DataFrame, user_names: Mapping[str, str], where: str
) -> tuple[dict[str, str], list[str]]:
    """Returns the column of each role, and unused columns with usual names."""
    alike: dict[str, list[str]] = {}
    for column in frame.columns:
        alike.setdefault(str(column).lower(), []).append(str(column))
    columns: dict[str, str] = {}

    def take(role: str, names: Sequence[str]) -> None:
        if len(names) > 1:
            same = len({*names}) == 1
            raise UserError(
                f"{where}: found {counted(len(names), 'column')} for the {role}, "
                f"{' and '.join(map(repr, names))}; "
                + ("rename or remove one" if same else f"name the right one with --{role}=COLUMN")
            )
        columns[role] = names[0]

    for role, name in user_names.items():
        if name in frame.columns and role != "by":
            take(role, [column for column in alike[name.lower()] if column == name])
        # Slices may be computed from other columns, and column names may contain seeds and arms.
        may_lack = {"by": ("label", "length"), "seed": (COLUMNS,), "arm": (COLUMNS, NO_ARM)}
        if name not in frame.columns and name not in may_lack.get(role, ()):
            raise UserError(
                f"{where}: found no column {name!r} for --{role}, only {columns_of(frame)}; name one of these"
                + ", label or length" * (role == "by")
            )
    left_out: set[str] = set()
    for role, usual in USUAL_NAMES.items():
        # A column `group` of slices names no arms.
        by = user_names.get("by", "").lower() if role == "arm" else ""
        names = [name for name in usual if name in alike and name != by]
        if role not in user_names and names and alike[names[0]][0] not in columns.values():
            take(role, alike[names[0]])
            left_out |= {*names} if role not in ("example", "cluster") else set()
    used = {*columns.values(), *user_names.values(), *FACT_NAMES}
    unused = [str(name) for name in frame.columns if str(name).lower() in left_out]
    return columns, [name for name in unused if name not in used]


def with_plain_cells(
    frame: pandas.DataFrame, roles: Mapping[str, str], where: str
) -> pandas.DataFrame:
    """Returns a table with one text or number, or a set of texts, in each cell with a role.

    Lists of texts in predictions and labels become sorted tuples (sets of labels, or references of an
    answer); lists of tags become texts. Truth values with missing ones (R, JSON) become 1, 0 and NaN.
    """
    import pandas

    frame = frame.copy(deep=False)
    for role, column in roles.items():
        cells = frame[column]
        kind = pandas.api.types.infer_dtype(cells, skipna=True) if cells.dtype == object else ""
        if kind == "boolean":
            frame[column] = cells.astype("boolean").to_numpy(np.float64, na_value=np.nan)
        if kind in ("", "string", "boolean"):
            continue
        may_be_lists = role in ("prediction", "label")
        if may_be_lists and any(isinstance(cell, _LISTS) for cell in cells):
            cells = pandas.Series(_sets_or_tags([*cells], role), frame.index, dtype=object)
            frame[column] = cells
        for row, cell in zip(frame.index + 1, cells, strict=True):
            is_set = may_be_lists and isinstance(cell, tuple) and _texts_in(cell) is not None
            if not (is_set or cell is None or isinstance(cell, _PLAIN)):
                raise UserError(
                    f"{where}: found {shortened(cell)} in column {column!r}, row {row}, expected one text or "
                    "number; write one value per row"
                )
    return frame


def _sets_or_tags(cells: list[Any], role: str) -> list[Any]:
    """Returns lists of texts as sorted tuples, or lists of tags as texts; other cells unchanged."""
    lists = [_texts_in(cell) for cell in cells]
    every = {text for texts in lists if texts is not None for text in texts}
    are_tags = bool(every) and all(map(_TAG.fullmatch, every))

    def joined(cell: Any, texts: list[str] | None) -> Any:
        # A prediction that repeats a text is not a set, but references of an answer may be equal.
        if texts is None or not (are_tags or role == "label" or len({*texts}) == len(texts)):
            return cell
        return " ".join(texts) if are_tags else tuple(sorted({*texts}))

    return [joined(cell, texts) for cell, texts in zip(cells, lists, strict=True)]


def _texts_in(cell: Any) -> list[str] | None:
    # In `datasets`, answers of SQuAD are an object with lists of texts and positions.
    texts = cell.get("text", cell) if isinstance(cell, dict) else cell
    texts = [texts] * bool(texts) if isinstance(texts, str) else texts
    is_list = isinstance(texts, list | tuple | np.ndarray)
    return [*texts] if is_list and all(isinstance(text, str) for text in texts) else None
