"""Checkpoints that are refused: what is wrong in a folder, and the line that says so."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.checkpoint.checkpoint import DATA, INDEX, Checkpoint, read_checkpoint
from multiberts.runs.errors import UserError
from multiberts.tests.bert import small_checkpoint
from multiberts.tests.bert.small_checkpoint import PIECES, PROVENANCE, write_small

CONFIG = dataclasses.replace(small_checkpoint.CONFIG, num_hidden_layers=3)
# Changes a folder; may return another path, which is opened instead.
Change = Callable[[Path], Path | None]


def bare(*changes: Change) -> Change:
    """These changes, and our record is gone, as of other programs' checkpoints."""

    def change(folder: Path) -> None:
        (folder / "checkpoint.json").unlink()
        for each in changes:
            each(folder)

    return change


def written(name: str, content: str) -> Change:
    return lambda folder: (folder / name).write_text(content) and None


def fields(name: str, **changed: Any) -> Change:
    return lambda folder: written(
        name, json.dumps({**json.loads((folder / name).read_text()), **changed})
    )(folder)


def removed(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def moved(name: str, new: str) -> Change:
    return lambda folder: (folder / name).rename(folder / new) and None


def cut(name: str, count: int) -> Change:
    def change(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:-count])

    return change


def flipped(name: str, place: int) -> Change:
    """One bit is another one."""

    def change(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[place] ^= 1
        (folder / name).write_bytes(content)

    return change


def in_a_run(folder: Path) -> Path:
    for step in (0, 20, 100):
        shutil.copytree(folder, folder.parent / "run" / "checkpoints" / f"step_{step}")
    return folder.parent / "run"


RENAMED = [moved(name, name.replace("bert.ckpt", "model.ckpt-20")) for name in (INDEX, DATA)]
RECORDS = {
    "": r"checkpoint\.json is empty",
    "{": r"checkpoint\.json is not whole JSON",
    "\0\0\0": r"checkpoint\.json is not whole JSON",
    "[" * 100_000: "nested too deep",
    '{"step": ' + "9" * 10_000 + "}": "an integer has 10000 digits",
    "[1]": r"checkpoint\.json holds \[1\], expected fields",
    "null": r"checkpoint\.json holds None, expected fields",
    "{}": "files is missing",
    json.dumps({**PROVENANCE, "step": "20", "files": {}}): "step is '20', expected int",
    json.dumps({**PROVENANCE, "files": {"../x": {}}}): r"lists '\.\./x', which is not a file",
    json.dumps({**PROVENANCE, "files": {"x": {"bytes": 1}}}): "lacks the size or the checksum",
}
CONFIGURATIONS = ["", "null", "[]", "{" * 100_000, '{"vocab_size": ' + "7" * 9999]
TRUNCATED = r"(truncated|damaged).*copy it again"
# By layout; of these, the weights need not be read.
OPENED: dict[str, list[tuple[Change, str]]] = {
    "tf1": [
        (removed(INDEX), r"has no bert\.ckpt\.index"),
        (bare(written("vocab.txt", PIECES + "extra\n")), r"vocab\.txt has 8 pieces.*vocab_size 7"),
        (bare(*RENAMED, written("model.ckpt-40.index", "")),
         r"several checkpoints \(model\.ckpt-20, model\.ckpt-40\)"),
        (bare(moved(DATA, "bert.ckpt.data-00001-of-00002")), r"has no bert\.ckpt\.data-00000-of-00002"),
        (lambda folder: folder.parent, r"is not a checkpoint, but holds some; give .*step_20$"),
        (in_a_run, r"checkpoints \(step_0, step_20, step_100\), such as .*/checkpoints/step_100$"),
        # The release keeps one vocabulary and one configuration for all seeds.
        (bare(moved("vocab.txt", "../vocab.txt")), r"has no vocab\.txt; copy .*vocab\.txt into it"),
        *((written("checkpoint.json", content), line) for content, line in RECORDS.items()),
        *((bare(written("bert_config.json", content)),
           r"bert_config\.json (is|holds) .*restore it from the release") for content in CONFIGURATIONS),
    ],
    "hugging_face": [
        (cut("model.safetensors", 4), rf"model\.safetensors .*{TRUNCATED}"),
        (bare(cut("model.safetensors", 4)), rf"model\.safetensors .*{TRUNCATED}"),
        (lambda folder: folder / "model.safetensors", "safetensors .*; give the directory .*/step_20$"),
        (lambda folder: folder / "model.ckpt", "model.ckpt .*; give the directory .*/step_20$"),
        (bare(moved("model.safetensors", "model-00001-of-00002.safetensors"),
              written("model.safetensors.index.json", "{}")),
         r'several parts.*save_pretrained\(\.\.\., max_shard_size="20GB"\)'),
    ],
}  # fmt: skip
READ: dict[str, list[tuple[Change, str]]] = {
    "tf1": [
        (cut(DATA, 100), rf"bert\.ckpt\.data.*{TRUNCATED}"),
        (bare(cut(DATA, 100)), rf"bert\.ckpt\.data.*{TRUNCATED}"),
        (flipped(DATA, 200), "damaged"),
        (flipped(INDEX, 100), rf"{INDEX} does not match .*damaged"),
        (bare(flipped(DATA, 200)), "damaged"),  # by the checksums of TensorFlow
        (removed("vocab.txt"), r"has no vocab\.txt"),
        (bare(fields("bert_config.json", intermediate_size=24)), r"shape \(8, 16\).*\(8, 24\)"),
        (bare(fields("bert_config.json", num_hidden_layers=2)),
         "holds 3 layers, but its configuration says num_hidden_layers 2"),
    ],
    "hugging_face": [
        *((flipped(name, -20), rf"{name} does not match the checksum .*copy it again")
          for name in ("model.safetensors", "vocab.txt", "tokenizer.json")),
        (bare(fields("config.json", hidden_act="relu")), "hidden_act is 'relu'"),
        (bare(fields("config.json", layer_norm_eps=1e-5)), "layer_norm_eps is 1e-05, expected 1e-12"),
        (bare(fields("config.json", position_embedding_type="relative_key")), "position_embedding_type"),
        (bare(fields("config.json", model_type="roberta")), "model_type is 'roberta', expected 'bert'"),
        (bare(fields("config.json", is_decoder=True)), "is_decoder"),
        (bare(fields("config.json", hidden_size=48)), r"shape .* but config.json says"),
        (bare(fields("config.json", num_hidden_layers=2)), "holds 3 layers, but .* num_hidden_layers 2"),
        (bare(fields("config.json", num_hidden_layers=4)), "holds 3 layers, but .* num_hidden_layers 4"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "layout", "change", "line"),
    [
        pytest.param(call, layout, *row, id=f"{call.__name__}-{layout}-{number}")
        for call, table in ((Checkpoint.open, OPENED), (read_checkpoint, READ))
        for layout, rows in table.items()
        for number, row in enumerate(rows)
    ],
)
def test_it_is_refused(
    tmp_path: Path, call: Callable[[Path], Any], layout: str, change: Change, line: str
) -> None:
    folder = write_small(tmp_path / "step_20", layout=layout, config=CONFIG)
    with pytest.raises(UserError, match=line):
        call(change(folder) or folder)
