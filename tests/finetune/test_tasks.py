from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from multiberts.finetune import tasks
from multiberts.finetune.tasks import DataArguments, Task, registered_tasks, task_named
from multiberts.runs.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "tasks.md"


def test_every_task_of_the_papers_is_there() -> None:
    papers = {
        *("CoLA", "MNLI", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI"),
        *("coreference", "pronoun_probe"),
    }
    assert papers <= set(registered_tasks())
    assert [name for name, task in registered_tasks().items() if not task.trained] == [
        "pronoun_probe"
    ]


def test_a_name_of_ones_own_needs_labels() -> None:
    assert task_named("weather", ["wet", "dry"]).name == "weather"
    with pytest.raises(UserError, match=r"task 'weather' is unknown; expected one of .*RTE"):
        task_named("weather")


def test_options_are_completed_and_compared_with_the_defaults() -> None:
    task = Task("t", family=lambda arguments: None, options={"stride": 3, "rate": 0.5, "on": True})
    assert task.completed({"stride": 4, "rate": 1}) == {"stride": 4, "rate": 1, "on": True}
    for options in ({"stride": 1.5}, {"stride": True}, {"on": 1}, {"rate": "a"}):
        with pytest.raises(UserError, match="expected a value like"):
            task.completed(options)
    with pytest.raises(UserError, match="has 'strides', but the options of task t are: stride"):
        task.completed({"strides": 1})


def test_superfluous_data_arguments_are_named() -> None:
    with pytest.raises(UserError, match="task t takes no dev_files"):
        DataArguments("t", dev_files=("a",)).refuse("dataset", "dev_files")


def test_the_register_loads_without_tensorflow() -> None:
    program = (
        "import sys\nfrom multiberts.finetune.tasks import registered_tasks\nregistered_tasks()\n"
        "print([name for name in ('tensorflow', 'keras', 'torch') if name in sys.modules])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


def code_blocks() -> dict[str, str]:
    """The document's files by the name in the line before them."""
    found = re.findall(r"^`([\w./]+)`:\n\n```\w*\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
    return dict(found)


def test_the_worked_example_of_the_document_works(
    tmp_path: Path, make_checkpoint: Callable[..., Path], monkeypatch
) -> None:
    """Its files are taken out of the page, and its task is learned and scored."""
    from multiberts.evaluate.dumps.predictions import read_predictions
    from multiberts.evaluate.metrics import register as metrics
    from multiberts.evaluate.scoring import scores_of
    from multiberts.finetune.finetuning import finetune

    blocks = code_blocks()
    for name in ("finetune/review_stars.py", "evaluate/star_metrics.py"):
        path = tmp_path / Path(name).name
        path.write_text(blocks[name])
        module_name = "multiberts." + name.removesuffix(".py").replace("/", ".")
        specification = importlib.util.spec_from_file_location(module_name, path)
        assert specification is not None and specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        monkeypatch.setitem(sys.modules, module_name, module)
        specification.loader.exec_module(module)
    monkeypatch.setattr(tasks, "MODULES", (*tasks.MODULES, "multiberts.finetune.review_stars"))
    monkeypatch.setitem(
        metrics.METRICS, "within_one", sys.modules["multiberts.evaluate.star_metrics"].WITHIN_ONE
    )
    registered_tasks.cache_clear()
    try:
        folder = tmp_path / "reviews"
        folder.mkdir()
        # One word tells the stars.
        words = ["bad", "late", "it", "fine", "good"]
        for split, count in (("train", 200), ("dev", 40)):
            lines = [
                f'{{"id": "r{n}", "text": "the cake is {words[n % 5]}.", "stars": {n % 5 + 1}}}'
                for n in range(count)
            ]
            (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
        arguments = {
            "checkpoint": str(make_checkpoint()),
            "task": "review-stars",
            "data_dir": str(folder),
            "learning_rate": 3e-3,
            "batch_size": 20,
            "num_epochs": 12,
            "sequence_length": 16,
            "compile_step": False,
        }
        finetune(run_dir=str(tmp_path / "run"), **arguments)
        dataset = read_predictions([tmp_path / "run"], "dev")
        assert dataset["example_id"].values[3] == "review-stars/dev/r3"
        scores = scores_of(tmp_path / "run", "dev")
        assert scores["accuracy"] == 1.0
        assert scores["within_one"] == 1.0
        (folder / "dev.jsonl").write_text('{"id": "r0", "text": "fine", "stars": 9}\n')
        with pytest.raises(UserError, match=r"dev.jsonl line 1: found stars 9, expected 1 to 5"):
            finetune(run_dir=str(tmp_path / "other"), **arguments)
    finally:
        registered_tasks.cache_clear()
