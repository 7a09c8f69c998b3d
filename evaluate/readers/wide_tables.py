"""Converts tables with one column per run, such as `base_seed_0`, to one row per run and example."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from multiberts.evaluate.readers.rows import (
    ARM_COLUMNS,
    BY_COLUMNS,
    GAP,
    INDEX,
    SCORE_OR_LABEL,
    SEED_WORDS,
    USUAL_NAMES,
    any_of,
    columns_of,
    is_text,
    more_is_better,
)
from multiberts.runs.errors import UserError

if TYPE_CHECKING:
    import pandas

# `--seed=columns`: one column per seed, with any text before the seed's number.
COLUMNS = "columns"
# A column of one run, such as `seed_0`, `base_seed_0` or `seed_0_base`.
_RUN_COLUMN = re.compile(
    rf"(?:(?P<before>.+?){GAP}+)??(?:{SEED_WORDS}){GAP}*(?P<seed>\d+)(?:{GAP}+(?P<after>\D.*))?",
    re.IGNORECASE,
)
_NUMBERED = re.compile(rf"(?P<before>.*?){GAP}*(?P<seed>\d+)(?P<after>)")
# Words for the role in names of run columns, with their role and usual name.
_VALUE_ROLES = ("prediction", "score", "label")
_VALUES = {
    name.replace("_", ""): (role, name) for role in _VALUE_ROLES for name in USUAL_NAMES[role]
}
_WORD = any_of(name for _, name in _VALUES.values())
_WORD_LAST = re.compile(rf"(?:(?P<arm>.+?){GAP}+)??(?P<word>{_WORD})", re.IGNORECASE)
_WORD_FIRST = re.compile(rf"(?P<word>{_WORD}){GAP}+(?P<arm>.+)", re.IGNORECASE)


class _RunColumn(NamedTuple):
    """A column of one run, with the arm, seed, role and role's word in its name, if any."""

    column: str
    arm: str
    seed: int
    role: str
    word: str


def long_table(
    frame: pandas.DataFrame,
    header: Iterable[str],
    roles: dict[str, str],
    user_names: Mapping[str, str],
    where: str,
    *,
    has_seeds: bool,
) -> tuple[pandas.DataFrame, dict[str, str], list[str]]:
    """Returns a table with one row per run and example; refuses ambiguous columns with numbers.

    Args:
      header: names of the table's columns, including duplicates.
      user_names: the user's names by role; with the seed `columns` any number is a seed.

    Returns:
      The table, indexed by the row of each example; the column of each role; and unused columns.

    Examples:
      >>> import pandas
      >>> wide = pandas.DataFrame({"id": ["a", "b"], "seed_3": [1, 1], "seed_4": [1, 0]})
      >>> long, roles, _ = long_table(wide, wide, {"example": "id"}, {}, "file", has_seeds=False)
      >>> roles["score"], long[roles["score"]].tolist(), long[roles["seed"]].tolist()
      ('seed_3 ... seed_4', [1, 1, 1, 0], [3, 3, 4, 4])
    """
    import pandas

    if user_names.get("arm") == COLUMNS and "arm" not in roles:
        return _by_arm(frame, roles, user_names)
    by_columns = user_names.get("seed") == COLUMNS and "seed" not in roles
    numbered = [
        name
        for name in header
        if re.search(r"\d", str(name))
        and name not in roles.values()
        and not (is_text(name) or INDEX.fullmatch(str(name)))
    ]
    run_columns: list[_RunColumn] = []
    if by_columns or not (has_seeds or "prediction" in roles):
        run_columns = _run_columns(numbered, by_columns)
    if not run_columns:
        if by_columns:
            raise UserError(
                f"{where}: found no column with a number in its name for --seed={COLUMNS}, only "
                f"{columns_of(frame)}; name the column of seeds with --seed=COLUMN"
            )
        if not {"prediction", "score"} & {*roles}:
            _ask_of_numbers(frame, [*dict.fromkeys(numbered)], where, has_seeds=has_seeds)
        return frame, roles, []
    by_role = _columns_of_roles(frame, run_columns, where, has_label="label" in roles)
    labels = [*by_role.pop("label").values()]
    runs = [*dict.fromkeys(run for columns in by_role.values() for run in columns)]
    values = {
        role: [columns[run] for run in runs]
        for role, columns in by_role.items()
        if len(columns) == len(runs) > 0
    }
    if not values:
        raise UserError(
            f"{where}: found no predictions or scores of every seed among {columns_of(frame)}; write them "
            "into a column for each seed"
        )
    arms = [arm for arm, _ in runs]
    if len({*map(bool, arms)}) > 1:
        raise UserError(
            f"{where}: found columns of runs with and without the name of an arm among {columns_of(frame)}; "
            "write it into all of them, as in base_seed_0 and new_seed_0"
        )
    roles = roles | ({"label": labels[0]} if labels else {})
    of_rows: dict[str, str] = {
        role: roles[role] for role in ("example", "label", "cluster") if role in roles
    }
    # A column of arms with one row per model; other columns may be groups of examples.
    if not all(arms) and "arm" in roles and ("arm" in user_names or frame[roles["arm"]].is_unique):
        of_rows["arm"] = roles["arm"]
    dropped = {*(run.column for run in run_columns), *roles.values()}
    dropped -= {*of_rows.values(), user_names.get("by", "")}
    # Columns of examples are repeated for each run.
    of_examples = frame[[name for name in frame if name not in dropped]]
    table = pandas.concat([of_examples] * len(runs))
    table[BY_COLUMNS] = np.repeat([seed for _, seed in runs], len(frame))
    long_roles = {"seed": BY_COLUMNS}
    for role, columns in values.items():
        long_roles[role] = _first_to_last(columns)
        table[long_roles[role]] = pandas.concat([frame[name] for name in columns])
    if all(arms):
        of_rows["arm"] = ARM_COLUMNS
        table[ARM_COLUMNS] = np.repeat(arms, len(frame))
    read = {*labels, *(name for columns in values.values() for name in columns)}
    unused = [str(name) for name in header if name in dropped and name not in read]
    return table, long_roles | of_rows, unused


