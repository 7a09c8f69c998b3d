"""Newcomers: two of them type what README and docs say and get their answer; the notebook shows what it
computes (`python tests/docs/test_newcomers.py` writes it anew), and the page on Pythia what its samples give.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import re
import shlex
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
from multiberts.tests.tools import warm

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


def typed(line: str, folder: Path) -> str:
    """What a command prints in a newcomer's folder, at the first attempt."""
    done = warm.run(shlex.split(line)[1:], folder)
    assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one who pre-trains two seeds on a text of their own; one attempt for each command."""
    folder = tmp_path_factory.mktemp("pretrained")
    random = np.random.default_rng(2)
    words = ["old", "new", "red", "blue", "small", "large", "house", "tree", "river", "stone"]
    documents = [
        "\n".join(" ".join(random.choice(words, 8)) + " ." for _ in range(8)) for _ in range(50)
    ]
    (folder / "mine.txt").write_text("\n\n".join(documents) + "\n")
    typed(
        "multiberts prepare --run_dir=results/corpus --sources=mine.txt --source_format=sentences "
        "--vocabulary_size=60 --sequence_length=32",
        folder,
    )
    for seed in (0, 1):
        typed(
            f"multiberts pretrain --gin_file=configs/model/tiny.gin --run_dir=results/base/seed_{seed} "
            f"--corpus=results/corpus --pretrain_seed={seed} --sequence_length=32 --batch_size=8 "
            "--gradient_shards=1 --warmup_steps=2 --num_steps=6 --checkpoint_steps=0",
            folder,
        )
    return folder


@pytest.mark.slow
def test_one_who_pretrains_compares_two_seeds(pretrained: Path) -> None:
    first, second = (f"results/base/seed_{seed}/checkpoints/step_6" for seed in (0, 1))
    said = typed(f"multiberts checkpoint compare {first} {second}", pretrained)
    assert "differ" in said
    typed("multiberts show results/base/seed_0 results/base/seed_1", pretrained)
    assert (pretrained / "curves/loss.png").is_file()


@pytest.mark.slow
def test_an_engineer_compares_learning_rates_on_texts_of_their_own(pretrained: Path) -> None:
    """One checkpoint, two rates, three seeds of fine-tuning; one attempt for each command."""
    reviews = pretrained / "reviews"
    reviews.mkdir()
    random = np.random.default_rng(3)
    for name, number in (("train", 64), ("dev", 32)):
        tones = random.integers(0, 2, number).tolist()
        rows = [
            f"the {['old', 'new'][tone]} house number {place},{['calm', 'loud'][tone]}"
            for place, tone in enumerate(tones)
        ]
        (reviews / f"{name}.csv").write_text("\n".join(["review,tone", *rows]) + "\n")
    (pretrained / "reviews.gin").write_text(
        'finetune.options = {"kind": "classification", "text_columns": ["review"], '
        '"label_column": "tone", "metrics": ["accuracy"]}\n'
        "finetune.sequence_length = 16\nfinetune.num_epochs = 1\n"
    )
    typed(
        "multiberts sweep --gin_file=reviews.gin --root=results/sweep --tasks=tone --data_dir=reviews "
        "--checkpoints=results/base/seed_0/checkpoints/step_6 --learning_rates=1e-5,1e-3 "
        "--finetune_seeds=0,1,2",
        pretrained,
    )
    said = typed("multiberts compare results/sweep --seeds=finetune --html=answer.html", pretrained)
    assert ": accuracy " in said and "this checkpoint only" in said
    assert ": accuracy " in (pretrained / "answer.html").read_text(encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps(notebook_as_run(Path(folder))[0], indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(text + "\n", encoding="utf-8")
