"""Each file of each input of each stage is changed by itself: a run's directory and the plan say the same."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint
from multiberts.finetune import finetuning
from multiberts.launch import published_predictions
from multiberts.launch.plan.graph import Graph
from multiberts.launch.plan.planned_run import stage_function
from multiberts.pretrain.corpus import preparation
from multiberts.pretrain.training import pretraining
from multiberts.runs import identity
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.tests import good_files

Change = Callable[[Path], None]
MODULES = {
    "prepare": preparation,
    "pretrain": pretraining,
    "finetune": finetuning,
    "import_predictions": published_predictions,
}
TEXT = "One sentence here .\nAnother sentence here .\n\nA second document .\nIt goes on .\n"
PAIRS = "example_id\tsentence1\tsentence2\tlabel\n" + "".join(
    f"{number}\ta cake\ta good cake\t{('entailment', 'not_entailment')[number % 2]}\n"
    for number in range(8)
)
MODEL = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1}


class StoppedError(Exception):
    """The directory took the run, which goes no further."""


class _Stopped(RunDirectory):
    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        with self:
            pass
        raise StoppedError


def _corpus(folder: Path) -> None:
    with RunDirectory(folder, stage="prepare", parameters={}) as run:
        (folder / "tokens.npy").write_bytes(b"tokens")
        run.finish(["tokens.npy"])


def _prepared(folder: Path) -> dict[str, Any]:
    for name in ("one.txt", "two.txt"):
        (folder / name).write_text(TEXT + name)
    good_files.vocabulary(folder / "vocab.txt")
    sources = [str(folder / "one.txt"), str(folder / "two.txt")]
    given = {"vocabulary": str(folder / "vocab.txt"), "source_format": "sentences"}
    return {"sources": sources, **given}


def _pretrained(folder: Path, layout: str, *, is_ours: bool) -> dict[str, Any]:
    _corpus(folder / "corpus")
    _corpus(folder / "held_out")
    _start(folder, layout, is_ours=is_ours)
    inputs = {"corpus": "corpus", "evaluation_corpus": "held_out", "initial_checkpoint": "start"}
    given = {name: str(folder / path) for name, path in inputs.items()}
    return {**given, "model": MODEL, "pretrain_seed": 0, "num_steps": 20, "warmup_steps": 2}


def _finetuned(folder: Path, layout: str, *, is_ours: bool) -> dict[str, Any]:
    _start(folder, layout, is_ours=is_ours)
    (folder / "data").mkdir()
    for number, name in enumerate(("train.tsv", "dev.tsv", "more.tsv")):
        (folder / "data" / name).write_text(PAIRS.replace("cake", f"cake {number}"))
    given = {"checkpoint": str(folder / "start"), "task": "pair", "data_dir": str(folder / "data")}
    return {**given, "evaluation_files": {"more": str(folder / "data" / "more.tsv")}}


def _start(folder: Path, layout: str, *, is_ours: bool) -> None:
    good_files.checkpoint(folder / "start", layout)
    if not is_ours:
        (folder / "start" / "checkpoint.json").unlink()


def _imported(folder: Path) -> dict[str, Any]:
    (folder / "dumps").mkdir()
    for name in ("seed_0.csv", "seed_1.csv"):
        (folder / "dumps" / name).write_text(f"example_id,label,prediction\n0,1,1\n1,0,{name[5]}\n")
    return {"layout": "files", "source": str(folder / "dumps")}


SETTINGS: dict[str, tuple[str, Callable[[Path], dict[str, Any]]]] = {
    "prepare": ("prepare", _prepared),
    "import": ("import_predictions", _imported),
    **{
        f"{stage}, {layout}, {whose}": (
            stage,
            functools.partial(make, layout=layout, is_ours=whose == "ours"),
        )
        for stage, make in (("pretrain", _pretrained), ("finetune", _finetuned))
        for layout in ("tf1", "hugging_face")
        for whose in ("ours", "published")
    },
}


def _json(name: str, **fields: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / name
        content = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**content, **fields}))

    return change


def _replaced(name: str, old: str, new: str) -> Change:
    def change(folder: Path) -> None:
        content = (folder / name).read_text()
        assert old in content
        (folder / name).write_text(content.replace(old, new))

    return change


def _flipped(name: str) -> Change:
    def change(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-5] ^= 1
        (folder / name).write_bytes(content)

    return change


def _strays(*folders: str) -> Change:
    def change(folder: Path) -> None:
        for each in folders:
            for name in (".DS_Store", "README.md", "thumbnail.png", "notes.txt"):
                (folder / each / name).write_bytes(b"stray")
            (folder / each / "more").mkdir()
            (folder / each / "more" / "old.txt").write_text("old")

    return change


def _renamed(old: str, new: str) -> Change:
    return lambda folder: (folder / old).rename(folder / new) and None


_CASED = _json("start/tokenizer_config.json", do_lower_case=False)
_OF_TF1 = {
    "weights": (_flipped("start/bert.ckpt.data-00000-of-00001"), True),
    "sizes": (_json("start/bert_config.json", hidden_dropout_prob=0.2), True),
    "a field without effect": (_json("start/bert_config.json", directionality="bidi"), False),
    "pieces": (_replaced("start/vocab.txt", "the\n", "thy\n"), True),
    "case": (_CASED, True),
    "strays": (_strays("start"), False),
}
_OF_HUGGING_FACE = {
    "weights": (_flipped("start/model.safetensors"), True),
    "sizes": (_json("start/config.json", hidden_dropout_prob=0.2), True),
    "a field without effect": (_json("start/config.json", torch_dtype="float16"), False),
    "strays": (_strays("start"), False),
}
_OF_DATA = {
    **{
        f"{name}.tsv": (_replaced(f"data/{name}.tsv", "good", "bad"), True)
        for name in ("train", "dev", "more")
    },
    "strays in the data": (_strays("data"), False),
    "another name": (_renamed("data/train.tsv", "data/train.csv"), False),
}
_OF_CORPORA = {
    "corpus": (_json("corpus/DONE", outputs={}), True),
    "held-out corpus": (_json("held_out/DONE", outputs={}), True),
    "strays in a corpus": (_strays("corpus", "held_out"), False),
}
CHANGES: dict[str, dict[str, tuple[Change, bool]]] = {
    "prepare": {
        "text": (_replaced("one.txt", "One", "Two"), True),
        "pieces": (_replaced("vocab.txt", "the\n", "thy\n"), True),
        "case": (_json("tokenizer_config.json", do_lower_case=False), True),
        "said case": (_json("tokenizer_config.json", do_lower_case=True), False),
        "strays": (_strays("."), False),
        "order": (lambda folder: _swap(folder / "one.txt", folder / "two.txt"), True),
    },
    "import": {
        "predictions": (_replaced("dumps/seed_1.csv", "1,0,1", "1,0,0"), True),
        "a name, which says the seed": (_renamed("dumps/seed_1.csv", "dumps/seed_2.csv"), True),
        "hidden": (lambda folder: (folder / "dumps/.DS_Store").write_bytes(b"x") and None, False),
    },
    **{
        f"{stage}, {layout}, {whose}": {**of_layout, **others}
        for stage, others in (("pretrain", _OF_CORPORA), ("finetune", _OF_DATA))
        for layout, of_layout in (("tf1", _OF_TF1), ("hugging_face", _OF_HUGGING_FACE))
        for whose in ("ours", "published")
    },
}
ROWS = [(setting, name) for setting, changes in CHANGES.items() for name in changes]


def _swap(one: Path, two: Path) -> None:
    first, second = one.read_text(), two.read_text()
    one.write_text(second)
    two.write_text(first)


@pytest.fixture
def asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, dict[str, Any]], tuple[str, str]]:
    """Asks a run's directory, which holds the first call's run, and the plan for a run's name."""
    for module in MODULES.values():
        monkeypatch.setattr(module, "RunDirectory", _Stopped)

    def ask(stage: str, arguments: dict[str, Any]) -> tuple[str, str]:
        monkeypatch.setattr(identity, "_REMEMBERED", {})  # as another process
        answers = []
        for ask_one in (
            lambda: stage_function(stage)(run_dir=str(tmp_path / "run"), **arguments),
            lambda: answers.append(Graph().add(stage, stage, stage, arguments).identity),
        ):
            try:
                ask_one()
            except StoppedError:
                answers.append("taken")
            except UserError as error:
                is_other = "made with other parameters" in str(error)
                answers.append("refused" if is_other else f"error: {error}")
        directory, plan = answers
        return directory, plan

    return ask


