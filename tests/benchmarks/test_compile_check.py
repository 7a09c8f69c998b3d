"""Programs compiled for accelerators that are not here: the table, and a tiny one where compilers are."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from multiberts.benchmarks import compile_check
from multiberts.benchmarks.compile_check import (
    CEILINGS,
    FINETUNED,
    MODELS,
    TABLE,
    TARGETS,
    collectives,
    compiled_apart,
    estimated_cycles,
    kernels,
    page,
    versions,
)
from multiberts.bert.model.configuration import num_parameters
from multiberts.runs.environment import ENGINE, JAX
from multiberts.tests.tools import warm
from multiberts.tests.tools.patience import PATIENCE

# A loop of 4 turns whose body holds a loop that does not say how often it runs, as TPU programs look.
PROGRAM = """HloModule jit_step

%inner (p: f32[8]) -> f32[8] {
  ROOT %a = f32[8]{0} fusion(%p), kind=kLoop, calls=%f, backend_config={"estimated_cycles":"10"}
}

%ever (p: f32[8]) -> pred[] {
  ROOT %c = pred[] compare(%p, %p), direction=LT
}

%body (p: f32[8]) -> f32[8] {
  %b = f32[8]{0} fusion(%p), kind=kLoop, calls=%f, backend_config={"estimated_cycles":"100"}
  ROOT %w = f32[8]{0} while(%b), condition=%ever, body=%inner
}

%condition (p: f32[8]) -> pred[] {
  %n = s32[]{:T(128)} constant(4)
  ROOT %c = pred[] compare(%p, %n), direction=LT
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %w = f32[8]{0} while(%p), condition=%condition, body=%body
  %r = (f32[8]{0}, bf16[2,3]{1,0}) all-reduce-start(%w, /*index=1*/%w), replica_groups={{0,1}}
  %d = (f32[8]{0}, bf16[2,3]{1,0}) all-reduce-done(%r)
  ROOT %z = f32[8]{0} fusion(%d), kind=kLoop, calls=%f, backend_config={"estimated_cycles":"1"}
}
"""


def test_cycles_of_loops_count_as_often_as_they_run() -> None:
    assert estimated_cycles(PROGRAM, turns=3) == 4 * (100 + 3 * 10) + 1


def test_kernels_of_loops_count_as_often_as_they_run() -> None:
    assert kernels(PROGRAM, turns=3) == 4 * (1 + 3 * 1) + 1


def test_transfers_are_counted_with_their_bytes() -> None:
    assert collectives(PROGRAM) == {"all-reduce": [1, 8 * 4 + 6 * 2]}


def test_what_does_not_compile_is_a_row_that_says_why() -> None:
    row = compiled_apart("tiny-128", "v5e-8", limit=0.01)
    assert not row["compiled"]
    missing = "missing" in versions("v5e-8").values()
    assert ("multiberts[compile]" if missing else "stopped at the limit") in row["why"]
    rows = {"base-512:v5e-8": {**row, "versions": versions("v5e-8")}}
    (line,) = (
        line for line in page(rows).splitlines() if "not compiled: s" in line or "install" in line
    )
    assert line.startswith("| base-512 | v5e-8 |")


def test_the_page_is_that_of_the_rows() -> None:
    rows = compile_check.read_rows(compile_check.ROWS)
    assert compile_check.PAGE.read_text() == page(rows)
    assert set(rows) <= {":".join(key) for key in (*TABLE, *CEILINGS)}
    # Where no compiler is named as missing, a limit or an error is.
    assert all(row["compiled"] or row["why"] for row in rows.values())
    made = {key: row for key, row in rows.items() if row["compiled"]}
    assert all(row["memory"] < TARGETS[row["target"]].memory for row in made.values())
    # The plain recipe on v5e keeps what it was tuned to.
    assert made["base-512:v5e-8"]["mfu"] >= 0.45


def lowered_rows(dtype: str) -> list[str]:
    """Lowers the step of every fine-tuned row of a type, in one layer; returns which are updates."""
    import jax

    compile_check.BASE = dataclasses.replace(compile_check.BASE, layers=1)
    texts = {
        name: compile_check.lowered_finetuning(model, jax.devices("cpu")[0]).as_text()
        for name, model in FINETUNED.items()
        if model.compute_dtype == dtype
    }
    return [name for name, text in texts.items() if "jit__updated" in text]


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "bfloat16"])
def test_every_row_has_a_program(dtype: str) -> None:
    """Alone it calls what the table compiles, for each kind of model."""
    updates = warm.call(
        "benchmarks.test_compile_check:lowered_rows", dtype, kind=warm.JAX, **{ENGINE: JAX}
    )
    rows = {name: model for name, model in FINETUNED.items() if model.compute_dtype == dtype}
    assert len(rows) == 5 and updates == [name for name, model in rows.items() if model.is_trained]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["v5e-8", "H200"])
def test_a_tiny_step_compiles_and_fits(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "missing" in versions(target).values():
        pytest.skip(f"needs {compile_check.package_of(target)}: the extra compile")
    monkeypatch.setattr(compile_check, "ROWS", tmp_path / "rows.jsonl")
    monkeypatch.setattr(compile_check, "PAGE", tmp_path / "page.md")
    compile_check.check([f"tiny-128:{target}"], PATIENCE, again=False)
    (row,) = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert row["compiled"], row["why"]
    gradients = 4 * num_parameters(compile_check.config_of(MODELS["tiny-128"]))
    # Weights and both moments lie on each device.
    assert 3 * gradients < row["memory"] < TARGETS[target].memory
    if target == "H200":
        assert row["devices"] == 1 and row["collectives"] == {} and row["kernels"] > 0
    else:
        assert row["devices"] == 8 and 0 < row["mfu"] < 1
        (count, size) = row["collectives"]["all-reduce"]
        # One message: the gradients and a few scalars.
        assert count == 1 and gradients <= size <= gradients + 64
    # The same program is not compiled again: a row keeps what it was.
    marked = json.dumps({**row, "seconds": -1})
    (tmp_path / "rows.jsonl").write_text(marked + "\n")
    compile_check.check([f"tiny-128:{target}"], PATIENCE, again=False)
    assert (tmp_path / "rows.jsonl").read_text() == marked + "\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least", "most"),  # weights alone; or both moments, too, and gradients
    [("predict-128-float32", 0.9, 2), ("classification-128-packed-bfloat16", 2.7, 6)],
)
def test_a_step_of_a_fine_tuned_model_compiles_and_fits(
    name: str, least: float, most: float
) -> None:
    if "missing" in versions("H200").values():
        pytest.skip("needs jax-cuda12-plugin: the extra compile")
    row = compiled_apart(name, "H200", PATIENCE)
    assert row["compiled"], row["why"]
    weights = 4 * num_parameters(compile_check.config_of(compile_check.BASE))
    assert least * weights < row["memory"] < most * weights
    assert row["kernels"] > 0
