"""Cures that work, before a comparison: texts, labels and models as people have them, and what they then do.

As `tests/test_obeying.py`, for the commands that read text, train and predict.
"""

from __future__ import annotations

import argparse
import functools
import json
import lzma
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import pandas as pd
import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint, write_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.initialization import initial_parameters
from multiberts.bert.vocabulary import Vocabulary
from multiberts.finetune.text.task import CLASSIFICATION, MULTI_LABEL, TOKENS
from multiberts.runs.command_line.commands import COMMANDS
from multiberts.runs.errors import UserError
from multiberts.tests.obeying import Attempt, faults_of, obey
from multiberts.tests.test_obeying import shown


def files(**contents: str | bytes) -> Callable[[Path], None]:
    """Writes files, named with `__` for a dot."""

    def write(folder: Path) -> None:
        for name, content in contents.items():
            data = content.encode() if isinstance(content, str) else content
            (folder / name.replace("__", ".")).write_bytes(data)

    return write


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


STEPS = "--batch_size=4 --max_steps=1 --compile_step=False"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
WORDS = ["the", "guest", "was", "late", "she", "told", "him", "a", "cake", "is", "red"]
SENTENCES = [" ".join(WORDS[number % 7 :][:4]).capitalize() + "." for number in range(60)]
TALKS = [" ".join(SENTENCES[first : first + 3]) for first in range(0, 60, 3)]
PREPARE = "prepare --run_dir=corpus --vocabulary_size=100 --sequence_length=24 --dupe_factor=1"


def labelled(labels: list[str], types: int = 2) -> Callable[[Path], None]:
    """Texts to train on with these labels, and a tiny model."""

    def write(folder: Path) -> None:
        for split in ("train", "dev"):
            texts = [f"a b {split} {number}" for number in range(len(labels))]
            pd.DataFrame({"text": texts, "other": texts, "label": labels}).to_csv(
                folder / f"{split}.csv", index=False
            )
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES))
        config = BertConfig(
            len(PIECES), hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
            max_position_embeddings=16, type_vocab_size=types,
        )  # fmt: skip
        weights = initial_parameters(config, 0)
        write_checkpoint(
            folder / "model", weights, config, Vocabulary.open(folder / "vocab.txt"), {}
        )

    return write


def theirs(
    architecture: str = "BertForPreTraining",
    size: int = len(PIECES),
    save: Callable[..., Any] | None = None,
) -> Callable[[Path], None]:
    """The same texts, and a model and a tokeniser as transformers saves them.

    Args:
      size: rows of its embeddings.
      save: writes `pytorch_model.bin` of the model in place of the weights; None: these stay.
    """

    def write(folder: Path) -> None:
        transformers = pytest.importorskip("transformers")
        labelled(["for", "against"] * 8)(folder)
        shutil.rmtree(folder / "theirs", ignore_errors=True)
        config = transformers.BertConfig(
            vocab_size=size, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8,
            max_position_embeddings=16, hidden_act="gelu_new",
        )  # fmt: skip
        model = getattr(transformers, architecture)(config)
        model.save_pretrained(folder / "theirs")
        tokenizer = transformers.BertTokenizer(vocab=str(folder / "vocab.txt"))
        tokenizer.save_pretrained(folder / "theirs")
        if save is not None:
            (folder / "theirs" / "model.safetensors").unlink()
            save(model, folder / "theirs" / "pytorch_model.bin")

    return write


def in_a_namespace(model: Any, path: Path) -> None:
    """A training state with its arguments, as DeepSpeed has it."""
    import torch

    torch.save({"module": model.state_dict(), "args": argparse.Namespace(lr=1e-4)}, path)


def run_the_printed_line(folder: Path) -> None:
    with pytest.raises(UserError) as refused:
        read_checkpoint(folder / "theirs")
    program, *arguments = shlex.split(str(refused.value).partition("python -c ")[2])
    # In this process, which has imported PyTorch.
    with mock.patch.object(sys, "argv", ["-c", *arguments]):
        exec(program, {"__name__": "__main__"})