def made(setting: str, tmp_path: Path) -> tuple[str, Path, dict[str, Any]]:
    """The stage of a setting, the folder of its inputs, and its arguments."""
    stage, make = SETTINGS[setting]
    folder = tmp_path / "inputs"
    folder.mkdir()
    return stage, folder, make(folder)


@pytest.mark.parametrize(("setting", "name"), ROWS, ids=lambda part: part)
def test_what_decides_numbers_counts_and_nothing_else(
    setting: str, name: str, tmp_path: Path, asked: Callable[[str, dict[str, Any]], tuple[str, str]]
) -> None:
    stage, folder, arguments = made(setting, tmp_path)
    taken, before = asked(stage, arguments)
    assert taken == "taken" and not before.startswith("error"), (taken, before)
    change, counts = CHANGES[setting][name]
    change(folder)
    directory, plan = asked(stage, arguments)
    is_ours = setting.endswith("ours")
    if is_ours and name == "weights":  # which are compared with our record when they are read
        assert (directory, plan) == ("taken", before)
        with pytest.raises(UserError, match="does not match the checksum"):
            read_checkpoint(folder / "start")
    elif directory.startswith("error"):  # damage of ours is seen by its checksum
        assert directory == plan and is_ours, (directory, plan)
    else:
        expected = ("refused" if counts else "taken", counts)
        assert (directory, plan != before) == expected, (directory, plan)


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_run_goes_on_wherever_its_inputs_lie(
    setting: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: Callable[[str, dict[str, Any]], tuple[str, str]],
) -> None:
    """In another folder, under another name, by a path from another working directory."""
    stage, folder, arguments = made(setting, tmp_path)
    first = asked(stage, arguments)
    moved = json.loads(json.dumps(arguments).replace(str(folder), str(tmp_path / "moved")))
    shutil.move(folder, tmp_path / "moved")
    assert asked(stage, moved) == first
    monkeypatch.chdir(tmp_path / "moved")
    relative = json.loads(json.dumps(moved).replace(f"{tmp_path / 'moved'}/", ""))
    assert asked(stage, relative) == first
    for old, new, given in (
        ("one.txt", "first.txt", "sources"),
        ("start", "multiberts-seed_3", "checkpoint"),
        ("corpus", "wiki", "corpus"),
    ):
        if given in relative:
            Path(old).rename(new)
            text = json.dumps(relative[given]).replace(old, new)
            relative[given] = json.loads(text)
    assert asked(stage, relative) == first
