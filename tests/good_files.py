"""A small good file of each format that strangers send, and the commands that read it, in this process.

`GOOD` has the formats by name: what makes one in a folder. `DOORS` has the commands by name: each gets the
folder and the format's name, reads the file, and raises `UserError` where it refuses it.
"""

from __future__ import annotations

import functools
import gzip
import json
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multiberts.bert.checkpoint.checkpoint import read_checkpoint, write_checkpoint
from multiberts.bert.checkpoint.fine_tuned import FINE_TUNED
from multiberts.bert.model.configuration import BertConfig, parameter_shapes
from multiberts.bert.vocabulary import Vocabulary
from multiberts.evaluate.imports.importing import import_predictions
from multiberts.finetune.finetuning import finetune
from multiberts.finetune.prediction import predict
from multiberts.launch.status.command import show_status
from multiberts.pretrain.corpus.preparation import prepare
from multiberts.report.compare_command import compare_files

SAMPLES = Path(__file__).with_name("samples")
WORDS = "the cat dog house sees finds likes is good bad she he told was late mary anna ."
SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
}


def frame(shift: int = 0) -> pd.DataFrame:
    """Predictions of three seeds on eight examples."""
    rows = [
        {
            "seed": seed,
            "example_id": f"e{example}",
            "prediction": int((example * 3 + seed + shift) % 5 < 3),
            "label": example % 2,
        }
        for seed in range(3)
        for example in range(8)
    ]
    return pd.DataFrame(rows)


def _npz(path: Path) -> None:
    table = frame(1).pivot(index="seed", columns="example_id", values="prediction")
    ids = np.array(table.columns.tolist())
    np.savez(path, predictions=table.to_numpy(), labels=np.arange(8) % 2, seeds=np.arange(3),
             example_ids=ids)  # fmt: skip


def state_more_rows(path: Path) -> None:
    """Lets a Parquet file state 2^50 rows, which are fewer bytes than any run-length encoding takes."""
    from pyarrow import parquet

    data, rows = path.read_bytes(), parquet.read_metadata(path).num_rows
    length = int.from_bytes(data[-8:-4], "little")
    # Thrift's compact protocol: field 3, an integer of 64 bits in zigzag; then field 4, a list of 1 struct.
    before, after = bytes((0x16, 2 * rows, 0x19, 0x1C)), b"\x16" + b"\x80" * 7 + b"\x04\x19\x1c"
    footer = data[-8 - length : -8]
    assert footer.count(before) == 1
    footer = footer.replace(before, after)
    path.write_bytes(data[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1")


def _sizes(folder: Path) -> None:
    entries = [{"guid": f"dev-{number}", "label": "a", "text_a": "x"} for number in range(3)]
    (folder / "results").mkdir(parents=True)
    (folder / "data.json").write_text(json.dumps({"label_list": ["a", "b"], "predict": entries}))
    (folder / "results/sminip1f1epoch12over3.tsv").write_text("0.9\t0.1\n" * 3)


def _squad(path: Path, *, answered: bool = True) -> None:
    answers = [{"text": "the house", "answer_start": 9}] if answered else []
    question = {"id": "q0", "question": "what is good ?", "answers": answers}
    paragraph = {"context": "mary is. the house is good .", "qas": [question]}
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))


def _pairs() -> pd.DataFrame:
    rows = [
        {
            "index": str(number),
            "sentence1": "the cat likes the house .",
            "sentence2": f"the dog is {'good' if number % 2 else 'bad'} .",
            "label": "entailment" if number % 2 else "not_entailment",
        }
        for number in range(12)
    ]
    return pd.DataFrame(rows)


def _folder_of_datasets(path: Path) -> None:
    import pyarrow

    path.mkdir()
    table = pyarrow.Table.from_pandas(_pairs(), preserve_index=False)
    with pyarrow.OSFile(str(path / "data-00000-of-00001.arrow"), "wb") as file:
        with pyarrow.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)


def _conll(path: Path) -> None:
    lines = []
    for number in range(4):
        lines.append(f"#begin document (d{number}); part 000")
        for place, (word, mark) in enumerate((("mary", "(1)"), ("told", "-"), ("anna", "(2)"))):
            lines.append(f"d{number}\t0\t{place}\t{word}\t-\t{mark}")
        lines += ["", f"d{number}\t0\t0\tshe\t-\t({number % 2 + 1})", "", "#end document"]
    path.write_text("\n".join(lines) + "\n")


def _gap(path: Path) -> None:
    names = ["ID", "Text", "Pronoun", "Pronoun-offset", "A", "A-offset", "B", "B-offset"]
    row = ["t-1", "mary told anna that she was late .", "she", "20", "mary", "0", "anna", "10"]
    path.write_text("\t".join(names) + "\n" + "\t".join(row) + "\n")