def _first_to_last(columns: Sequence[str]) -> str:
    return " ... ".join(map(str, dict.fromkeys((columns[0], columns[-1]))))


def _by_arm(
    frame: pandas.DataFrame, roles: Mapping[str, str], user_names: Mapping[str, str]
) -> tuple[pandas.DataFrame, dict[str, str], list[str]]:
    import pandas

    used = {*roles.values(), *user_names.values(), "task", "evaluation_set"}
    arms = [name for name in frame if name not in used and not is_text(name)]
    of_examples = frame.drop(columns=arms)
    table = pandas.concat([of_examples.assign(**{ARM_COLUMNS: str(name)}) for name in arms])
    values = _first_to_last(arms)
    table[values] = pandas.concat([frame[name] for name in arms])
    role = "score" if table[values].dtype.kind in "biuf" and "label" not in roles else "prediction"
    return table, {**roles, "arm": ARM_COLUMNS, role: values}, []


def _columns_of_roles(
    frame: pandas.DataFrame, run_columns: Sequence[_RunColumn], where: str, *, has_label: bool
) -> dict[str, dict[tuple[str, int], str]]:
    """Returns the columns of predictions, scores and labels by arm and seed.

    Args:
      has_label: whether another column has the labels; label columns of runs are then ignored.
    """
    words = {run.word for run in run_columns}
    # The first of several words for a role, as in long tables.
    chosen = {role: next((w for w in USUAL_NAMES[role] if w in words), "") for role in _VALUE_ROLES}
    wordless = "prediction" if has_label or chosen["label"] else "score"
    by_role: dict[str, dict[tuple[str, int], str]] = {role: {} for role in _VALUE_ROLES}
    for column, arm, seed, role, word in run_columns:
        if role and word != chosen[role]:
            continue
        columns = by_role[role or wordless]
        if (arm, seed) in columns:
            raise UserError(
                f"{where}: the columns {str(columns[arm, seed])!r} and {str(column)!r} are both of seed "
                f"{seed}; rename or remove one"
            )
        columns[arm, seed] = column
    predictions, scores = by_role["prediction"], by_role["score"]
    if wordless == "score" and chosen["score"] in SCORE_OR_LABEL and predictions:
        # As in long tables, values that are constant while predictions differ are labels.
        differ = [_differing(frame, columns.values()) for columns in (scores, predictions)]
        if differ[1] and not differ[0]:
            by_role |= {"label": scores, "score": {}}
    if has_label:
        by_role["label"] = {}
    pair = _differing(frame, by_role["label"].values())
    if pair:
        raise UserError(
            f"{where}: found different labels in the columns {pair[0]!r} and {pair[1]!r}, expected the "
            "same for every seed; put all into one order, or rename them if they are of an arm"
        )
    return by_role


