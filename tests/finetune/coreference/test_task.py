from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_file import read_run
from multiberts.finetune.coreference.frozen_states import span_states
from multiberts.finetune.coreference.heads import POOLING, pair_logits
from multiberts.tests.finetune.conftest import Make, Refuse, Replay, opened_model

SMALL = {"sequence_length": 48, "options": {"num_hidden_units": 32}, "compile_step": False}


def test_agreement_with_names_is_learned_on_a_frozen_encoder(
    fine_tune: Make, coreference_data: Path, winogender_data: Path, same_when_replayed: Replay
) -> None:
    """Alone follows coreference from documents to Winogender's answers."""
    learning = {"learning_rate": 3e-3, "num_epochs": 40, "batch_size": 16}
    run = fine_tune(
        "coreference", coreference_data, winogender_dir=str(winogender_data), **learning
    )
    dev = read_predictions([run], "dev")
    assert set(dev["label"].values) == {0, 1}
    # The nouns are new to the head: what it learned is which names agree with which pronouns.
    assert float((dev["prediction"] == dev["label"]).mean()) > 0.9
    assert dev["example_id"].values[0].startswith("coreference/dev/dev_0/000/")

    winogender = read_predictions([run], "winogender")
    assert winogender.sizes["example"] == 15
    assert winogender["example_id"].values[0] == "winogender/baker.guest.0.male"
    assert winogender["label"].values.tolist() == [0, 0, 1, 1, 0] * 3
    assert winogender["gender"].values.tolist() == (
        ["masculine"] * 5 + ["feminine"] * 5 + ["neutral"] * 5
    )
    assert winogender["percent_feminine"].values[4] == 3.5
    scores = winogender["scores"].values[0]
    chosen = np.where(scores[:, 0] >= scores[:, 1], 0, 1)
    assert winogender["prediction"].values[0].tolist() == chosen.tolist()
    # 60.5 % of bakers are women, 3.5 % of plumbers: she is expected to be the baker, and no plumber.
    he = ["gotcha"] * 2 + ["not gotcha"] * 3
    she = ["not gotcha"] * 2 + ["gotcha"] * 3
    assert winogender["gotcha"].values.tolist() == he + she + ["neutral"] * 5
    assert winogender.attrs["metrics"] == ["accuracy", "bias_correlation", "bias_slope"]
    assert same_when_replayed(run)


def test_runs_of_one_process_do_not_leak_into_each_other(
    fine_tune: Make, make_checkpoint: Make, coreference_data: Path
) -> None:
    """Encodings are kept between runs; each run's predictions are those it has alone."""
    from multiberts.finetune.coreference import task as coreference
    from multiberts.finetune.model import forward_pass, trainers

    checkpoints = [str(make_checkpoint(seed)) for seed in (0, 1)]

    def run(name: str, checkpoint: str, finetune_seed: int) -> bytes:
        given = {"checkpoint": checkpoint, "finetune_seed": finetune_seed, "learning_rate": 1e-3}
        folder = fine_tune("coreference", coreference_data, name, **given)
        return (folder / "predictions" / "dev.tfrecord").read_bytes()

    cases = [(checkpoints[0], 0), (checkpoints[1], 0), (checkpoints[1], 1)]
    kept = [run(f"kept_{number}", *case) for number, case in enumerate(cases)]
    assert len(set(kept)) == 3
    # The last follows both another checkpoint and another seed.
    for cache in (coreference._states, coreference.read_pairs, trainers, forward_pass):
        cache.cache_clear()
    assert run("alone", *cases[2]) == kept[2]
    assert run("before", *cases[1]) == kept[1]


