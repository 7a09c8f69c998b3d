"""Every configuration of pre-training says what it is for, binds what exists, and runs at smoke size."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gin
import pytest

from multiberts.bert.checkpoint.checkpoint import read_checkpoint
from multiberts.bert.model.configuration import BertConfig
from multiberts.bert.model.operations import model_flops_per_step
from multiberts.pretrain.training.pretraining import checkpoint_path, pretrain
from multiberts.pretrain.training.settings import PretrainingSettings, check_settings
from multiberts.runs.command_line.command import parse_gin
from multiberts.runs.parameters import check_arguments

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "configs" / "pretrain"
SIZES = ("mini", "small", "medium", "base", "large")
RUNS = ("multiberts", "multiberts_checkpoints", "cda_full", "cda_incr", "zhong2021", "mini_real")


@pytest.fixture(scope="module", autouse=True)
def pretrain_known_to_gin() -> Iterator[None]:
    """As `runs.command_line.command` makes it known, and paths of included files from the project's root."""
    # Another test of this process may have done it.
    with contextlib.suppress(ValueError):
        gin.external_configurable(pretrain, name="pretrain")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        yield
    gin.clear_config()


def _bindings(*names: str, **macros: Any) -> dict[str, Any]:
    gin.clear_config()
    parse_gin(
        [f"configs/{name if '/' in name else f'pretrain/{name}'}.gin" for name in names],
        [f"{name} = {value!r}" for name, value in macros.items()],
    )
    return dict(gin.get_bindings("pretrain"))


PLACES = {
    "RUN_DIR": "run", "CORPUS": "corpus", "PRETRAIN_SEED": 0, "INITIAL_CHECKPOINT": "checkpoint",
    "EVALUATION_CORPUS": "held_out", "PROCEDURE": "zhong2021_mini",
}  # fmt: skip


def _of_size(size: str) -> dict[str, Any]:
    return _bindings(f"model/{size}", "zhong2021", **PLACES)


@pytest.mark.parametrize("name", RUNS)
def test_it_binds_all_that_is_needed_and_nothing_else(name: str) -> None:
    model = ["model/mini"] if name == "zhong2021" else []
    given = _bindings(*model, name, **PLACES)
    known = inspect.signature(pretrain).parameters
    assert given.keys() <= known.keys()
    assert {n for n, p in known.items() if p.default is p.empty} <= given.keys()
    for of_size in (given, _bindings(*model, name, "smoke", **PLACES)):
        check_arguments(pretrain, of_size)
        check_settings(PretrainingSettings(**of_size))


@pytest.mark.parametrize("name", [*RUNS, "smoke"])
def test_its_header_tells_what_it_is(name: str) -> None:
    text = (FOLDER / f"{name}.gin").read_text()
    header = "".join(itertools.takewhile(lambda line: line.startswith("#"), text.splitlines(True)))
    for part in ("Reproduces:", "Expected:", "Cost:", "Command:", "Required:"):
        assert f"# {part} " in header, part
    # Every value that must be given is listed, and no other.
    whole = text
    for included in re.findall(r"^include '(.+)'$", text, re.MULTILINE):
        whole += (ROOT / included).read_text()
        for further in re.findall(r"^include '(.+)'$", whole, re.MULTILINE):
            whole += (ROOT / further).read_text()
    used = set(re.findall(r"= %([A-Z_]+)$", whole, re.MULTILINE))
    set_here = set(re.findall(r"^([A-Z_]+) = ", whole, re.MULTILINE))
    listed = set(
        re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b|\bCORPUS\b|\bPROCEDURE\b", header.split("Required:")[1])
    )
    assert used - set_here <= listed


