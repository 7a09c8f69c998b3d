"""The configurations of GLUE and of challenge sets bind what exists, with the recipe's numbers."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gin
import pytest

from multiberts.finetune.finetuning import finetune
from multiberts.runs.command_line.command import parse_gin, require_arguments

ROOT = Path(__file__).resolve().parents[2]
PLACES = {"RUN_DIR": "run", "CHECKPOINT": "checkpoint", "DATA_DIR": "data"}
# Sellam et al. 2022, section 2.2.
RECIPE = {"num_epochs": 3, "batch_size": 32, "sequence_length": 128, "warmup_proportion": 0.1}


@pytest.fixture(scope="module", autouse=True)
def finetune_known_to_gin() -> Iterator[None]:
    """As `runs.command_line.command` makes it known, and paths of included files from the project's root."""
    with contextlib.suppress(ValueError):
        gin.external_configurable(finetune, name="finetune")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield
    gin.clear_config()


def bindings(name: str, **macros: Any) -> dict[str, Any]:
    gin.clear_config()
    params = [f"{macro} = {value!r}" for macro, value in {**PLACES, **macros}.items()]
    parse_gin([f"configs/finetune/{name}.gin"], params)
    return dict(gin.get_bindings("finetune"))


@pytest.mark.parametrize(
    ("name", "macros", "further"),
    [
        ("glue", {"TASK": "RTE"}, {}),
        ("glue_test", {"TASK": "RTE"}, {"options": {"predict_test": True}, "evaluation_files": None}),
        ("glue_test", {"TASK": "MNLI", "AX": {"ax": "a"}}, {"evaluation_files": {"ax": "a"}}),
        ("mnli_challenge", {"HANS": "h", "SNLI": "s", "STRESS": "t"},
         {"task": "MNLI", "learning_rate": 2e-5,
          "evaluation_files": {"hans": "h", "snli": "s", "stress": "t"}}),
        ("qqp_challenge", {"TWITTER_PPDB": "w"}, {"task": "QQP", "evaluation_files": {"twitter_ppdb": "w"}}),
    ],
)  # fmt: skip
def test_bound_arguments_are_the_recipe_and_what_the_file_says(
    name: str, macros: dict[str, Any], further: dict[str, Any]
) -> None:
    found = bindings(name, **macros)
    assert set(found) <= set(inspect.signature(finetune).parameters)
    require_arguments(finetune, set(found))
    expected = {**RECIPE, "data_dir": "data", **further}
    assert {argument: found.get(argument) for argument in expected} == expected
