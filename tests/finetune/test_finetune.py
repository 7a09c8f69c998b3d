from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.predictions import read_predictions
from multiberts.evaluate.prediction_files.run_file import find_runs
from multiberts.finetune.finetuning import finetune
from multiberts.runs.errors import UserError
from multiberts.runs.preemption import EXIT_PREEMPTED
from multiberts.tests.bert.training.shared_programs import live_bytes
from multiberts.tests.finetune.conftest import Make, Refuse

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"batch_size": 16, "num_epochs": 3, "sequence_length": 32, "compile_step": False}


def predictions(run: Path, evaluation_set: str = "dev") -> bytes:
    return (run / "predictions" / f"{evaluation_set}.tfrecord").read_bytes()


def accuracy(run: Path, evaluation_set: str = "dev") -> float:
    dataset = read_predictions([run], evaluation_set)
    return float((dataset["prediction"] == dataset["label"]).mean())


def test_a_label_told_by_a_word_is_learned(
    tmp_path: Path, fine_tune: Make, pair_data: Path
) -> None:
    """Alone follows pairs from a table through training to predictions and their record."""
    run = fine_tune("pair", pair_data, learning_rate=2e-3, num_epochs=20)
    assert accuracy(run) == 1.0
    dev, names = read_predictions([run], "dev"), ["sentence1", "sentence2"]
    given = [line.split("\t")[1:3] for line in (pair_data / "dev.tsv").read_text().splitlines()[1:]]
    assert list(zip(*(dev[name].values for name in names), strict=True)) == list(map(tuple, given))
    ((_, content),) = find_runs(tmp_path)
    coordinates = ("procedure", "pretrain_seed", "data_seed", "step", "learning_rate")
    assert [content[name] for name in coordinates] == ["base", 0, 5, 7, 2e-3]
    assert content["evaluation_sets"]["dev"]["examples"] == 37
    assert content["num_train_examples"] == 96
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == 96 * 20 // 16
    assert not (run / "state").exists()


def test_the_learning_rate_rises_for_a_tenth_and_falls_to_zero(
    tmp_path: Path, fine_tune: Make, pair_data: Path
) -> None:
    """As run_classifier.py: 96 examples five times in batches of 16 are 30 steps, 3 of them rising."""
    fine_tune("pair", pair_data, learning_rate=3e-4, log_every_steps=1, num_epochs=5)
    lines = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    rates = [line["learning_rate"] for line in lines if "learning_rate" in line]
    falling = [3e-4 * (30 - step) / 30 for step in range(3, 30)]
    assert rates == pytest.approx([0.0, 1e-4, 2e-4, *falling])


@pytest.mark.usefixtures("eager")
def test_a_configuration_that_is_replaced_is_read_anew(
    tmp_path: Path, fine_tune: Make, make_checkpoint: Make, pair_data: Path
) -> None:
    """Of a release without a record, whose weights alone tell one checkpoint from another."""
    checkpoint = make_checkpoint()
    (checkpoint / "checkpoint.json").unlink()
    config = json.loads((checkpoint / "bert_config.json").read_text())
    for name, heads in (("two", 2), ("four", 4)):
        config["num_attention_heads"] = heads
        (checkpoint / "bert_config.json").write_text(json.dumps(config))
        fine_tune("pair", pair_data, name, checkpoint=checkpoint, max_steps=1)
    assert predictions(tmp_path / "two") != predictions(tmp_path / "four")


@pytest.mark.usefixtures("eager")
def test_each_source_of_randomness_has_a_seed_of_its_own(
    tmp_path: Path, fine_tune: Make, make_checkpoint: Make, pair_data: Path
) -> None:
    """Each follows `finetune_seed` until it is given; without dropout its seed moves nothing."""
    seeds = ("head_seed", "order_seed", "dropout_seed")
    runs: dict[str, dict[str, int]] = {
        "plain": {}, "again": {}, "other": {"finetune_seed": 2},
        "whole": {"finetune_seed": 2, **dict.fromkeys(seeds, 1)}, **{seed: {seed: 2} for seed in seeds},
    }  # fmt: skip
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    for number, (sizes, unmoved) in enumerate((({}, set()), (none, {"dropout_seed"}))):
        given = {"checkpoint": make_checkpoint(number, **sizes), "learning_rate": 1e-3}
        given |= {"max_steps": 2, "finetune_seed": 1}
        found = {
            name: predictions(fine_tune("pair", pair_data, f"{number}_{name}", **(given | changes)))
            for name, changes in runs.items()
        }
        same = {name for name in found if found[name] == found["plain"]}
        assert same == {"plain", "again", "whole"} | unmoved
    records = [(tmp_path / f"0_{name}/run.json").read_bytes() for name in ("plain", "again")]
    assert records[0] == records[1]
    recorded = [
        json.loads((tmp_path / f"0_{run}/run.json").read_text())["parameters"]["head_seed"]
        for run in ("plain", "head_seed")
    ]
    assert recorded == [None, 2]