def test_the_release(tmp_path: Path) -> None:
    given = _bindings("multiberts_checkpoints", **PLACES)
    steps = given["checkpoint_steps"]
    assert steps == [0, *range(20_000, 200_001, 20_000), *range(300_000, 2_000_001, 100_000)]
    assert len(steps) == 28 + 1
    recipe = {
        "num_steps": 2_000_000, "batch_size": 256, "sequence_length": 512, "gradient_shards": 32,
        "max_predictions_per_sequence": 80, "learning_rate": 1e-4, "warmup_steps": 10_000,
    }  # fmt: skip
    assert {name: given[name] for name in recipe} == recipe
    assert (given["model"]["num_hidden_layers"], given["model"]["hidden_size"]) == (12, 768)
    full = _bindings("cda_full", **PLACES)
    changed = {name for name in full if full[name] != given.get(name)}
    assert changed == {"procedure", "max_predictions_per_sequence", "checkpoint_steps"}
    assert full["max_predictions_per_sequence"] == 20
    further = _bindings("cda_incr", **PLACES)
    assert further["max_predictions_per_sequence"] == 20  # footnote 8
    assert (further["num_steps"], further["initial_checkpoint"]) == (50_000, "checkpoint")


def test_the_five_sizes() -> None:
    """Zhong et al. (2021): mini L4/H256, small L4/H512, medium L8/H512, base L12/H768, large L24/H1024."""
    found = {}
    for size in SIZES:
        given = _of_size(size)
        found[size] = (given["model"]["num_hidden_layers"], given["model"]["hidden_size"])
        assert (given["sequence_length"], given["num_steps"]) == (128, 2_000_000)
    assert found == {
        "mini": (4, 256), "small": (4, 512), "medium": (8, 512),
        "base": (12, 768), "large": (24, 1024),
    }  # fmt: skip


def test_the_costs_of_five_sizes_add_up_to_the_papers() -> None:
    """Zhong et al. (2021), Appendix A: 50 models, 3,840 hours of v3-8, shared out by products."""
    text = (FOLDER / "zhong2021.gin").read_text()
    rows = re.findall(r"^#     (\w+) +([\d.]+) hours +([\d.]+) %$", text, re.MULTILINE)
    hours = {size: float(of_seed) for size, of_seed, _ in rows}
    assert (*hours,) == SIZES
    flops = {}
    for size in SIZES:
        config = BertConfig.from_mapping({**_of_size(size)["model"], "vocab_size": 30522}, size)
        flops[size] = 2_000_000 * model_flops_per_step(config, 256, 128, 20)
    assert 10 * sum(hours.values()) == pytest.approx(3840, rel=0.01)
    for size, _, percent in rows:
        share = flops[size] / sum(flops.values())
        assert hours[size] == pytest.approx(384 * share, rel=0.02)
        assert f"{100 * share:.1f}" == percent
    # A chip of TPU v3 has 123 TFLOP/s.
    share_of_peak = 10 * sum(flops.values()) / (3840 * 3600) / (4 * 123e12)
    assert share_of_peak == pytest.approx(0.26, abs=0.005)


@pytest.fixture(scope="module")
def smoke_run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Runs a configuration with the overlay after it, once, in this process."""
    folder = tmp_path_factory.mktemp("smoke")

    @functools.cache
    def run(name: str) -> Path:
        if name == "cda_incr":  # it continues the seed of the release
            run("multiberts")
        macros = {
            "RUN_DIR": str(folder / name), "CORPUS": str(corpus), "PRETRAIN_SEED": 1,
            "PROCEDURE": name, "EVALUATION_CORPUS": str(corpus.parent / "held_out"),
            "INITIAL_CHECKPOINT": str(checkpoint_path(folder / "multiberts", 40)),
        }  # fmt: skip
        pretrain(**_bindings(name, "smoke", **macros), compile_step=name != "multiberts")
        return folder / name

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_it_runs_at_smoke_size(smoke_run: Callable[[str], Path], name: str) -> None:
    run = smoke_run(name)
    assert (run / "DONE").is_file()
    [last] = [p for p in (run / "checkpoints").iterdir() if p.name != "step_0"][-1:]
    assert read_checkpoint(last).provenance["procedure"] == name.removesuffix("_checkpoints")
    kept = sorted(int(path.name[5:]) for path in (run / "checkpoints").iterdir())
    assert kept == [0, 10, 20, 30, 40]