def foreign(**changes: dict[str, Any]) -> Callable[[Path], None]:
    """A model of transformers with fields changed in its files."""

    def write(folder: Path) -> None:
        theirs()(folder)
        for name, fields in changes.items():
            path = folder / "theirs" / f"{name}.json"
            values = json.loads(path.read_text()) if path.exists() else {}
            for field, value in fields.items():
                *outer, last = field.split("__")
                functools.reduce(lambda inner, key: inner[key], outer, values)[last] = value
            path.write_text(json.dumps(values))

    return write


def released(**fields: str) -> Callable[[Path], None]:
    """The same texts, and the model without our record, with fields changed in its bert_config.json."""

    def write(folder: Path) -> None:
        labelled(["for", "against"] * 8)(folder)
        (folder / "model" / "checkpoint.json").unlink()
        path = folder / "model" / "bert_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return write


def released_constant(folder: Path, value: float) -> None:
    """Removes our record, and changes the constant of layer normalisation, which only other models have."""
    (folder / "model" / "checkpoint.json").unlink()
    path = folder / "model" / "bert_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "layer_norm_eps": value}))


def training(
    task: str,
    labels: str = "",
    kind: str = MULTI_LABEL,
    model: str = "model",
    columns: str = "text",
    label: str = "label",
    data: str = "--data_dir=.",
) -> str:
    options = {"kind": kind, "text_columns": columns.split(), "label_column": label}
    flags = f"--checkpoint={model} {data} --run_dir=run --sequence_length=16"
    names = f"--labels={labels}" * bool(labels)
    return f'finetune --task={task} {flags} {STEPS} --options="{options}" {names}'


PAIRS = f"finetune --checkpoint=model --data_dir=data --run_dir=run --sequence_length=16 {STEPS}"
CONLL = "--train_files=train.txt --dev_files=dev.txt"


def classes(name: Callable[[int], Any], orient: str = "records") -> Callable[[Path], None]:
    """Pairs of three classes as run_glue takes them, in JSON, and a tiny model."""

    def write(folder: Path) -> None:
        labelled(["-"])(folder)
        (folder / "data").mkdir(exist_ok=True)
        for split in ("train", "dev"):
            texts = [f"a b {split} {number}" for number in range(24)]
            labels = [name(number % 3) for number in range(24)]
            table = pd.DataFrame({"sentence1": texts, "sentence2": texts, "label": labels})
            (folder / "data" / f"{split}.json").write_text(json.dumps(table.to_dict(orient)))

    return write


