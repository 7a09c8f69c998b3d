"""A vocabulary, a small checkpoint and small data files for the fine-tuning tests."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multiberts.runs.errors import UserError
from multiberts.tests.tools.eager import eagerly

# Fixtures that make a run, a checkpoint or data; that get the line of a refused run; that run one again.
Make = Callable[..., Path]
Refuse = Callable[..., str]
Replay = Callable[[Path], bool]

WORDS = (
    "mary john anna paul baker plumber painter guest client she he her "
    "him they them the told that was late early asked about a "
    "cake tap wall and rang again today did not come sun is "
    "red blue it good bad fine"
)

SIZES = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64,
    "max_position_embeddings": 64,
}  # fmt: skip


@pytest.fixture
def vocabulary(tmp_path: Path) -> Path:
    """Special tokens, whole words and single letters."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", *WORDS.split()]
    pieces += [letter for letter in letters if letter not in pieces]
    pieces += [f"##{letter}" for letter in letters]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n")
    return path


@pytest.fixture
def make_checkpoint(tmp_path: Path, vocabulary: Path) -> Make:
    """Writes a checkpoint of random weights; `change` may edit them."""

    def make(pretrain_seed: int = 0, change: Callable[[dict], None] | None = None, **sizes) -> Path:
        from multiberts.bert.checkpoint.checkpoint import write_checkpoint
        from multiberts.bert.model.configuration import BertConfig
        from multiberts.bert.model.initialization import initial_parameters
        from multiberts.bert.vocabulary import Vocabulary

        vocab_size = len(vocabulary.read_text().splitlines())
        config = BertConfig(vocab_size=vocab_size, **{**SIZES, "initializer_range": 0.1, **sizes})
        parameters = initial_parameters(config, pretrain_seed)
        if change is not None:
            change(parameters)
        path = tmp_path / f"checkpoint_{pretrain_seed}"
        provenance = {
            "procedure": "base", "pretrain_seed": pretrain_seed, "data_seed": 5, "step": 7,
        }  # fmt: skip
        write_checkpoint(path, parameters, config, Vocabulary.open(vocabulary), provenance)
        return path

    return make


@pytest.fixture
def eager() -> Iterator[None]:
    """TensorFlow makes the few steps of this test without tracing them, which takes longer."""
    with eagerly():
        yield


@pytest.fixture
def fine_tune(request: pytest.FixtureRequest, tmp_path: Path, make_checkpoint: Make) -> Make:
    """Fine-tunes and returns the run's folder, by default `run`, in `tmp_path`.

    Settings are those of the module's `SMALL` and of the call; the checkpoint is one of random weights.
    """
    usual: dict[str, Any] = {"compile_step": False, **getattr(request.module, "SMALL", {})}

    def fine_tune(task: str, data: Path | None = None, run: str = "run", **settings: Any) -> Path:
        from multiberts.finetune.finetuning import finetune

        given = usual | settings
        if data is not None:
            given["data_dir"] = str(data)
        checkpoint = str(given.pop("checkpoint", None) or make_checkpoint())
        finetune(run_dir=str(tmp_path / run), checkpoint=checkpoint, task=task, **given)
        return tmp_path / run

    return fine_tune


@pytest.fixture
def refused(tmp_path: Path, fine_tune: Make) -> Refuse:
    """Returns the line with which a fine-tuning is refused, before it makes a folder."""

    def refused(task: str, data: Path | None = None, **settings: Any) -> str:
        with pytest.raises(UserError, match="^[^\n]*$") as caught:
            fine_tune(task, data, "refused", **settings)
        assert not (tmp_path / "refused").exists()
        return str(caught.value)

    return refused


@pytest.fixture
def same_when_replayed(tmp_path: Path) -> Replay:
    """Whether a run's frozen configuration, and nothing else, gives the bytes of its outputs."""

    def check(run: Path) -> bool:
        from multiberts.finetune.finetuning import finetune

        bindings = (run / "config.gin").read_text().splitlines()
        pairs = (line.partition(" = ") for line in bindings if not line.startswith("#"))
        call = {name.removeprefix("finetune."): ast.literal_eval(value) for name, _, value in pairs}
        again = tmp_path / f"{run.name}_again"
        finetune(run_dir=str(again), **call)
        return (again / "DONE").read_bytes() == (run / "DONE").read_bytes()

    return check