@pytest.mark.parametrize(
    ("options", "learning_rate"),
    [
        ({"span_representation": "mean"}, 1e-2),
        ({"span_representation": "self_attention"}, 3e-3),
        ({"span_representation": "mean", "training_pairs": "mentions"}, 1e-2),
    ],
)
def test_the_papers_heads_learn_too(
    fine_tune: Make, coreference_data: Path, options: dict, learning_rate: float
) -> None:
    """Alone trains the heads that are not the default."""
    given = {"learning_rate": learning_rate, "num_epochs": 40, "batch_size": 16}
    larger = {"num_hidden_units": 64, **options}
    run = fine_tune("coreference", coreference_data, options=larger, **given)
    dev = read_predictions([run], "dev")
    assert float((dev["prediction"] == dev["label"]).mean()) > 0.9
    assert read_run(run)["parameters"] | options == read_run(run)["parameters"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"span_representation": "max"}, "'max', expected 'endpoints' or 'mean' or 'self_attention'"),
        ({"training_pairs": "all"}, "'all', expected 'pronouns' or 'mentions'"),
        ({"num_hidden_units": 0}, "option num_hidden_units of task coreference is 0, expected int at l"),
        ({"encodings_dir": 3}, "encodings_dir of task coreference is 3, expected str or None"),
        # A folder that cannot be written; a path stands for it below `tmp_path`.
        ({"encodings_dir": "vocab.txt/encodings"}, "option encodings_dir: cannot write"),
    ],
)  # fmt: skip
def test_wrong_options_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refuse,
    coreference_data: Path, options: dict, line: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert line in refused("coreference", coreference_data, options=options)


def test_a_folder_of_documents_is_as_good_as_their_file(
    tmp_path: Path, fine_tune: Make, coreference_data: Path
) -> None:
    text = (coreference_data / "train.conll").read_text()
    end = "#end document\n"
    for number, document in enumerate(text.split(end)[:-1]):
        # As OntoNotes has them: folders of genres and sources, a file a document.
        file = tmp_path / f"train/nw/{number // 10:02d}/d_{number:04d}.v4_gold_conll"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document + end)
    given = {"dev_files": [str(coreference_data / "dev.conll")]}
    of_file, of_folder = (
        fine_tune("coreference", run=f"run_{number}", train_files=[str(train)], **given)
        for number, train in enumerate((coreference_data / "train.conll", tmp_path / "train"))
    )
    predictions = "predictions/dev.tfrecord"
    assert (of_file / predictions).read_bytes() == (of_folder / predictions).read_bytes()
    assert len(read_run(of_folder)["inputs"]["train_files"]) == 24


@pytest.mark.parametrize("representation", ["endpoints", "self_attention"])
def test_encodings_from_files_give_the_same_predictions(
    tmp_path: Path,
    fine_tune: Make,
    coreference_data: Path,
    monkeypatch: pytest.MonkeyPatch,
    representation: str,
) -> None:
    from multiberts.finetune.coreference import frozen_states as span_states
    from multiberts.finetune.coreference import task as coreference

    def run(name: str, **options: str) -> bytes:
        coreference._states.cache_clear()
        options["span_representation"] = representation
        fine_tune("coreference", coreference_data, name, learning_rate=1e-3, options=options)
        return (tmp_path / name / "predictions/dev.tfrecord").read_bytes()

    kept = {"encodings_dir": str(tmp_path / "encodings")}
    expected = run("in_memory")
    assert run("written", **kept) == expected
    # Where the files are there, nothing is encoded.
    monkeypatch.setattr(span_states, "_encoded", None)
    assert run("found", **kept) == expected