def test_a_finished_run_is_left_alone_and_other_parameters_refused(
    fine_tune: Make, pair_data: Path
) -> None:
    run = fine_tune("pair", pair_data, max_train_examples=32)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    fine_tune("pair", pair_data, max_train_examples=32)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    with pytest.raises(UserError, match=r"other parameters: finetune.max_train_examples"):
        fine_tune("pair", pair_data, max_train_examples=33)


def test_early_predictions_are_those_of_the_run_at_that_step(
    tmp_path: Path, fine_tune: Make, pair_data: Path
) -> None:
    # The learning rate rises to the very end: a line through zero.
    rising = {"learning_rate": 1e-3, "warmup_proportion": 1.0}
    fine_tune("pair", pair_data, "plain", **rising)
    fine_tune("pair", pair_data, "early", **rising, prediction_epochs=[0.5, 1.75])
    assert predictions(tmp_path / "early") == predictions(tmp_path / "plain")
    ((_, content),) = find_runs(tmp_path / "early")
    assert set(content["evaluation_sets"]) == {"dev@0.5", "dev@1.75", "dev"}
    assert content["evaluation_sets"]["dev@1.75"]["epochs"] == 1.75

    # 96 examples in batches of 16: half an epoch is 3 of 18 steps. The rate of step n is n / 18 of the
    # peak, of a run of 3 steps n / 3, so with a sixth of the peak both make the same steps.
    shorter = {"num_epochs": 0.5, "learning_rate": 1e-3 * 3 / 18}
    fine_tune("pair", pair_data, "short", **(rising | shorter))
    early = read_predictions([tmp_path / "early"], "dev@0.5")["scores"].values
    short = read_predictions([tmp_path / "short"], "dev")["scores"].values
    np.testing.assert_allclose(early, short, atol=1e-6)
    later = read_predictions([tmp_path / "early"], "dev@1.75")["scores"].values
    assert np.abs(early - later).max() > 1e-3


def test_a_held_out_fifth_is_predicted_and_not_trained_on(fine_tune: Make, pair_data: Path) -> None:
    held_out: list[set[str]] = []
    for fold in (0, 3):
        given = {"held_out_fold": fold, "finetune_seed": fold, "prediction_epochs": [1]}
        run = fine_tune("pair", pair_data, str(fold), **given)
        dataset = read_predictions([run], "held_out")
        held_out.append(set(dataset["example_id"].values.tolist()))
        lines = (pair_data / "train.tsv").read_text().splitlines()[1:]
        for identity, label in zip(
            dataset["example_id"].values, dataset["label"].values, strict=True
        ):
            task, split, row = identity.split("/")
            assert (task, split) == ("pair", "train")
            assert (lines[int(row)].split("\t")[3] == "not_entailment") == label
        ((_, content),) = find_runs(run)
        assert set(content["evaluation_sets"]) == {"dev@1", "held_out@1", "dev", "held_out"}
        assert content["num_train_examples"] + len(held_out[-1]) == 96
        assert content["parameters"]["held_out_fold"] == fold
    assert all(len(identities) in (19, 20) for identities in held_out)
    assert not held_out[0] & held_out[1]


def test_a_held_out_fifth_stands_in_for_a_missing_dev_file(
    tmp_path: Path, fine_tune: Make, refused: Refuse, pair_data: Path
) -> None:
    labels = ["entailment", "not_entailment"]
    only_train = {"labels": labels, "train_files": [str(pair_data / "train.tsv")]}
    assert "one train file and one dev file" in refused("pair", **only_train)
    fine_tune("pair", held_out_fold=0, **only_train)
    ((_, content),) = find_runs(tmp_path)
    assert set(content["evaluation_sets"]) == {"held_out"}
    assert content["evaluation_sets"]["held_out"]["metrics"] == ["accuracy"]


