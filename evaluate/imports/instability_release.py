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
from multiberts.runs.archives import read_arrays
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
    arrays = read_arrays(path)
    missing = [name for name in _NEEDED if name not in arrays]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; fetch the file again")
    _check(path, arrays)
    for place, seed in enumerate(arrays["seeds"].tolist()):
        origin = "Zhou et al. (2020), predictions of ten seeds"
        facts = facts_of("MNLI", "original", 0, seed, origin)
        read = partial(_read, arrays, place)
        yield ImportedRun(f"MNLI/original-finetune_seed_{seed}", facts, (path,), read)


def _check(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Refuses arrays of other kinds or sizes than the file has.

    Raises:
      UserError: naming the first such array.
    """
    seeds, names = arrays["seeds"].size, arrays["label_names"].size
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        "seeds": ("iu", (seeds,)), "label_names": ("U", (names,)),
    }  # fmt: skip
    for key in filter(lambda name: name.startswith(_PREDICTIONS), arrays):
        name, examples = key.removeprefix(_PREDICTIONS), arrays[key].shape[-1:]
        expected[key] = ("iub", (seeds, *examples))
        expected[f"logits_{name}"] = ("f", (seeds, *examples, names))
        gold = {"mnli": "gold_mnli", "hans": "gold_hans_entailment"}.get(name, "")
        expected[gold] = ("iub", examples)
    for key, (kinds, shape) in expected.items():
        array = arrays.get(key)
        if array is not None and (array.dtype.kind not in kinds or array.shape != shape):
            raise UserError(
                f"{path}: {key} is {array.dtype} {list(array.shape)}, expected {list(shape)} of "
                f"{'texts' if kinds == 'U' else 'numbers'}; fetch the file again"
            )
    if "entailment" not in arrays["label_names"]:
        raise UserError(f"{path}: label_names lack entailment; fetch the file again")


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