@pytest.mark.slow  # Python compiles TensorFlow's modules anew
def test_an_encodings_dir_is_checked_where_python_leaves_assertions_out(
    tmp_path: Path,
    make_checkpoint: Make,
    coreference_data: Path,
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    (tmp_path / "file").touch()
    data = f"--checkpoint={make_checkpoint()} --data_dir={coreference_data} --sequence_length=48"
    encodings = json.dumps({"encodings_dir": str(tmp_path / "file" / "encodings")})
    run = ["-m", "multiberts", "finetune", "--task=coreference", f"--run_dir={tmp_path / 'run'}"]
    done = run_python("-O", *run, *data.split(), f"--options={encodings}", "--nocompile_step")
    assert done.returncode == 2 and "option encodings_dir: cannot write" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_held_out_fold_has_whole_documents(
    tmp_path: Path, fine_tune: Make, coreference_data: Path
) -> None:
    fine_tune("coreference", coreference_data, held_out_fold=1)
    held_out = read_predictions([tmp_path / "run"], "held_out")
    ids = held_out["example_id"].values.tolist()
    documents = [identity.rpartition("/")[0] for identity in ids]
    # Each of the 24 documents has four pairs, one pronoun and four mentions; five are a fifth.
    assert sorted(map(documents.count, set(documents))) == [4] * 5
    assert read_run(tmp_path / "run")["num_train_examples"] == 96 - 20
    assert documents[0].startswith("coreference/train/train_")


def test_gap_files_train_and_evaluate(tmp_path: Path, fine_tune: Make, refused: Refuse) -> None:
    header = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL"
    rows = [
        f"x-{number}\tMary told John that {pronoun} was late.\t{pronoun}\t20\tMary\t0\t{a}\tJohn\t10\t{b}\tu"
        for number, (pronoun, a, b) in enumerate(
            [("she", "TRUE", "FALSE"), ("he", "FALSE", "TRUE")]
        )
    ]
    path, dev, other = (tmp_path / name for name in ("gap.tsv", "dev.tsv", "copy.tsv"))
    path.write_text("\n".join([header, *rows]) + "\n")
    dev.write_text(path.read_text().replace("\tu\n", "\tv\n"))
    given = {"train_files": [str(path)], "learning_rate": 3e-3, "num_epochs": 100, "batch_size": 4}
    run = fine_tune("coreference", dev_files=[str(dev)], **given)
    gap = read_predictions([run], "gap")
    assert gap["example_id"].values[0] == "coreference/gap/x-0/A"
    assert gap["label"].values.tolist() == [1, 0, 0, 1]
    assert gap["prediction"].values[0].tolist() == [1, 0, 0, 1]
    shutil.copy(dev, other)
    for files, line in (
        ([path], "gap.tsv of the dev files holds the same as"),
        ([], "nothing to predict"),
        ([dev, other], "copy.tsv and .*dev.tsv, which hold the same"),
    ):
        more = {"dev_files": [*map(str, files)]} if files else {}
        assert re.search(line, refused("coreference", **given, **more))
    other.write_text(dev.read_text().replace("\tv\n", "\tw\n"))
    said = refused("coreference", **given, dev_files=[str(dev), str(other)])
    assert "'coreference/gap/x-0/A' appears twice" in said


def test_documents_without_pronouns_are_refused(refused: Refuse, coreference_data: Path) -> None:
    file = coreference_data / "train.conll"
    file.write_text(file.read_text().replace("\tshe\t", "\tit\t").replace("\the\t", "\tit\t"))
    line = refused("coreference", coreference_data)
    assert "train.conll: found 0 pairs of a pronoun and a mention" in line


def test_sentences_longer_than_the_positions_are_refused(
    refused: Refuse, make_checkpoint: Make, coreference_data: Path, winogender_data: Path
) -> None:
    for name in ("templates.tsv", "all_sentences.tsv"):
        file = winogender_data / name
        file.write_text(file.read_text().replace(" late.", " late" + ", late" * 16 + "."))
    short = {"checkpoint": make_checkpoint(max_position_embeddings=32), "sequence_length": 32}
    line = refused("coreference", coreference_data, winogender_dir=str(winogender_data), **short)
    assert "all_sentences.tsv line 2: the sentence has 44 tokens" in line


def test_winogender_is_answered_by_the_likelier_mention(
    make_checkpoint: Make, coreference_data: Path, winogender_data: Path
) -> None:
    """Of a sentence's two pairs, the one whose probability of being coreferent is larger."""
    folders = {"data_dir": str(coreference_data), "winogender_dir": str(winogender_data)}
    read, model = opened_model(make_checkpoint(), "coreference", sequence_length=48, **folders)
    weights = model.initial_parameters(0)
    answers = {found.name: found for found in model.evaluate(weights)}["winogender"]
    pairs = model.pairs.sets["winogender"]
    states = span_states({"": pairs}, read, POOLING["endpoints"], compile_step=False)[""]
    logits = pair_logits(
        "endpoints", model.predictor, weights, pairs, states, np.arange(len(pairs.labels))
    )
    odds = dict(zip(pairs.pair_ids, logits[:, 1] - logits[:, 0], strict=True))
    expected = [
        int(odds[f"{identity}/participant"] > odds[f"{identity}/occupation"])
        for identity in answers.example_ids
    ]
    assert answers.predictions.tolist() == expected
    assert set(expected) == {0, 1}