def test_run_json_says_where_the_numbers_come_from(
    tmp_path: Path, fine_tune: Make, make_checkpoint: Make, pair_data: Path, vocabulary: Path
) -> None:
    checkpoint = make_checkpoint()
    fine_tune("pair", pair_data, checkpoint=checkpoint, finetune_seed=4)
    content = json.loads((tmp_path / "run/run.json").read_text())

    def checksum(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    assert "task_modules" not in (tmp_path / "run/config.gin").read_text()
    assert content["checkpoint"] == {
        "name": checkpoint.name,
        "sha256": checksum(checkpoint / "checkpoint.json"),
    }
    assert content["vocabulary_sha256"] == checksum(vocabulary)
    assert content["inputs"] == {
        f"{split}_files": [{"name": f"{split}.tsv", "sha256": checksum(pair_data / f"{split}.tsv")}]
        for split in ("train", "dev")
    }
    assert content["parameters"]["batch_size"] == 16
    assert content["parameters"]["finetune_seed"] == content["finetune_seed"] == 4
    assert {"python", "keras", "numpy", "code"} <= set(content["versions"])


def long_run(run: Path, checkpoint: Path, data: Path) -> dict:
    return {
        "run_dir": str(run), "checkpoint": str(checkpoint), "task": "pair", "data_dir": str(data),
        "learning_rate": 1e-3, **{**SMALL, "num_epochs": 60}, "prediction_epochs": [7.5, 20],
        "save_state_every_steps": 7, "log_every_steps": 1,
    }  # fmt: skip


def command(run: Path, checkpoint: Path, data: Path) -> list[str]:
    bindings = long_run(run, checkpoint, data)
    flags = [f"--gin_param=finetune.{name} = {value!r}" for name, value in bindings.items()]
    return [sys.executable, "-m", "finetune", *flags]


@pytest.mark.slow
def test_killed_anywhere_it_ends_in_the_same_bytes(
    tmp_path: Path, make_checkpoint: Make, pair_data: Path
) -> None:
    checkpoint = make_checkpoint()
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finetune(**long_run(whole, checkpoint, pair_data))
    moments = random.Random(11)
    log = killed / "metrics.jsonl"
    kills = 0
    # Killed once when the log has grown to some length, and once soon after the log is complete.
    for lines in (moments.randint(1, 150), moments.randint(150, 340), 360):
        process = subprocess.Popen(command(killed, checkpoint, pair_data), cwd=ROOT)
        while process.poll() is None:
            if log.exists() and len(log.read_text().splitlines()) >= lines:
                time.sleep(moments.uniform(0, 0.05))
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
                kills += 1
                break
            time.sleep(0.005)
    assert kills >= 2
    finetune(**long_run(killed, checkpoint, pair_data))
    assert predictions(whole) == predictions(killed)
    assert (whole / "run.json").read_bytes() == (killed / "run.json").read_bytes()
    assert (whole / "DONE").read_bytes() == (killed / "DONE").read_bytes()
    assert not list(killed.rglob("*.unfinished"))
    (killed / "state").mkdir()  # a kill after DONE, before the state was removed
    finetune(**long_run(killed, checkpoint, pair_data))
    assert not (killed / "state").exists()


@pytest.mark.slow
def test_asked_to_stop_it_saves_and_goes_on_to_the_same_bytes(
    tmp_path: Path, make_checkpoint: Make, pair_data: Path
) -> None:
    checkpoint = make_checkpoint()
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    finetune(**long_run(whole, checkpoint, pair_data))
    process = subprocess.Popen(
        command(stopped, checkpoint, pair_data), cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    early = stopped / "predictions/dev@7.5.tfrecord"
    while process.poll() is None and not early.exists():
        time.sleep(0.005)
    process.terminate()
    _, messages = process.communicate()
    assert process.returncode == EXIT_PREEMPTED, messages
    assert "the same command resumes there" in messages.splitlines()[-1]
    kept = early.stat().st_mtime_ns
    finetune(**long_run(stopped, checkpoint, pair_data))
    assert early.stat().st_mtime_ns == kept
    assert (whole / "DONE").read_bytes() == (stopped / "DONE").read_bytes()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"task": "RTE", "labels": ["yes", "no"]}, "labels of task RTE are"),
        ({"data_dir": "nowhere"}, "nowhere has no table named train (.tsv, .csv,"),
        ({"checkpoint": "nowhere"}, "nowhere does not exist"),
        ({"sequence_length": 65}, "the checkpoint has 64 positions"),
        ({"learning_rate": -1.0}, "finetune.learning_rate is -1.0"),
        ({"finetune_seed": -1}, "finetune.finetune_seed is -1, expected int at least 0"),
        ({"batch_size": 97}, "batch_size is 97, but there are 96 examples to train on, so that a b"),
        ({"max_train_examples": 15}, "batch_size is 16, but there are 15 examples to train on"),
        ({"num_epochs": 1e-9}, "finetune.num_epochs has 1e-09, but an epoch of 96 examples is 6 st"),
        ({"prediction_epochs": [0.1, 1]}, "finetune.prediction_epochs has 0.1, but an epoch of 96"),
        ({"max_train_examples": 0}, "finetune.max_train_examples is 0"),
        ({"prediction_epochs": [3]}, "finetune.prediction_epochs holds 3"),
        ({"prediction_epochs": [1.5, 1.50001]}, "expected each number once"),
        ({"options": {"predict_test": "yes"}}, "option predict_test of task pair is 'yes'"),
        ({"train_files": ["x"]}, "both data_dir and train_files"),
        ({"task": "coreference"}, "has no file named train (.conll)"),
        ({"task": "coreference", "data_dir": None}, "needs finetune.train_files"),
        ({"task": "pronoun_probe"}, "templates.tsv does not exist"),
    ],
)  # fmt: skip
def test_bad_arguments_leave_no_directory(
    refused: Refuse, pair_data: Path, changes: dict, line: str
) -> None:
    assert line in refused(**{"task": "pair", "data_dir": str(pair_data), **changes})


