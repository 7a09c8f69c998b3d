"""Files of other kinds: what they are, by their content, and what to give instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from multiberts.runs.errors import UserError


class NoPredictionsError(UserError):
    """A whole file that is none of predictions, such as settings: left out beside others of a folder."""


_SPREADSHEET = "save its sheet as CSV and give that"
_UNPACK = "unpack it and give what is in it"
_TABLE = "write a table (CSV) with a row per seed and example: seed, id, prediction and label"
_SCORES = "write a table (CSV) with a row per seed and example: seed, id and score"

# First bytes, what such a file is, and what to do.
_BYTES = (
    (b"\xd0\xcf\x11\xe0", "a spreadsheet of Excel (.xls)", _SPREADSHEET),
    *((b"\x80" + bytes([protocol]), "a pickle of Python", _TABLE) for protocol in range(2, 6)),
    (b"\x89HDF", "HDF5", _TABLE),
    (b"ARROW1", "Feather", "write it as Parquet (pandas: read_feather, then to_parquet)"),
    (b"SQLite format 3", "a database of SQLite", _TABLE),
    (b"RDX", "data of R", "write it as CSV with write.csv"),
    (b"X\n\x00", "data of R", "write it as CSV with write.csv"),
    (b"BZh", "packed with bzip2", _UNPACK),
    (b"\xfd7zXZ", "packed with xz", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "packed with Zstandard", _UNPACK),
    (b"7z\xbc\xaf", "packed with 7-Zip", _UNPACK),
    (b"%PDF", "a PDF", _TABLE),
    (b"<!DOCTYPE html", "a web page", "fetch the file itself, for example its raw form"),
    (b"<html", "a web page", "fetch the file itself, for example its raw form"),
)
_TAR = 257, b"ustar"
# Ends of names in a zip file, what such a file is, and what to do.
_MEMBERS = (
    ("xl/workbook.xml", "a spreadsheet of Excel (.xlsx)", _SPREADSHEET),
    ("META-INF/manifest.xml", "a spreadsheet of OpenDocument (.ods)", _SPREADSHEET),
    ("data.pkl", "a pickle of PyTorch", _TABLE),
    (".csv", "a zip of tables", _UNPACK),
    (".tsv", "a zip of tables", _UNPACK),
    (".json", "a zip of JSON files", _UNPACK),
    (".jsonl", "a zip of JSON files", _UNPACK),
)
# Names of fields or columns, what such a file is, whether it has none of the examples, and what to do.
_FIELDS = (
    ({"log_history", "global_step"}, "the Trainer's state of a whole run", True, _TABLE),
    ({"dataset", "task", "model", "results", "num_model_parameters"},
     "EuroEval's scores of whole data sets", True, _SCORES),
    ({"results", "configs", "versions"}, "lm-evaluation-harness's scores of whole tasks", True,
     "run lm_eval with --log_samples and give its output folder"),
    ({"text", "probability", "start_logit", "end_logit"}, "the best answers of each question (nbest)", True,
     "give the answers themselves, the file predictions.json beside it"),
    ({"class", "fpr", "tpr"}, "a ROC curve", True, _TABLE),
    ({"origin_prompt", "prediction"}, "OpenCompass's raw answers, before it extracts the choice from them",
     False, _SCORES),
    ({"doc", "metric", "model_response"}, "lighteval's details", False, _SCORES),
    ({"full_prompt", "cont_tokens", "metrics"}, "lighteval's details", False, _SCORES),
)  # fmt: skip


def refuse_bytes(path: Path, start: bytes) -> None:
    """Refuses a file by its first bytes (1,024 are enough), unpacked."""
    at, mark = _TAR
    if start[at : at + len(mark)] == mark:
        raise UserError(f"{path} is a tar archive; {_UNPACK}")
    for sign, kind, cure in _BYTES:
        if start.lstrip()[: len(sign)].lower() == sign.lower():
            raise UserError(f"{path} is {kind}, which is not read; {cure}")


def refuse_archive(path: Path, members: Collection[str]) -> None:
    """Refuses a zip file by the names of what it holds."""
    for end, kind, cure in _MEMBERS:
        if any(name.endswith(end) for name in members):
            raise UserError(f"{path} is {kind}, which is not read; {cure}")


def refuse_fields(path: Path, names: Iterable[object]) -> None:
    """Refuses a table or JSON object by the names of its columns or fields."""
    held = {*map(str, names)}
    for sign, kind, is_without, cure in _FIELDS:
        if sign <= held:
            refuse = NoPredictionsError if is_without else UserError
            raise refuse(f"{path} holds {kind}; {cure}")