def _run_columns(numbered: Iterable[str], by_number: bool) -> list[_RunColumn]:
    """Returns the columns of runs, by the word seed or run in their names, or by any number."""
    stems: list[tuple[str, str, int]] = []
    for column in numbered:
        match = _RUN_COLUMN.fullmatch(str(column))
        if match is None and by_number:
            match = _NUMBERED.fullmatch(str(column))
        if match:
            stem = "_".join(filter(None, (match["before"], match["after"])))
            stems.append((column, stem, int(match["seed"])))
    first = {stem: _WORD_FIRST.fullmatch(stem) for _, stem, _ in stems}
    # `pred_base` and `label_base` belong to one arm, but `label_smoothing` alone is an arm.
    num_roles = len({_role_of(match["word"]) for match in first.values() if match})
    # A measure is not the name of an arm: `rmse_seed_0`.
    is_measure = len(first) == 1 and more_is_better(*first, every_word=True) is not None
    columns = []
    for column, stem, seed in stems:
        match = _WORD_LAST.fullmatch(stem) or (first[stem] if num_roles > 1 else None)
        arm, word = (match["arm"] or "", match["word"]) if match else (stem, "")
        arm = "" if is_measure else arm
        columns.append(_RunColumn(column, arm, seed, *_role_of(word)))
    return columns


def _role_of(word: str) -> tuple[str, str]:
    return _VALUES.get(re.sub(GAP, "", word.lower()), ("", ""))


def _ask_of_numbers(
    frame: pandas.DataFrame, numbered: Iterable[str], where: str, *, has_seeds: bool
) -> None:
    """Raises a UserError on columns with numbers, if no other column has predictions or scores."""
    columns = [name for name in numbered if re.search(r"\d$", str(name))]
    by_stem: dict[str, list[str]] = {}
    for name in columns:
        by_stem.setdefault(re.sub(r"\d+$", "", str(name)), []).append(name)
    if len(by_stem) > 1 and "" in by_stem and not has_seeds:
        raise UserError(
            f"{where}: found the columns {columns_of(frame)}; the first line must name the columns, such as "
            "seed, id, prediction and label"
        )
    for of_classes in by_stem.values():
        if _is_distribution(frame[of_classes]):
            cure = f"name that of class 1 (--prediction={of_classes[-1]} --metric=auc)"
            if len(of_classes) > 2:
                cure = "write the class that is predicted into a column (--prediction=COLUMN)"
            raise UserError(
                f"{where}: the columns {of_classes[0]} to {of_classes[-1]} sum to 1 in every row, as the "
                f"probabilities of classes do; {cure}"
            )
    if columns and not has_seeds:
        raise UserError(
            f"{where}: the columns {', '.join(map(str, columns[:4]))} end in numbers, which may be seeds or "
            f"something else; give --seed={COLUMNS} if there is one column per seed, otherwise name columns "
            "with --seed=COLUMN and --prediction=COLUMN or --score=COLUMN"
        )


def _is_distribution(table: pandas.DataFrame) -> bool:
    """Returns whether columns are shares that sum to 1 in every row, up to rounding to two decimals."""
    if table.shape[1] < 2 or any(kind.kind not in "iuf" for kind in table.dtypes):
        return False
    values = table.to_numpy(np.float64)
    are_shares = bool(((values >= 0) & (values <= 1)).all())
    return are_shares and bool((np.abs(values.sum(axis=1) - 1) <= 0.005 * table.shape[1]).all())


def _differing(frame: pandas.DataFrame, columns: Iterable[str]) -> tuple[str, str] | None:
    """Returns the first column and a column that differs from it, or None."""
    first, *others = [*columns] or [""]
    return next(((first, name) for name in others if not frame[first].equals(frame[name])), None)