def _all_of_one_class(train: str, dev: str) -> tuple[str, str]:
    return train.replace("not_entailment", "entailment"), dev


def _no_words(train: str, dev: str) -> tuple[str, str]:
    header, *lines = dev.splitlines()
    columns = [line.split("\t") for line in lines]
    rows = [f"{row}\t \t{second}\t{label}" for row, _, second, label in columns]
    return train, "\n".join([header, *rows]) + "\n"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_all_of_one_class, "train.tsv: all 96 examples to train on have the label 'entailment'"),
        (_no_words, "dev.tsv: 37 of 37 examples have an empty text; give the file with its texts"),
        (lambda train, _: (train, train), "dev.tsv of the dev files holds the same as"),
    ],
)
def test_data_that_teach_or_show_nothing_leave_no_directory(
    refused: Refuse, pair_data: Path, change: Callable[[str, str], tuple[str, str]], message: str
) -> None:
    files = [pair_data / "train.tsv", pair_data / "dev.tsv"]
    for file, text in zip(files, change(*(file.read_text() for file in files)), strict=True):
        file.write_text(text)
    assert message in refused("pair", pair_data)


def test_some_empty_texts_are_warned_of(
    fine_tune: Make, pair_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = pair_data / "dev.tsv"
    header, first, second, *rest = file.read_text().splitlines()
    row, text, _, label = second.split("\t")
    file.write_text("\n".join([header, first, f"{row}\t{text}\t\t{label}", *rest]) + "\n")
    fine_tune("pair", pair_data, num_epochs=0.2)
    assert capsys.readouterr().err.splitlines()[0] == (
        f"warning: {file}: 1 of 37 examples have an empty text, such as pair/dev/1; the model gets an "
        "empty text"
    )


def test_bad_data_are_refused_by_the_command_before_tensorflow(
    tmp_path: Path, make_checkpoint: Make, pair_data: Path
) -> None:
    checkpoint = make_checkpoint()
    file = pair_data / "dev.tsv"
    file.write_text(file.read_text() + "99\tonly two\n")
    program = (
        "import sys\nfrom multiberts.runs.command_line.command import run_command\n"
        "from multiberts.finetune.finetuning import finetune\n"
        "try:\n    run_command(finetune)\nfinally:\n"
        "    print({'tensorflow', 'keras', 'torch'} & {*sys.modules})\n"
    )
    arguments = command(tmp_path / "run", checkpoint, pair_data)[3:]
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert result.stdout == "set()\n"
    assert len(result.stderr.splitlines()) == 1
    assert "dev.tsv line 39: found 2 columns, expected 4" in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.seconds
def test_weights_of_a_process_end_with_their_runs(fine_tune: Make, pair_data: Path) -> None:
    """Two networks one after the other, as in a sweep's worker."""
    before = live_bytes()
    for number in range(2):
        labels = ["entailment", "not_entailment", *map(str, range(number))]
        fine_tune("mine", pair_data, f"run_{number}", labels=labels, max_steps=1)
    assert live_bytes() <= before