def talks_as(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        table = pd.DataFrame({"text": TALKS})
        if name.endswith(".parquet"):
            table.to_parquet(folder / name)
        elif name.endswith(".jsonl"):
            table.to_json(folder / name, orient="records", lines=True)
        else:
            datasets.Dataset.from_pandas(table).save_to_disk(str(folder / name))

    return write


ATTEMPTS = {
    "texts of one sentence": Attempt(
        files(a__jsonl=lines(*({"text": text} for text in SENTENCES))),
        f"{PREPARE} --sources=a.jsonl --source_format=jsonl", "documents +20$", {},
        {"join short texts": files(a__jsonl=lines(*({"text": text} for text in TALKS)))},
    ),
    "text without ends of sentences": Attempt(
        files(a__jsonl=lines(*({"text": text.replace(".", "")} for text in TALKS))),
        f"{PREPARE} --sources=a.jsonl --source_format=jsonl", "documents +20$", {},
        {"have no marks at their ends, .* write one sentence per line": lambda folder: files(
            a__txt="\n\n".join(text.replace(". ", "\n") for text in TALKS))(folder)
            or f"{PREPARE} --sources=a.txt --source_format=sentences"},
    ),
    "text in lower case": Attempt(
        files(a__jsonl=lines(*({"text": text.lower()} for text in TALKS))),
        f"{PREPARE} --sources=a.jsonl --source_format=jsonl", "documents +20$", {},
        {"or small letters after them, write one sentence per line": lambda folder: files(
            a__txt="\n\n".join(text.lower().replace(". ", ".\n") for text in TALKS))(folder)
            or f"{PREPARE} --sources=a.txt --source_format=sentences"},
    ),
    "a blank line after each sentence": Attempt(
        files(a__txt="\n\n".join(SENTENCES)), f"{PREPARE} --sources=a.txt --source_format=sentences",
        "documents +2$", {},
        {"leave blank lines between documents only": files(
            a__txt="\n".join(SENTENCES[:30]) + "\n\n" + "\n".join(SENTENCES[30:]))},
    ),
    "a text that is null": Attempt(
        files(a__jsonl=lines(*({"text": text} for text in TALKS), {"text": None})),
        f"{PREPARE} --sources=a.jsonl --source_format=jsonl", "documents +20$", {},
        {"leave such lines out": files(a__jsonl=lines(*({"text": text} for text in TALKS)))},
    ),
    "a list of objects": Attempt(
        files(a__json=json.dumps([{"text": text} for text in TALKS])),
        f"{PREPARE} --sources=a.json --source_format=jsonl", "documents +20$", {},
        {"write its rows as JSON lines with to_json": lambda folder: pd.read_json(
            folder / "a.json").to_json(folder / "a.jsonl", orient="records", lines=True)
            or f"{PREPARE} --sources=a.jsonl --source_format=jsonl"},
    ),
    "pandas' columns": Attempt(
        files(a__json=pd.DataFrame({"text": TALKS}).to_json()),
        f"{PREPARE} --sources=a.json --source_format=jsonl", "documents +20$", {},
        {"write its rows as JSON lines with to_json": lambda folder: pd.read_json(
            folder / "a.json").to_json(folder / "a.jsonl", orient="records", lines=True)
            or f"{PREPARE} --sources=a.jsonl --source_format=jsonl"},
    ),
    "a text in another field": Attempt(
        files(a__jsonl=lines(*({"body": text} for text in TALKS))),
        f"{PREPARE} --sources=a.jsonl --source_format=jsonl", "documents +20$", {"text_field": "body"},
    ),
    "a Gin file in Latin-1": Attempt(
        files(a__gin="make_world.run_dir = 'wörld'\nmake_world.num_documents = 40\n".encode("latin-1")),
        "world --gin_file=a.gin", "^wörld: 13 files", {},
        {"convert the file": files(a__gin="make_world.run_dir = 'wörld'\nmake_world.num_documents = 40\n")},
    ),
    "a path with a variable that is not set": Attempt(
        files(), "world --run_dir='$NO_SUCH/world' --num_documents=40", "^world: 13 files", {},
        {"write the path without it": lambda folder: "world --run_dir=world --num_documents=40"},
    ),
    "a seed as PyTorch draws it": Attempt(
        files(), "world --run_dir=world --num_documents=40 --world_seed=17835713423412341234",
        "^world: 13 files", {},
        {r"\(seed % 2\*\*63 fits\)": lambda _:
            f"world --run_dir=world --num_documents=40 --world_seed={17835713423412341234 % 2**63}"},
    ),
    "an include beside its file": Attempt(
        lambda folder: [(folder / "exp").mkdir(), files(
            exp_a__gin="")(folder), (folder / "exp" / "base.gin").write_text("make_world.num_documents = 40"),
            (folder / "exp" / "a.gin").write_text("include 'base.gin'\n")],
        "world --gin_file=exp/a.gin --run_dir=world", "^world: 13 files",
    ),
    # Texts to train on.
    "names of labels with commas between them": Attempt(
        labelled(["kind, rude", "rude", "kind", ""] * 4), training("sets"),
        r"labels of sets: 0 kind \(8\), 1 rude \(8\), none \(4\)", {},
        {r"finetune.labels, all the names \(kind, rude, if": lambda _: training("sets", "kind,rude")},
    ),
    "commas that become bars": Attempt(
        labelled(["kind,rude", "rude", "kind", ""] * 4), training("bars"),
        r"labels of bars: 0 kind \(8\), 1 rude \(8\), none \(4\)", {},
        {r"or write kind\|rude": labelled(["kind|rude", "rude", "kind", ""] * 4)},
    ),
    "shares of raters": Attempt(
        labelled(["[0.9, 0.2]", "[0, 0.7]", "[1, 1]", "[0, 0]"] * 4), training("shares"),
        r"labels of shares: 0 LABEL_0 \(8\), 1 LABEL_1 \(8\), none \(4\)", {},
        {"a list with a 0 or 1 for each label": labelled(["[1, 0]", "[0, 1]", "[1, 1]", "[0, 0]"] * 4)},
    ),
    "a row without a label": Attempt(
        labelled([*["for", "against"] * 8, ""]), training("rows", kind=CLASSIFICATION),
        r"against \(8\), 1 for \(8\)", {}, {"or remove the row": labelled(["for", "against"] * 8)},
    ),
    "a class called None": Attempt(
        labelled(["for", "against", "None"] * 6), training("stance", kind=CLASSIFICATION),
        r"labels of stance: 0 for \(6\), 1 against \(6\), 2 None \(6\)", {},
        {"give finetune.labels if": lambda _: training("stance", "for,against,None", CLASSIFICATION)},
    ),
    "pairs for a model of one segment": Attempt(
        labelled(["for", "against"] * 8, types=1),
        training("twice", kind=CLASSIFICATION, columns="text other"),
        r"labels of twice: 0 against \(8\), 1 for \(8\)", {},
        {"or a task of single texts": lambda _: training("twice", kind=CLASSIFICATION)},
    ),
    "another set called dev": Attempt(
        labelled(["for", "against"] * 8),
        training("again", kind=CLASSIFICATION) + " --evaluation_files='{\"dev\": \"train.csv\"}'",
        r"^  more +accuracy", {},
        {"rename it in finetune.evaluation_files": lambda _: training("again", kind=CLASSIFICATION)
            + " --evaluation_files='{\"more\": \"train.csv\"}'"},
    ),
    "a configuration with another constant": Attempt(
        lambda folder: [labelled(["for", "against"] * 8)(folder), released_constant(folder, 1e-5)],
        training("constant", kind=CLASSIFICATION), "layer_norm_eps is 1e-05, expected 1e-12", ends="refusal",
    ),
    # Tokenisers of other programs.
    "accents that a tokeniser keeps, by mistake": Attempt(
        foreign(tokenizer={"normalizer__strip_accents": False}),
        training("accents", kind=CLASSIFICATION, model="theirs"), r"labels of accents: ", {},
        {"or correct the field": foreign()},
    ),
    "Japanese words": Attempt(
        foreign(tokenizer_config={"word_tokenizer_type": "mecab"}),
        training("words", kind=CLASSIFICATION, model="theirs"), r"labels of words: ", {},
        {"take another checkpoint": lambda _: training("words", kind=CLASSIFICATION)},
    ),
    "a token that no text holds": Attempt(
        foreign(added_tokens={"[E1]": 7}, special_tokens_map={"additional_special_tokens": ["[E1]"]}),
        training("token", kind=CLASSIFICATION, model="theirs"), r"labels of token: ", {},
        {"special_tokens_map.json: .* take them out of the file": lambda folder: (
            folder / "theirs" / "special_tokens_map.json").write_text("{}") and None,
         "added_tokens.json: .* take them out of the file": lambda folder: (
            folder / "theirs" / "added_tokens.json").write_text("{}") and None},
    ),
    "a vocabulary of another place for a cased model": Attempt(
        foreign(tokenizer={"normalizer__lowercase": False}, tokenizer_config={"do_lower_case": False}),
        "checkpoint convert theirs released --to=tf1 --vocabulary=vocab.txt", "^theirs -> released$", {},
        {'write {"do_lower_case": false} into a tokenizer_config.json beside that': files(
            tokenizer_config__json='{"do_lower_case": false}')},
    ),
    # Activations.
    "an activation that BERT does not have": Attempt(
        foreign(config={"hidden_act": "relu"}),
        training("relu", kind=CLASSIFICATION, model="theirs"), r"labels of relu: ", {},
        {"GELU only, so take another checkpoint": lambda _: training("relu", kind=CLASSIFICATION)},
    ),
    "an activation by the word of transformers": Attempt(
        released(hidden_act="gelu_new"), training("words", kind=CLASSIFICATION), r"labels of words: ", {},
        {"write the one that the weights were trained with": released(hidden_act="gelu")},
    ),
    # Checkpoints as people have them.
    "a model of masked words": Attempt(
        theirs("BertForMaskedLM", size=64), training("words", kind=CLASSIFICATION, model="theirs"),
        "57 of 64 rows .* have no piece(?s:.*)lacks the pooler .* finetune_seed 0 initialises it",
    ),
    "a file of a checkpoint": Attempt(
        theirs(), training("file", kind=CLASSIFICATION, model="theirs/model.safetensors"),
        r"labels of file: ", {},
        {"give the directory of a checkpoint, such as theirs$": lambda _: training(
            "file", kind=CLASSIFICATION, model="theirs")},
    ),
    "weights that Git LFS has": Attempt(
        theirs(save=lambda _, path: path.write_text("version https://git-lfs.github.com/spec/v1\n")),
        training("pointer", kind=CLASSIFICATION, model="theirs"), r"labels of pointer: ", {},
        {r"pytorch_model\.bin is a pointer of Git LFS.*`git lfs pull`": theirs()},
    ),
    "a training state with its arguments": Attempt(
        theirs(save=in_a_namespace), "checkpoint convert theirs ours --to=tf1",
        "a training state; its weights are read from 'module'", {},
        {"holds argparse.Namespace besides tensors.*if you trust the file": run_the_printed_line},
    ),
    "a training state by its own name": Attempt(
        theirs(save=lambda model, path: in_a_namespace(model, path.with_name("ckpt_8601.pt"))),
        "checkpoint convert theirs ours --to=tf1", "its weights are read from 'module'", {},
        {r"theirs has ckpt_8601\.pt.*call it pytorch_model\.bin": lambda folder: (
            folder / "theirs" / "ckpt_8601.pt").rename(folder / "theirs" / "pytorch_model.bin") and None,
         "holds argparse.Namespace besides tensors": run_the_printed_line},
    ),
    "much room behind the vocabulary": Attempt(
        lambda folder: [theirs(size=200)(folder), (folder / "theirs" / "tokenizer.json").unlink(),
                        shutil.copy(folder / "vocab.txt", folder / "theirs")],
        training("room", kind=CLASSIFICATION, model="theirs"), r"labels of room: ", {},
        {"if the rest is room, add lines": lambda folder: (folder / "theirs" / "vocab.txt").write_text(
            "".join(f"{piece}\n" for piece in [*PIECES, *(f"[room{number}]" for number in range(193))]))
            and None},
    ),
    "an encoder alone for transformers": Attempt(
        theirs("BertModel"), "checkpoint convert theirs ours --to=hugging_face",
        "lacks cls/predictions/output_bias.* drawn as at step 0 of pretrain_seed 3",
        {"initialise_missing": "3"},
    ),
    # Tables and texts as people have them.
    "classes as numbers without the Hub's idx": Attempt(
        classes(lambda number: number), f"{PAIRS} --task=MNLI",
        r"labels of MNLI: 0 contradiction \(8\), 1 entailment \(8\), 2 neutral \(8\)", {},
        {r"write the names contradiction, entailment, neutral \(in the Hub's glue 0 entailment, 1 neut":
            classes(["entailment", "neutral", "contradiction"].__getitem__)},
    ),
    "an object of columns": Attempt(
        classes(lambda number: "by"[number % 2], orient="list"), f"{PAIRS} --task=nice --labels=b,y",
        r"labels of nice: 0 b \(16\), 1 y \(8\)", {},
        {"expected an object for each row; write these, one per line or in a list":
            classes(lambda number: "by"[number % 2])},
    ),
    "words with tags in columns": Attempt(
        lambda folder: [labelled(["-"])(folder), files(
            train__txt="-DOCSTART- -X- O O\n\n" + "a NN O B-PER\nb NN O O\n\n" * 8,
            dev__txt="b NN O O\na NN O B-PER\n\n" * 8)(folder)],
        training("ner", kind=TOKENS, columns="words", data=CONLL),
        r"labels of ner: 0 B-PER \(8\), 1 O \(8\)", {},
        {"found tokens, tags; correct the option label_column": lambda _: training(
            "ner", kind=TOKENS, columns="words", label="tags", data=CONLL),
         "found tokens, tags; export": lambda _: training(
            "ner", kind=TOKENS, columns="tokens", label="tags", data=CONLL)},
    ),
    "texts in Parquet": Attempt(
        talks_as("a.parquet"), f"{PREPARE} --sources=a.parquet --source_format=raw", "documents +20$", {},
        {"is Parquet, .*; write its rows as JSON lines": lambda folder: talks_as("a.jsonl")(folder)
            or f"{PREPARE} --sources=a.jsonl --source_format=jsonl"},
    ),
    "a folder of texts": Attempt(
        lambda folder: [(folder / "texts" / "a").mkdir(parents=True), talks_as("texts/a/a.jsonl")(folder)],
        f"{PREPARE} --sources=texts --source_format=jsonl", "documents +20$", {},
        {"texts is a folder, .*by a pattern such as texts/": lambda _:
            f"{PREPARE} --sources='texts/**/*' --source_format=jsonl"},
    ),
    "texts that datasets saved": Attempt(
        talks_as("saved"), f"{PREPARE} --sources=saved --source_format=jsonl", "documents +20$", {},
        {"is a folder, .* saved it, write its rows as JSON lines": lambda folder: datasets.load_from_disk(
            str(folder / "saved")).to_json(folder / "a.jsonl") and
            f"{PREPARE} --sources=a.jsonl --source_format=jsonl"},
    ),
    "packed texts": Attempt(
        files(a__jsonl__xz=lzma.compress(lines(*({"text": text} for text in TALKS)).encode())),
        f"{PREPARE} --sources=a.jsonl.xz --source_format=jsonl", "documents +20$", {},
        {"is packed with xz, .* unpack it and give what is in it": lambda folder: files(
            a__jsonl=lzma.decompress((folder / "a.jsonl.xz").read_bytes()))(folder)
            or f"{PREPARE} --sources=a.jsonl --source_format=jsonl"},
    ),
}  # fmt: skip


# By a slow attempt, one of the same way out that `make test` makes.
SAME_WAY = {
    "commas that become bars": "names of labels with commas between them",
    "a class called None": "names of labels with commas between them",
    "shares of raters": "a row without a label",
    "pairs for a model of one segment": "words with tags in columns",
    "Japanese words": "an activation that BERT does not have",
    "a file of a checkpoint": "an activation that BERT does not have",
    "an activation by the word of transformers": "accents that a tokeniser keeps, by mistake",
    "weights that Git LFS has": "accents that a tokeniser keeps, by mistake",
    "much room behind the vocabulary": "accents that a tokeniser keeps, by mistake",
    "a model of masked words": "an encoder alone for transformers",
    "a training state by its own name": "a training state with its arguments",
    "an object of columns": "classes as numbers without the Hub's idx",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in SAME_WAY)) for name in ATTEMPTS],
)
def test_a_person_who_does_what_is_said_gets_there(tmp_path: Path, name: str) -> None:
    attempt = ATTEMPTS[name]
    chain = obey(attempt, tmp_path / "folder")
    assert chain.outcome == attempt.ends, shown(name, chain)
    assert re.search(attempt.says, chain.text, re.MULTILINE), shown(name, chain)
    assert len(chain.refusals) >= len(attempt.repairs), shown(name, chain)
    command = next(name for name in COMMANDS if attempt.command.startswith(f"{name} "))
    faults = [fault for line in chain.refusals for fault in faults_of(line, command)]
    assert not faults, shown(name, chain)