@pytest.fixture
def pair_data(tmp_path: Path) -> Path:
    """Sentence pairs whose label is told by one word: `good` in the second sentence."""
    folder = tmp_path / "pairs"
    folder.mkdir()
    subjects = [
        "mary", "john", "anna", "paul", "the baker", "the plumber", "the painter", "a guest",
    ]  # fmt: skip
    things = ["a cake", "the tap", "the wall", "the sun"]
    for split, offset in (("train", 0), ("dev", 1)):
        rows = ["index\tsentence1\tsentence2\tlabel"]
        for number in range(96 if split == "train" else 37):
            subject, thing = subjects[number % 8], things[(number + offset) % 4]
            good = (number * 7 + number // 3) % 2 == 0
            label = "entailment" if good else "not_entailment"
            quality = "good" if good else "bad"
            rows.append(f"{number}\t{subject} asked about {thing}.\t{thing} is {quality}.\t{label}")
        (folder / f"{split}.tsv").write_text("\n".join(rows) + "\n")
    return folder


def data_of_task(task: str, options: dict[str, Any] | None = None, **arguments: Any) -> Any:
    """Returns the data of a task, found and not read, from fields of `DataArguments`."""
    from multiberts.finetune.task import DataArguments, task_named

    chosen = task_named(task, arguments.get("labels"), (), options or {})
    completed = chosen.completed(options or {})
    return chosen.data(DataArguments(task=task, options=completed, **arguments))


def opened_model(
    checkpoint: Path, task: str, options: dict[str, Any] | None = None, **arguments: Any
) -> tuple[Any, Any]:
    """Returns a checkpoint and its model of a task, which is not compiled, with its data."""
    from multiberts.bert.checkpoint.checkpoint import read_checkpoint

    read = read_checkpoint(checkpoint)
    model = data_of_task(task, options, **arguments).read(read)
    model.compile_step = False
    return read, model


def in_transformers(
    architecture: str, layer: str, config: Any, weights: dict[str, np.ndarray]
) -> Any:
    """Returns the model of `transformers` with these weights; its output layer has two outputs."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from multiberts.bert.checkpoint.hugging_face import hugging_face_name

    settings = json.loads(config.to_json()) | {"hidden_act": "gelu_new", "num_labels": 2}
    model = getattr(transformers, architecture)(transformers.BertConfig(**settings)).eval()
    head = {"output_weights": f"{layer}.weight", "output_bias": f"{layer}.bias"}
    state = {
        head.get(name) or hugging_face_name(name): torch.tensor(
            values.T if name.endswith("kernel") else values
        )
        for name, values in weights.items()
    }
    model.load_state_dict({name: state[name] for name in model.state_dict()})
    return model


def conll(documents: dict[str, list[str]]) -> str:
    """CoNLL-2012 text; words may carry brackets behind a slash, as `Mary/(1)`."""
    lines = []
    for name, sentences in documents.items():
        lines.append(f"#begin document ({name}); part 000")
        for sentence in sentences:
            for number, token in enumerate(sentence.split()):
                word, _, brackets = token.partition("/")
                lines.append(f"{name}\t0\t{number}\t{word}\t-\t{brackets or '-'}")
            lines.append("")
        lines.append("#end document")
    return "\n".join(lines) + "\n"


@pytest.fixture
def coreference_data(tmp_path: Path) -> Path:
    """Documents in which she means Mary or Anna and he means John or Paul, never the other one."""
    folder = tmp_path / "coreference"
    folder.mkdir()
    women, men = ["mary", "anna"], ["john", "paul"]
    for split, nouns in (("train", ["plumber", "painter"]), ("dev", ["guest", "client"])):
        documents = {}
        for number in range(24 if split == "train" else 8):
            woman, man = women[number % 2], men[number // 2 % 2]
            pronoun, entity = ("she", "1") if number % 3 else ("he", "2")
            noun = nouns[number % len(nouns)]
            names = [f"{woman}/(1)", f"{man}/(2)"][:: 1 if number % 4 < 2 else -1]
            documents[f"{split}_{number}"] = [
                f"{names[0]} told {names[1]} about the/(3 {noun}/3) .",
                f"the/(3 {noun}/3) was late and {pronoun}/({entity}) was early .",
            ]
        (folder / f"{split}.conll").write_text(conll(documents))
    return folder


@pytest.fixture
def winogender_data(tmp_path: Path) -> Path:
    """Three templates in our own words, with all their sentences."""
    folder = tmp_path / "winogender"
    folder.mkdir()
    (folder / "templates.tsv").write_text(
        "occupation(0)\tother-participant(1)\tanswer\tsentence\n"
        "baker\tguest\t0\tThe $OCCUPATION told the $PARTICIPANT that $NOM_PRONOUN was late.\n"
        "baker\tguest\t1\tA $PARTICIPANT asked the $OCCUPATION about $POSS_PRONOUN cake.\n"
        "plumber\tclient\t0\tThe $OCCUPATION rang and the $PARTICIPANT did not see $ACC_PRONOUN.\n"
    )
    rows = ["sentid\tsentence"]
    for gender, nominative, possessive, accusative in (
        ("male", "he was", "his", "him"),
        ("female", "she was", "her", "her"),
        ("neutral", "they were", "their", "them"),
    ):
        for guest, the_guest in (("guest", "the guest"), ("someone", "someone")):
            rows.append(
                f"baker.{guest}.0.{gender}.txt\tThe baker told {the_guest} that {nominative} late."
            )
        for guest, a_guest in (("guest", "A guest"), ("someone", "Someone")):
            rows.append(
                f"baker.{guest}.1.{gender}.txt\t{a_guest} asked the baker about {possessive} cake."
            )
        rows.append(
            f"plumber.client.0.{gender}.txt\tThe plumber rang and the client did not see {accusative}."
        )
    (folder / "all_sentences.tsv").write_text("\n".join(rows) + "\n")
    (folder / "occupations-stats.tsv").write_text(
        "occupation\tbergsma_pct_female\tbls_pct_female\tbls_year\n"
        "baker\t30.0\t60.5\t2015\nplumber\t5.0\t3.5\t2015\n"
    )
    return folder
