"""The notebook (`python tests/docs/test_shown_numbers.py` writes it anew) and the page on Pythia show what is
computed.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt
from scipy.stats import norm, ttest_ind, ttest_rel

from multiberts import stats
from multiberts.report.compare_command import compare_files

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "docs/five_seeds.ipynb"
SAMPLES = ROOT / "tests/samples/lm_eval"


def outputs(printed: str, value: object, number: int) -> Iterator[dict[str, Any]]:
    """Yields what a cell of the notebook shows: lines, pictures, and its last value."""
    if printed:
        yield {
            "name": "stdout",
            "output_type": "stream",
            "text": printed.splitlines(keepends=True),
        }
    for figure in map(plt.figure, plt.get_fignums()):
        content = io.BytesIO()
        figure.savefig(content, format="png", bbox_inches="tight")
        picture = base64.b64encode(content.getvalue()).decode()
        yield {"data": {"image/png": picture}, "metadata": {}, "output_type": "display_data"}
    plt.close("all")
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if isinstance(value, pd.DataFrame):
            data |= {"text/html": value.to_html().splitlines(keepends=True)}
        yield {
            "data": data,
            "execution_count": number,
            "metadata": {},
            "output_type": "execute_result",
        }


def notebook_as_run(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs the notebook in a folder; returns it with what its cells show now, and their names."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with contextlib.chdir(folder):
        for number, cell in enumerate(cells, start=1):
            *body, last = ast.parse("".join(cell["source"])).body
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(ast.Module(body, []), "cell", "exec"), names)
                if isinstance(last, ast.Expr):
                    value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
                else:
                    value = exec(compile(ast.Module([last], []), "cell", "exec"), names)
            cell["execution_count"] = number
            cell["outputs"] = list(outputs(printed.getvalue(), value, number))
    return notebook, names


@pytest.mark.slow
def test_the_notebook_shows_what_it_computes(tmp_path: Path) -> None:
    notebook, names = notebook_as_run(tmp_path)
    shown, computed = (
        [
            {key: value for key, value in output.items() if key != "data"}
            | {"data": [line for line in output.get("data", {}).items() if line[0] != "image/png"]}
            for cell in cells
            for output in cell.get("outputs", [])
        ]
        for cells in (json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"], notebook["cells"])
    )
    assert json.dumps(shown, sort_keys=True) == json.dumps(computed, sort_keys=True)
    assert (tmp_path / "difference.png").stat().st_size > 1000
    result = names["result"]
    assert isinstance(result, stats.Comparison) and result.ci.low < 0.05 < result.ci.high


def scores(step: int) -> np.ndarray:
    """Scores of the made-up model [seeds, examples]."""
    [data] = stats.read(SAMPLES / f"step{step}").values()
    order = np.argsort(data["pretrain_seed"].to_numpy())
    return data["score"].to_numpy()[order]


def test_the_page_on_pythia_says_what_its_samples_give() -> None:
    page = (ROOT / "docs/real_tasks.md").read_text(encoding="utf-8")
    shown = compare_files(
        results=str(SAMPLES / "step1000"), experiment=[str(SAMPLES / "step143000")]
    )
    quoted = " ".join(re.findall(r"^> (.*)$", page, flags=re.MULTILINE))
    assert quoted.removesuffix(".") in shown
    first, last = scores(1000), scores(143000)
    ours = stats.compare(first, last)
    over = {1: "seeds", 0: "examples"}
    expected = {"`multiberts compare`": (ours.estimate, *ours.ci, ours.p_value)}
    for axis, name in over.items():
        test = ttest_rel(last.mean(axis), first.mean(axis))
        low, high = test.confidence_interval()
        called = f"t test over {name} (paired, {len(last.mean(axis))} means)"
        expected[called] = ours.estimate, low, high, test.pvalue
    test = ttest_ind(last.ravel(), first.ravel())
    low, high = test.confidence_interval()
    expected["t test over all 400 answers"] = ours.estimate, low, high, test.pvalue
    for place in (0, 1):
        sides = first[place], last[place]
        error = np.hypot(*(side.std(ddof=1) / np.sqrt(side.size) for side in sides))
        difference = sides[1].mean() - sides[0].mean()
        reach = norm.ppf(0.975) * error
        ends = difference - reach, difference + reach
        called = f"the harness's own standard errors, seed {place + 1}"
        expected[called] = difference, *ends, 2 * norm.sf(difference / error)
    for name, (difference, low, high, p) in expected.items():
        line = f"| {name} | {difference:.3f} | {low:.3f} to {high:.3f} | "
        [found] = [text for text in page.splitlines() if text.startswith(line)]
        assert float(found.removeprefix(line).split(" |")[0]) == pytest.approx(p, rel=0.05), name
    differences = (last - first).mean(axis=1)  # [seeds]
    number = len(differences)
    counts = np.random.default_rng(0).multinomial(number, np.full(number, 1 / number), size=2000)
    low, high = np.quantile(counts @ differences / number, [0.025, 0.975])
    assert (
        f"| rliable's method, on the differences per seed | 0.200 | {low:.3f} to {high:.3f} |"
        in page
    )
    percentile = ours.intervals["percentile"]
    assert f"| 0.200 | {percentile.low:.3f} to {percentile.high:.3f} |" in page


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(notebook_as_run(Path(folder))[0], indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(text + "\n", encoding="utf-8")
