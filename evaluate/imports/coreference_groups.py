"""Reads the coreference predictions published with the MultiBERTs.

In each of the folders base, base_extra_seeds, cda_intervention-50k and from_scratch:

    run_info.tsv     (row), pretrain_seed, finetune_seed
    preds.tsv        one row per run, one column per sentence of Winogender: 0 the occupation, 1 the
                     participant
    label_info.tsv   (row), gender, pronoun_type, answer, occupation, other_participant, someone,
                     template_idx

Source: the notebook coref of google-research/language, language/multiberts, which reads the share
of women from `occupations-stats.tsv` of Winogender (Rudinger et al., 2018).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np

from multiberts.evaluate.imports.imported_runs import (
    INCREMENTAL_STEPS,
    STEPS,
    ImportedRun,
    ImportedSet,
    facts_of,
    predictions_of,
    read_numbers,
)
from multiberts.evaluate.metrics.winogender_bias import gotcha_column
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import PathLike
from multiberts.runs.tables import read_rows

# Folder -> procedure and step, as the statistics call them.
GROUPS = {
    "base": ("base", STEPS),
    "base_extra_seeds": ("base_extra_seeds", STEPS),
    "cda_intervention-50k": ("cda_incr", INCREMENTAL_STEPS),
    "from_scratch": ("cda_full", STEPS),
}
OCCUPATIONS = "occupations-stats.tsv"
# Gender in the files -> gender in our columns and in Winogender's sentence ids.
_GENDERS = {
    "MASCULINE": ("masculine", "male"),
    "FEMININE": ("feminine", "female"),
    "UNKNOWN": ("neutral", "neutral"),
}
Sentences = tuple[list[str], np.ndarray, dict[str, np.ndarray]]

_LABEL_COLUMNS = ("gender", "answer", "occupation", "other_participant", "someone")


def read_coreference_groups(source: PathLike) -> Iterator[ImportedRun]:
    """Yields the runs, group by group; the evaluation set is `winogender`.

    Args:
      source: the folder with the groups and Winogender's `occupations-stats.tsv`.
    """
    source = Path(source)
    shares = source / OCCUPATIONS
    groups = [name for name in GROUPS if (source / name / "run_info.tsv").is_file()]
    if not groups:
        raise UserError(
            f"{source} has none of the folders {', '.join(GROUPS)} with a run_info.tsv; give the folder "
            "that has them"
        )
    if not shares.is_file():
        raise UserError(f"{shares} does not exist; put Winogender's table there")
    for group in groups:
        # Files are read once for all runs of the group, and again by the next call.
        choices, sentences = cache(_choices), cache(_sentences)
        files = (source / group / "preds.tsv", source / group / "label_info.tsv", shares)
        procedure, step = GROUPS[group]
        columns = ("pretrain_seed", "finetune_seed")
        rows = list(read_rows(source / group / "run_info.tsv", columns))
        for index, row in enumerate(rows):
            seed, finetune_seed = map(row.integer, columns)
            origin = f"MultiBERTs release, example predictions, coref/{group}"
            yield ImportedRun(
                f"coreference/{group}-pretrain_seed_{seed}-finetune_seed_{finetune_seed}",
                facts_of("coreference", procedure, seed, finetune_seed, origin, step=step),
                files,
                partial(_read, choices, sentences, files, index, len(rows)),
            )


def _read(
    choices: Callable[[Path], np.ndarray],
    sentences: Callable[[Path, Path], Sentences],
    files: tuple[Path, Path, Path],
    index: int,
    num_runs: int,
) -> list[ImportedSet]:
    ids, labels, extras = sentences(*files[1:])
    table = choices(files[0])
    if table.shape != (num_runs, len(ids)):
        raise UserError(
            f"{files[0]}: found {counted(len(table), 'row')} of {table.shape[1]}, expected {num_runs} "
            f"runs of {len(ids)} sentences; fetch the files of the folder again"
        )
    columns = predictions_of(ids, labels, table[index], extras=extras)
    return [ImportedSet("winogender", columns, ("accuracy", "bias_correlation", "bias_slope"))]


def _choices(path: Path) -> np.ndarray:
    table = read_numbers(path)
    if not np.isin(table, (0, 1)).all():
        raise UserError(f"{path}: found numbers other than 0 and 1; fetch the file again")
    return table


def _sentences(labels_file: Path, shares_file: Path) -> Sentences:
    share = {
        row["occupation"]: row.number("bls_pct_female")
        for row in read_rows(shares_file, ("occupation", "bls_pct_female"))
    }
    ids, labels, occupations, genders = [], [], [], []
    for row in read_rows(labels_file, _LABEL_COLUMNS):
        gender, word = _GENDERS[row.one_of("gender", _GENDERS)]
        answer = row.one_of("answer", ("0", "1"))
        if row["occupation"] not in share:
            raise row.refused("occupation", f"one of {shares_file}")
        someone = row["someone"].strip().lower() in ("true", "1")
        participant = "someone" if someone else row["other_participant"]
        ids.append(f"winogender/{row['occupation']}.{participant}.{answer}.{word}")
        labels.append(int(answer))
        occupations.append(row["occupation"])
        genders.append(gender)
    if len(set(ids)) != len(ids):
        raise UserError(
            f"{labels_file}: found the same sentence twice, expected each once; fetch the file again"
        )
    shares = np.array([share[name] for name in occupations], dtype=np.float32)
    extras = {
        "occupation": np.array(occupations),
        "gender": np.array(genders),
        "percent_feminine": shares,
        "gotcha": gotcha_column(genders, shares, labels),
    }
    return ids, np.array(labels), extras
