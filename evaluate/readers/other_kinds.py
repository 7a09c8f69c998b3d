"""Recognises files of other kinds by their content, and names the files to give instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from multiberts.runs.errors import UserError
from multiberts.runs.files import SPREADSHEET, UNPACK


class NoPredictionsError(UserError):
    """A file without predictions, such as settings, which is skipped in a folder."""


TABLE = "write a table (CSV) with a row per seed and example: seed, id, prediction and label"
_SCORES = "write a table (CSV) with a row per seed and example: seed, id and score"

# Ends of member names in a zip file, the kind of the file, and the advice to users.
_MEMBERS = (
    ("xl/workbook.xml", "a spreadsheet of Excel (.xlsx)", SPREADSHEET),
    ("META-INF/manifest.xml", "a spreadsheet of OpenDocument (.ods)", SPREADSHEET),
    ("data.pkl", "a pickle of PyTorch", TABLE),
    (".csv", "a zip of tables", UNPACK),
    (".tsv", "a zip of tables", UNPACK),
    (".json", "a zip of JSON files", UNPACK),
    (".jsonl", "a zip of JSON files", UNPACK),
)
# Names of fields or columns, kind of the file, whether it lacks values of examples, and advice to users.
_FIELDS = (
    ({"log_history", "global_step"}, "the Trainer's state of a whole run", True, TABLE),
    ({"dataset", "task", "model", "results", "num_model_parameters"},
     "EuroEval's scores of whole data sets", True, _SCORES),
    ({"results", "configs", "versions"}, "lm-evaluation-harness's scores of whole tasks", True,
     "run lm_eval with --log_samples and give its output folder"),
    ({"text", "probability", "start_logit", "end_logit"}, "the best answers of each question (nbest)", True,
     "give the answers themselves, the file predictions.json beside it"),
    ({"class", "fpr", "tpr"}, "a ROC curve", True, TABLE),
    ({"origin_prompt", "prediction"}, "OpenCompass's raw answers, before it extracts the choice from them",
     False, _SCORES),
    ({"doc", "metric", "model_response"}, "lighteval's details", False, _SCORES),
    ({"full_prompt", "cont_tokens", "metrics"}, "lighteval's details", False, _SCORES),
)  # fmt: skip


def refuse_archive(path: Path, members: Collection[str]) -> None:
    """Refuses a zip file by the names of its members."""
    for end, kind, cure in _MEMBERS:
        if any(name.endswith(end) for name in members):
            raise UserError(f"{path} is {kind}, which is not read; {cure}")


def refuse_fields(path: Path, names: Iterable[object]) -> None:
    """Refuses a table or JSON object by the names of its columns or fields."""
    fields = {*map(str, names)}
    for sign, kind, is_without, cure in _FIELDS:
        if sign <= fields:
            refuse = NoPredictionsError if is_without else UserError
            raise refuse(f"{path} holds {kind}; {cure}")
