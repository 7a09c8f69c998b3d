"""Reads ten fine-tuning runs of BERT on MNLI, with answers on twelve sets (Zhou et al., 2020).

They are one .npz file:

    seeds                [runs]
    label_names          [3]
    preds_<set>          classes [runs, examples]
    logits_<set>         [runs, examples, 3]; of some sets
    gold_mnli            classes [examples]
    gold_hans_entailment 1 or 0 [examples]; with hans_subcase_id, hans_subcase_names

All runs start from one checkpoint, so they share a pre-training seed. The file does not have the right
answers of the other sets: their labels are unknown.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from multiberts.evaluate.imports.imported_runs import (
    ImportedRun,
    ImportedSet,
    facts_of,
    predictions_of,
)
from multiberts.runs.errors import UserError
from multiberts.runs.files import PathLike

_PREDICTIONS = "preds_"
_NEEDED = ("seeds", "label_names", "preds_mnli", "gold_mnli")


def read_instability(source: PathLike) -> Iterator[ImportedRun]:
    """Reads the ten runs, each with all sets; MNLI matched is `dev`.

    Yields:
      The runs, in the order of the file.

    Raises:
      UserError: the file is missing or lacks an array.
    """
    path = Path(source)
    try:
        arrays = dict(np.load(path, allow_pickle=False))
    except FileNotFoundError as error:
        raise UserError(f"{path} does not exist; check the path") from error
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not a whole .npz file ({error}); fetch it again") from error
    missing = [name for name in _NEEDED if name not in arrays]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; fetch the file again")
    for place, seed in enumerate(arrays["seeds"].tolist()):
        origin = "Zhou et al. (2020), predictions of ten seeds"
        facts = facts_of("MNLI", "original", 0, seed, origin)
        read = partial(_read, arrays, place)
        yield ImportedRun(f"MNLI/original-finetune_seed_{seed}", facts, (path,), read)


def _read(arrays: dict[str, np.ndarray], place: int) -> list[ImportedSet]:
    sets = []
    entails = arrays["label_names"].tolist().index("entailment")
    for key in sorted(arrays):
        if not key.startswith(_PREDICTIONS):
            continue
        name = key.removeprefix(_PREDICTIONS)
        answers = arrays[key][place]
        if name == "hans" and "gold_hans_entailment" in arrays:
            sets.append(_hans(arrays, answers == entails))
            continue
        labels = arrays["gold_mnli"] if name == "mnli" else None
        scores = arrays.get(f"logits_{name}")
        if name == "mnli":
            name, prefix = "dev", "MNLI/dev_matched"
        else:
            prefix = name
        ids = [f"{prefix}/{row}" for row in range(len(answers))]
        columns = predictions_of(ids, labels, answers, None if scores is None else scores[place])
        sets.append(ImportedSet(name, columns, () if labels is None else ("accuracy",)))
    return sets


def _hans(arrays: dict[str, np.ndarray], entailed: np.ndarray) -> ImportedSet:
    """Reads HANS, of two classes; the name of a subcase begins with the heuristic's initial."""
    subcases = arrays["hans_subcase_names"][arrays["hans_subcase_id"]]
    heuristics = {"l": "lexical_overlap", "s": "subsequence", "c": "constituent"}
    columns = predictions_of(
        [f"hans/ex{row}" for row in range(len(entailed))],
        arrays["gold_hans_entailment"],
        entailed,
        extras={
            "heuristic": np.array([heuristics[name[0]] for name in subcases.tolist()]),
            "subcase": subcases,
        },
    )
    return ImportedSet("hans", columns, ("accuracy",))
