from __future__ import annotations

import ast
import importlib
import os
import re
import sys
from pathlib import Path

import pytest

from multiberts.finetune.task import MODULES, Task, registered_tasks, task_named
from multiberts.runs import ROOMS
from multiberts.runs.errors import UserError
from multiberts.tests.finetune.conftest import Make, Refuse
from multiberts.tests.finetune.stranger import TASK, write_stranger
from multiberts.tests.tools import warm

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "tasks.md"


def test_every_task_of_the_papers_is_there_and_no_name_twice() -> None:
    papers = {
        *("CoLA", "MNLI", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI", "AX"),
        *("coreference", "pronoun_probe"),
    }
    assert papers <= set(registered_tasks())
    assert [name for name, task in registered_tasks().items() if not task.trains] == [
        "pronoun_probe",
        "masked_words",
    ]
    assert [name for name, task in registered_tasks().items() if task.frozen_encoder] == [
        "coreference",
        "pronoun_probe",
        "masked_words",
    ]
    names = [task.name for name in MODULES for task in importlib.import_module(name).TASKS]
    assert sorted(names) == sorted(registered_tasks())


def test_sizes_are_the_published_ones() -> None:
    """Wang et al. 2019, table 1, in full; QNLI in its second version; both MNLI sets are predicted."""
    tasks = registered_tasks()
    sizes = {name: (tasks[name].num_train_examples, tasks[name].num_dev_examples) for name in tasks}
    assert sizes["CoLA"] == (8_551, 1_043)
    assert sizes["QQP"] == (363_846, 40_430)
    assert sizes["MNLI"] == (392_702, 9_815 + 9_832)
    assert sizes["QNLI"] == (104_743, 5_463)
    assert sizes["pair"] == sizes["AX"] == (None, None)


def test_a_name_of_ones_own_needs_labels() -> None:
    assert task_named("weather", ["wet", "dry"]).name == "weather"
    with pytest.raises(UserError, match=r"task 'weather' is unknown .*; expected one of .*RTE"):
        task_named("weather")
    with pytest.raises(UserError, match=r"task 'SST2' is unknown .*; did you mean SST-2"):
        task_named("SST2")


def test_options_are_completed_and_compared_with_the_defaults() -> None:
    task = Task("t", data=lambda arguments: None, options={"stride": 3, "rate": 0.5, "on": True})
    assert task.completed({"stride": 4, "rate": 1}) == {"stride": 4, "rate": 1, "on": True}
    for options in ({"stride": 1.5}, {"stride": True}, {"on": 1}, {"rate": "a"}):
        with pytest.raises(UserError, match="expected a value like"):
            task.completed(options)
    with pytest.raises(UserError, match="has 'strides', but the options of task t are: stride"):
        task.completed({"strides": 1})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"has 'outside_tasks', which cannot be used \(.*no attribute 'TASKS'\)"),
        ("import no_such_module", r"cannot be used \(No module named 'no_such_module'\)"),
        ("TASKS = ('RTE',)", r"outside_tasks.TASKS is \('RTE',\), expected a tuple of multiberts"),
        ("from multiberts.finetune.task import Task\nTASKS = (Task('RTE', None),)",
         "registers task 'RTE', but there is a task of that name already; give it another name"),
    ],
)  # fmt: skip
def test_a_module_outside_the_tree_that_registers_nothing_new_is_refused(
    tmp_path: Path, monkeypatch, text: str, message: str
) -> None:
    (tmp_path / "outside_tasks.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("outside_tasks", None)
    with pytest.raises(UserError, match=message):
        task_named("RTE", task_modules=["outside_tasks"])


def code_blocks() -> dict[str, str]:
    """Returns the document's files by the name in the line before them."""
    found = re.findall(r"^`([\w./]+)`:\n\n```\w*\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
    return dict(found)


def test_the_worked_example_of_the_document_works(
    tmp_path: Path, fine_tune: Make, refused: Refuse, monkeypatch
) -> None:
    """Its task is registered from a folder outside the tree, learned and scored."""
    from multiberts.evaluate.metrics.register import METRICS
    from multiberts.evaluate.prediction_files.predictions import read_predictions
    from multiberts.evaluate.scoring import scores_of

    blocks = code_blocks()
    metric: dict = {}
    exec(blocks["evaluate/metrics/star_metrics.py"], metric)
    monkeypatch.setitem(METRICS, "within_one", metric["WITHIN_ONE"])
    outside = tmp_path / "my_tasks"
    outside.mkdir()
    text = blocks["my_tasks/review_stars.py"]
    assert text.count('metrics=("accuracy",)') == 1
    text = text.replace('metrics=("accuracy",)', 'metrics=("accuracy", "within_one")')
    (outside / "review_stars.py").write_text(text)
    monkeypatch.syspath_prepend(outside)
    folder = tmp_path / "reviews"
    folder.mkdir()
    # One word determines the stars.
    words = ["bad", "late", "it", "fine", "good"]
    for split, count in (("train", 200), ("dev", 40)):
        lines = [
            f'{{"id": "r{n}", "text": "the cake is {words[n % 5]}.", "stars": {n % 5 + 1}}}'
            for n in range(count)
        ]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    call = ("review-stars", folder)
    given = {"learning_rate": 3e-3, "batch_size": 20, "num_epochs": 12, "sequence_length": 16}
    assert "task 'review-stars' is unknown" in refused(*call, **given)
    given["task_modules"] = ["review_stars"]
    run = fine_tune(*call, **given)
    dataset = read_predictions([run], "dev")
    assert dataset["example_id"].values[3] == "review-stars/dev/r3"
    scores = scores_of(run, "dev")
    assert scores["accuracy"] == 1.0
    assert scores["within_one"] == 1.0
    (folder / "dev.jsonl").write_text('{"id": "r0", "text": "fine", "stars": 9}\n')
    assert "dev.jsonl line 1: found stars 9, expected 1 to 5" in refused(*call, **given)


@pytest.mark.parametrize(
    "name",
    [
        "reviews.gin",
        *(
            pytest.param(f"{name}.gin", marks=pytest.mark.slow)
            for name in ("similarity", "marks", "names")
        ),
    ],
)
def test_the_configurations_of_the_document_work(
    tmp_path: Path, make_checkpoint: Make, name: str
) -> None:
    """A table of the document's columns is learned by the command, whatever its form."""
    from multiberts.evaluate.scoring import scores_of

    pytest.importorskip("pyarrow")
    import pandas as pd

    words = [("bad", "late", "fine", "good")[number % 4] for number in range(200)]
    texts = [f"the cake is {word}." for word in words]
    tables = {
        "reviews": {"review": texts, "tone": [["cross", "calm"][n % 4 // 2] for n in range(200)]},
        "pairs": {"first": texts, "second": "it is cake", "score": [5 * (n % 4 // 2) for n in range(200)]},
        "marks": {"text": texts, "marks": [[m for m in ("bad", "late") if m == word] for word in words]},
        "names": {"tokens": [text.split() for text in texts], "tags": [["O", "B-CAKE", "O", "O"]] * 200},
    }  # fmt: skip
    for folder, columns in tables.items():
        (tmp_path / folder).mkdir()
        frame = pd.DataFrame(columns)
        for split, part in (("train", frame), ("dev", frame[40:80])):
            file = tmp_path / folder / split
            if folder == "reviews":
                part.to_csv(f"{file}.csv", index=False)
            elif (folder, split) == ("pairs", "dev"):
                part.to_parquet(f"{file}.parquet")
            else:
                part.to_json(f"{file}.jsonl", orient="records", lines=True)
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / name).write_text(code_blocks()[name])
    changes = [
        *(f"CHECKPOINT = {str(make_checkpoint())!r}", "RUN_DIR = 'run'"),
        *("finetune.learning_rate = 3e-3", "finetune.batch_size = 20", "finetune.num_epochs = 12"),
        *("finetune.sequence_length = 16", "finetune.compile_step = False"),
    ]
    flags = [f"--gin_file={name}", *(f"--gin_param={change}" for change in changes)]
    result = warm.run(["finetune", *flags], tmp_path, kind=warm.TENSORFLOW)
    assert result.returncode == 0, result.stderr
    scores = scores_of(tmp_path / "run", "dev")
    main_metric = {"reviews.gin": "f1_macro", "similarity.gin": "spearman",
                   "marks.gin": "multilabel_f1_macro", "names.gin": "span_f1"}[name]  # fmt: skip
    assert scores[main_metric] > 0.8  # of two values, ranks of four agree to 0.89 at most


@pytest.mark.usefixtures("eager")
def test_a_task_of_ones_own_gets_the_options_of_training(
    tmp_path: Path, fine_tune: Make, pair_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model is asked for its trainer after the routine has set them."""
    from multiberts.finetune.training_options import TrainingOptions

    (tmp_path / "own_training.py").write_text(
        "import dataclasses\n"
        "from multiberts.finetune.task import task_named\n"
        "from multiberts.finetune.text.data import TextData\n"
        "from multiberts.finetune.text.model import TextModel\n"
        "PAIR, SEEN = task_named('pair'), []\n"
        "class OwnModel(TextModel):\n"
        "    @property\n"
        "    def trainer(self):\n"
        "        SEEN.append(self.training)\n"
        "        return super().trainer\n"
        "class OwnData(TextData):\n"
        "    def read(self, checkpoint): return OwnModel(**vars(super().read(checkpoint)))\n"
        "def data(arguments): return OwnData(**vars(PAIR.data(arguments)))\n"
        "TASKS = (dataclasses.replace(PAIR, name='own', data=data),)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    given = {"task_modules": ["own_training"], "max_steps": 1, "sequence_length": 16}
    fine_tune("own", pair_data, **given, frozen_layers=1)
    assert [TrainingOptions(frozen_layers=1)] == sys.modules["own_training"].SEEN


@pytest.mark.usefixtures("eager")
def test_runs_of_a_task_outside_the_tree_are_scored_without_its_module(
    tmp_path: Path, fine_tune: Make, pair_data: Path, monkeypatch
) -> None:
    """What is only read runs no code of others: neither finished runs nor their configurations."""
    module = tmp_path / "outside_pairs.py"
    was_imported = write_stranger(module)
    monkeypatch.syspath_prepend(tmp_path)
    given = {"task_modules": ["outside_pairs"], "max_steps": 1, "sequence_length": 32}
    runs = fine_tune(TASK, pair_data, "runs/finished", **given).parent
    (runs / "begun").mkdir()
    frozen = (runs / "finished" / "config.gin").read_text()
    (runs / "begun" / "config.gin").write_text(frozen)
    assert "finetune.task_modules = ['outside_pairs']\n" in frozen
    assert frozen.count("finetune.task_modules = ") == 2  # compared, and of the call
    was_imported.unlink()
    for name, is_there in (("there", True), ("removed", False)):
        if not is_there:
            module.unlink()
        flags = [
            f"--gin_param=score.run_dir = '{tmp_path / name}'",
            f"--gin_param=score.predictions = '{runs}'",
        ]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        result = warm.run(["evaluate", *flags], environment=environment)
        assert result.returncode == 0, result.stderr
        warned = [line for line in result.stderr.splitlines() if "predicts the label" not in line]
        assert warned == [
            f"warning: {runs}/begun was started and has not finished; run the same command again"
        ]
        assert f"{TASK},dev,accuracy" in (tmp_path / name / "scores.csv").read_text()
    assert not was_imported.exists()


def test_tasks_are_named_in_their_own_modules_alone() -> None:
    """Names that are words elsewhere too, such as `facts`, are left out; so is what reads others' results."""
    names = {name for name in registered_tasks() if not (name.isalpha() and name.islower())}
    ours = {Path(*module.split(".")[1:]).with_suffix(".py") for module in MODULES}
    found = set()
    paths = [path for room in ROOMS for path in (ROOT / room).rglob("*.py")]
    assert len(paths) > 200 and len(names) > 10
    for path in paths:
        place = path.relative_to(ROOT)
        if place not in ours and not place.is_relative_to("evaluate/imports"):
            text = path.read_text(encoding="utf-8")
            # Parsing every file would take seconds.
            tree = ast.parse(text if any(name in text for name in names) else "")
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and node.value in names:
                    found.add((str(place), node.value))
    # A row of the table of evaluation sets: GLUE's own set without training data.
    assert found == {("finetune/text/challenge_sets.py", "AX")}
