"""Pages for newcomers: the notebook runs, and the page on Pythia says what its samples give."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm, ttest_ind, ttest_rel

from multiberts import stats
from multiberts.benchmarks.neighbours import neighbour_intervals
from multiberts.stats.report.own_predictions import compare_files

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests/samples/lm_eval"


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = json.loads((ROOT / "docs/five_seeds.ipynb").read_text(encoding="utf-8"))
    names: dict[str, object] = {}
    with contextlib.chdir(tmp_path):
        for place, cell in enumerate(notebook["cells"]):
            if cell["cell_type"] == "code":
                assert cell["outputs"] == []  # they would go stale
                exec(compile("".join(cell["source"]), f"cell {place}", "exec"), names)
        assert Path("difference.png").stat().st_size > 1000
    result = names["result"]
    assert isinstance(result, stats.Comparison) and result.ci.low < 0.05 < result.ci.high


def scores(step: int) -> np.ndarray:
    """Scores of the made-up model [seeds, examples]."""
    [data] = stats.read_predictions(str(SAMPLES / f"step{step}")).values()
    order = np.argsort(data["pretrain_seed"].to_numpy())
    return data["score"].to_numpy()[order]


def row(difference: float, low: float, high: float, p: float) -> tuple[float, ...]:
    return difference, low, high, p


def test_the_page_on_pythia_says_what_its_samples_give() -> None:
    page = (ROOT / "docs/pythia.md").read_text(encoding="utf-8")
    shown = compare_files(base=str(SAMPLES / "step1000"), experiment=[str(SAMPLES / "step143000")])
    quoted = " ".join(re.findall(r"^> (.*)$", page, flags=re.MULTILINE))
    assert quoted.removesuffix(".") in shown
    first, last = scores(1000), scores(143000)
    ours = stats.compare(first, last)
    over = {1: "seeds", 0: "examples"}
    expected = {"`multiberts compare`": row(ours.estimate, *ours.ci, ours.p_value)}
    for axis, name in over.items():
        test = ttest_rel(last.mean(axis), first.mean(axis))
        low, high = test.confidence_interval()
        number = len(last.mean(axis))
        expected[f"t test over {name} (paired, {number} means)"] = row(
            ours.estimate, low, high, test.pvalue
        )
    test = ttest_ind(last.ravel(), first.ravel())
    low, high = test.confidence_interval()
    expected["t test over all 400 answers"] = row(ours.estimate, low, high, test.pvalue)
    for place in (0, 1):
        sides = first[place], last[place]
        error = np.hypot(*(side.std(ddof=1) / np.sqrt(side.size) for side in sides))
        difference = sides[1].mean() - sides[0].mean()
        reach = norm.ppf(0.975) * error
        expected[f"the harness's own standard errors, seed {place + 1}"] = row(
            difference, difference - reach, difference + reach, 2 * norm.sf(difference / error)
        )
    for name, (difference, low, high, p) in expected.items():
        line = f"| {name} | {difference:.3f} | {low:.3f} to {high:.3f} | "
        [found] = [text for text in page.splitlines() if text.startswith(line)]
        assert float(found.removeprefix(line).split(" |")[0]) == pytest.approx(p, rel=0.05), name
    differences = (last - first)[None]  # [trials, seeds, examples]
    ((low, high),) = neighbour_intervals([differences], False, np.random.default_rng(0))["rliable"]
    assert (
        f"| rliable's method, on the differences per seed | 0.200 | {low:.3f} to {high:.3f} |"
        in page
    )
    percentile = ours.intervals["percentile"]
    assert f"| 0.200 | {percentile.low:.3f} to {percentile.high:.3f} |" in page