def _documents() -> list[list[str]]:
    words = WORDS.split()
    return [
        [" ".join(words[(place + d + s) % 16] for place in range(8)) + " ." for s in range(5)]
        for d in range(6)
    ]


def _text(path: Path) -> None:
    path.write_text("\n\n".join("\n".join(document) for document in _documents()) + "\n")


def _wiki(path: Path) -> None:
    parts = [
        f'<doc id="{number}" title="T">\nT\n' + "\n".join(document) + "\n</doc>\n"
        for number, document in enumerate(_documents())
    ]
    path.write_text("".join(parts))


def _json_documents(path: Path) -> None:
    path.write_text("".join(json.dumps({"text": "\n".join(d)}) + "\n" for d in _documents()))


def vocabulary(path: Path) -> None:
    """Writes a vocabulary of special tokens, words and letters."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), "?", ","]
    pieces += [letter for letter in letters if letter not in pieces] + [f"##{x}" for x in letters]
    path.write_text("\n".join(pieces) + "\n")


# By the name of a task: the kind of its head, the labels and the number of texts.
_HEADS: dict[str, tuple[str, list[str] | None, int | None]] = {
    "pair": ("classification", ["entailment", "not_entailment"], 2),
    "squad-v1.1": ("question_answering", None, None),
}


def checkpoint(folder: Path, layout: str = "tf1", task: str | None = None) -> None:
    """Writes a checkpoint of made-up weights, of a pre-trained model or fine-tuned for a task."""
    path = folder.with_name(f"{folder.name}_vocab.txt")
    vocabulary(path)
    config = BertConfig(vocab_size=len(path.read_text().splitlines()), **SIZES)
    draw = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = dict(parameter_shapes(config))
    provenance: dict[str, Any] = {
        "procedure": "base",
        "pretrain_seed": 0,
        "data_seed": 0,
        "step": 3,
    }
    if task is not None:
        kind, labels, num_texts = _HEADS[task]
        head = {"output_bias": [2], "output_weights": [2, config.hidden_size]}
        shapes |= {name: tuple(shape) for name, shape in head.items()}
        provenance[FINE_TUNED] = {
            "task": task,
            "head": {"kind": kind, "labels": labels, "num_texts": num_texts, "variables": head},
            "sequence_length": 32,
            "do_lower_case": True,
            "arguments": {"labels": None, "options": {}, "task_modules": []},
            "learning_rate": 1e-3,
            "finetune_seed": 0,
            "epochs": 1.0,
        }
        if task.startswith("squad"):
            provenance[FINE_TUNED]["arguments"]["options"] = {"max_query_length": 8}
    weights = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    write_checkpoint(folder, weights, config, Vocabulary.open(path), provenance, layout=layout)
    path.unlink()


def _torch(folder: Path) -> None:
    import torch
    from safetensors.numpy import load_file

    checkpoint(folder, "hugging_face")
    tensors = load_file(folder / "model.safetensors")
    torch.save(
        {name: torch.from_numpy(v) for name, v in tensors.items()}, folder / "pytorch_model.bin"
    )
    for name in ("model.safetensors", "checkpoint.json"):
        (folder / name).unlink()


def _without(folder: Path, *names: str, layout: str = "tf1", task: str | None = None) -> None:
    """Writes a checkpoint without some files, such as the record whose checksums find all damage."""
    checkpoint(folder, layout, task)
    for name in names:
        (folder / name).unlink()


def experiment(root: Path) -> None:
    """Writes the markers of an experiment: two runs, one of them tried once."""
    (root / "launch/attempts").mkdir(parents=True)
    facts = {"procedure": "base", "pretrain_seed": 0, "num_steps": 10, "checkpoint_steps": [10]}
    runs = [
        {"path": "pretrain/a", "stage": "pretrain", "name": "a", "identity": "1", "parents": [],
         "facts": facts},
        {"path": "pretrain/b", "stage": "pretrain", "name": "b", "identity": "2",
         "parents": ["pretrain/a"], "facts": facts},
    ]  # fmt: skip
    plan = {"version": 1, "written": 0.0, "runs": runs}
    (root / "launch/plan.json").write_text(json.dumps(plan))
    holder = {"owner": "u", "host": "h", "machine": "m", "pid": 1, "created": None, "started": 1.0,
              "renewed": 1.0, "seconds_until_stale": 90.0}  # fmt: skip
    (root / "launch/lease.json").write_text(json.dumps(holder))
    attempt = {"attempt": 1, "path": "pretrain/a", "engine": "local", "host": "h", "pid": 1,
               "job": None, "device": "cpu", "started": time.time() - 60,
               "ended": None, "outcome": None, "error": None, "log": "logs/a", "created": None,
               "owner": "u"}  # fmt: skip
    (root / "launch/attempts/pretrain---a.jsonl").write_text(json.dumps(attempt) + "\n")
    (root / "pretrain/a").mkdir(parents=True)
    now = time.time()
    lines = [{"step": s, "loss": 2.0, "time": now + s, "steps_per_second": 1.0} for s in (1, 2, 3)]
    (root / "pretrain/a/metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    (root / "logs").mkdir()
    (root / "logs/a").write_text("it began\n")


def _copied(sample: str, file: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        shutil.copytree(SAMPLES / sample, folder / "given")
        return next((folder / "given").rglob(file))

    return make


def _in(name: str, write: Callable[[Path], object], file: str = "") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        write(folder / name)
        return folder / name / file if file else folder / name

    return make


def _packed(name: str, write: Callable[[Path], object]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        write(folder / name)
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes(), mtime=0))
        (folder / name).unlink()
        return folder / f"{name}.gz"

    return make


def _csv(path: Path) -> None:
    frame(1).to_csv(path, index=False)


def _pairs_as(method: str, **options: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        getattr(_pairs(), method)(path, **options)

    return write


_LINES: dict[str, Any] = {"orient": "records", "lines": True}
_TF1 = ("checkpoint.json",)
# What makes the file of a format in a folder, and returns which file of it is damaged.
GOOD: dict[str, Callable[[Path], Path]] = {
    "csv": _in("new.csv", _csv),
    "csv.gz": _packed("new.csv", _csv),
    "tsv": _in("new.tsv", lambda path: frame(1).to_csv(path, sep="\t", index=False)),
    "jsonl": _in("new.jsonl", lambda path: frame(1).to_json(path, **_LINES)),
    "json": _in("new.json", lambda path: path.write_text(json.dumps(frame(1).to_dict("list")))),
    "parquet": _in("new.parquet", lambda path: frame(1).to_parquet(path)),
    "npz": _in("new.npz", _npz),
    "sizes data": _in("mnli", _sizes, "data.json"),
    "sizes table": _in("mnli", _sizes, "results/sminip1f1epoch12over3.tsv"),
    "squad answers": _in("new.json", lambda path: path.write_text(json.dumps({"q0": "house"}))),
    "lm_eval": _copied("lm_eval/step1000", "samples_*.jsonl"),
    "inspect json": _copied("inspect/json", "*.json"),
    "inspect eval": _copied("inspect/eval", "*.eval"),
    "helm": _copied("helm", "per_instance_stats.json"),
    "helm texts": _copied("helm", "scenario_state.json"),
    "arrow": _copied("hugging_face/datasets", "*.arrow"),
    "texts.tsv": _in("new.tsv", _pairs_as("to_csv", sep="\t", index=False)),
    "texts.csv": _in("new.csv", _pairs_as("to_csv", index=False)),
    "texts.jsonl": _in("new.jsonl", _pairs_as("to_json", **_LINES)),
    "texts.jsonl.gz": _packed("new.jsonl", _pairs_as("to_json", **_LINES)),
    "texts.parquet": _in("new.parquet", _pairs_as("to_parquet")),
    "texts.arrow": _in("new", _folder_of_datasets, "data-00000-of-00001.arrow"),
    "lines": _in("new.txt", lambda path: path.write_text("the cat .\tthe dog .\n" * 3)),
    "squad": _in("new.json", _squad),
    "squad.gz": _packed("new.json", _squad),
    "conll": _in("new.conll", _conll),
    "gap": _in("new.tsv", _gap),
    "sentences": _in("new.txt", _text),
    "sentences.gz": _packed("new.txt", _text),
    "wikiextractor": _in("new.txt", _wiki),
    "documents.jsonl": _in("new.jsonl", _json_documents),
    "vocabulary": _in("new.txt", vocabulary),
    "tf1 index": _in("model", lambda path: _without(path, *_TF1), "bert.ckpt.index"),
    "tf1 data": _in("model", lambda path: _without(path, *_TF1), "bert.ckpt.data-00000-of-00001"),
    "tf1 config": _in("model", lambda path: _without(path, *_TF1), "bert_config.json"),
    "tf1 vocab": _in("model", lambda path: _without(path, *_TF1), "vocab.txt"),
    "record": _in("model", checkpoint, "checkpoint.json"),
    "record of a task": _in("model", functools.partial(checkpoint, task="pair"), "checkpoint.json"),
    "safetensors": _in(
        "model", lambda path: _without(path, *_TF1, layout="hugging_face"), "model.safetensors"
    ),
    "hf config": _in(
        "model", lambda path: _without(path, *_TF1, layout="hugging_face"), "config.json"
    ),
    "hf config of a task": _in(
        "model", lambda path: _without(path, *_TF1, layout="hugging_face", task="pair"), "config.json"
    ),
    "tokenizer": _in(
        "model", lambda path: _without(path, *_TF1, "vocab.txt", layout="hugging_face"), "tokenizer.json"
    ),
    "tokenizer config": _in(
        "model", lambda path: _without(path, *_TF1, layout="hugging_face"), "tokenizer_config.json"
    ),
    "pytorch": _in("model", _torch, "pytorch_model.bin"),
    "plan": _in("root", experiment, "launch/plan.json"),
    "lease": _in("root", experiment, "launch/lease.json"),
    "attempt": _in("root", experiment, "launch/attempts/pretrain---a.jsonl"),
    "metrics": _in("root", experiment, "pretrain/a/metrics.jsonl"),
}  # fmt: skip


def _given(folder: Path) -> Path:
    """Returns what is given to a command: the file itself, or the folder that holds it."""
    [path] = [path for path in folder.iterdir() if not path.name.startswith("_")]
    return path


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _model(folder: Path, task: str | None) -> str:
    path = folder / "_model"
    checkpoint(path, task=task)
    return str(path)


def _scorer(kind: str) -> dict[str, Any]:
    return {"score": "match"} if kind.startswith("inspect") else {}


def _compare(folder: Path, kind: str) -> None:
    frame().to_csv(folder / "_base.csv", index=False)
    given, base = str(_given(folder)), str(folder / "_base.csv")
    # Logs are of other examples: they are described alone.
    sides = ([given], []) if Path(given).is_dir() else ([base], [given])
    compare_files(results=sides[0][0], experiment=sides[1], n_resamples=39, **_scorer(kind))


def _import(folder: Path, kind: str) -> None:
    layout = {"sizes": "model_sizes", "squad": "squad"}.get(kind.split()[0], "files")
    source, questions = str(_given(folder)), None
    if layout == "squad":
        questions = str(folder / "_questions")
        _squad(Path(questions))
    import_predictions(run_dir=str(folder / "_out"), layout=layout, source=source,
                       questions=questions, **_scorer(kind))  # fmt: skip


def _predict(folder: Path, kind: str) -> None:
    if "model" in _given(folder).name:
        _pairs().to_csv(folder / "_new.tsv", sep="\t", index=False)
        predict(model=str(_given(folder)), files=[str(folder / "_new.tsv")], compile_step=False)
        return
    task = "squad-v1.1" if kind.startswith("squad") else "pair"
    given = _given(folder)
    predict(model=_model(folder, task), files=[str(given)], compile_step=False)


def _prepare(folder: Path, kind: str) -> None:
    given, options = str(_given(folder)), {}
    source = given
    if kind == "vocabulary":
        _text(folder / "_text.txt")
        source, options = str(folder / "_text.txt"), {"vocabulary": given}
    formats = {"wikiextractor": "wikiextractor", "documents.jsonl": "jsonl"}
    prepare(run_dir=str(folder / "_out"), sources=[source], vocabulary_size=60, sequence_length=32,
            source_format=formats.get(kind, "sentences"), dupe_factor=1, **options)  # fmt: skip


def _finetune(folder: Path, kind: str) -> None:
    given = str(_given(folder))
    task = {"squad": "squad-v1.1", "conll": "coreference"}.get(kind.partition(".")[0], "pair")
    call: dict[str, Any] = {"held_out_fold": 0}
    if task != "pair":
        dev = GOOD[kind.partition(".")[0]](_made(folder / "_dev"))
        dev.write_text(dev.read_text() + "\n")  # the same bytes as the train file's are refused
        call = {"dev_files": [str(dev)]}
    if task == "squad-v1.1":
        call["options"] = {"max_query_length": 8}
    start = _model(folder, None)
    if "model" in _given(folder).name:
        start, given = given, str(folder / "_new.tsv")
        _pairs().to_csv(given, sep="\t", index=False)
    finetune(run_dir=str(folder / "_out"), checkpoint=start, task=task, train_files=[given],
             learning_rate=1e-3, batch_size=1, num_epochs=1, sequence_length=32, compile_step=False,
             **call)  # fmt: skip


def _checkpoint(folder: Path, kind: str) -> None:
    needed = kind != "tokenizer"
    read_checkpoint(_given(folder), need_vocabulary=needed)
    if not needed:
        Vocabulary.open(_given(folder) / "tokenizer.json")


def _status(folder: Path, _: str) -> None:
    show_status(root=str(_given(folder)), html=str(folder / "_status.html"))


DOORS: dict[str, Callable[[Path, str], None]] = {
    "compare": _compare,
    "import": _import,
    "predict": _predict,
    "prepare": _prepare,
    "finetune": _finetune,
    "checkpoint": _checkpoint,
    "status": _status,
}
