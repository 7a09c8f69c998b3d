"""Sizes compared from finished runs: every table of Zhong et al., and the examples that decay."""

import csv
import json
import re

import numpy as np
import pytest

from multiberts.evaluate.prediction_files.prediction_file import write_predictions
from multiberts.evaluate.prediction_files.run_file import evaluation_entry, write_run
from multiberts.evaluate.prediction_files.text_file import write_texts
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.stats.report.page_run import describe
from multiberts.stats.report.size_comparison import LONGEST_TEXT, instances
from multiberts.stats.zhong.decomposition import decompose
from multiberts.stats.zhong.instance_level import decay_bound
from multiberts.tests import warm

pytestmark = pytest.mark.seconds

SIZES = ("mini", "medium", "large")
EXAMPLES = 60
DECAYING = 12  # the first examples get harder with size


def write(root, size, seed, run, correct):
    path = root / f"{size}-{seed}-{run}"
    labels = np.arange(EXAMPLES) % 2
    with RunDirectory(path, stage="finetune", parameters={"size": size}) as directory:
        file = "predictions/dev.tfrecord"
        write_predictions(
            path / file,
            example_ids=[f"dev/{place}" for place in range(EXAMPLES)],
            labels=labels,
            predictions=np.where(correct, labels, 1 - labels),
            extras={"kind": ["easy"] * EXAMPLES},
        )
        ids = [f"dev/{place}" for place in range(EXAMPLES)]
        premises = [f"sentence number {place}" for place in range(EXAMPLES)]
        texts = {"premise": premises, "hypothesis": ["a " + "long " * 100] * EXAMPLES}
        text_file = write_texts(path, "dev", ids, texts)
        entry = evaluation_entry(
            path, file, examples=EXAMPLES, metrics=["accuracy"], texts=text_file
        )
        facts = {
            "task": "nli", "evaluation_sets": {"dev": entry}, "parameters": {"size": size},
            "procedure": size, "pretrain_seed": seed, "data_seed": seed, "step": 5,
            "learning_rate": 1e-4, "finetune_seed": run,
        }  # fmt: skip
        write_run(path, facts)
        directory.finish(["run.json", file, text_file["file"]])


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Right or not [6 seeds, 3 runs, examples] by size, and the folder of its runs."""
    root = tmp_path_factory.mktemp("sizes")
    random = np.random.default_rng(0)
    correct = {}
    for number, size in enumerate(SIZES):
        chance = np.where(np.arange(EXAMPLES) < DECAYING, 0.95 - 0.45 * number, 0.5 + 0.2 * number)
        correct[size] = (random.random((6, 3, EXAMPLES)) < chance).astype(int)
        for seed, run in np.ndindex(6, 3):
            write(root / "runs", size, seed, run, correct[size][seed, run].astype(bool))
    return root, correct


@pytest.fixture(scope="module")
def tables(world):
    root, _ = world
    given = {"predictions": str(root / "runs"), "sizes": SIZES}
    instances(run_dir=str(root / "report"), **given)
    folder = root / "report" / "report" / "tables"
    return {
        path.stem: list(csv.DictReader(path.open(encoding="utf-8")))
        for path in folder.glob("*.csv")
    }


def test_every_numbered_table_and_figure_is_there(world, tables):
    root, _ = world
    page = (root / "report" / "report" / "index.md").read_text()
    for name in (
        "accuracy", "disagreement", "bounds", "relative_bias", "thresholds", "seeds", "decomposition",
        "momentum_index", "figure_histogram",
    ):  # fmt: skip
        assert f"## {name}" in page
    for number in ("tables 2 and 9", "table 3", "tables 4 and 11", "tables 6 and 12", "figure 2a"):
        assert f"(Zhong et al., {number}" in page
    for place in ("index.md", "index.html"):
        shown = (root / "report" / "report" / place).read_text()
        assert "from mini to large: accuracy changes by +" in shown and "% get worse" in shown
    assert "\n\nnli, dev, from mini to large: accuracy" in describe(str(root / "report"))
    done = json.loads((root / "report" / "DONE").read_text())
    assert "report/index.md" in done["outputs"]


def test_the_command_on_the_page_makes_it_again(world, tables):
    root, _ = world
    page = (root / "report/report/index.html").read_text()
    (command,) = re.findall("<td[^>]*>multiberts (stats instances .*?), in the folder", page)
    done = warm.run(command.split(), root / "report")
    assert done.returncode == 0, done.stderr
    again = (root / "report/again/report/index.md").read_text()
    assert again == (root / "report/report/index.md").read_text()


def test_first_line_and_first_table_have_the_same_limits(world, tables):
    root, _ = world
    page = (root / "report/report/index.md").read_text()
    row = next(row for row in tables["improvement"] if row["Larger"] == "large")
    limits = [float(row[f"{kind}, at least"]) for kind in ("Improving", "Decaying")]
    bounds = [float(row[f"{kind}, bound"]) for kind in ("Improving", "Decaying")]
    assert row["Smaller"] == "mini" and all(np.less(limits, bounds))
    better, worse, *shown = (f"{share:.1%}" for share in limits + bounds)
    assert f"at least {better} of {EXAMPLES} examples get better and at least {worse} get" in page
    assert f"before sampling error, the bounds are {shown[0]} and {shown[1]}" in page


def test_the_list_says_how_many_differences_are_significant(world, tables):
    root, _ = world
    page = (root / "report/report/index.md").read_text()
    significant = sum(float(row["p (BH)"]) <= 0.05 for row in tables["decaying_examples"])
    assert f"Decaying examples: {significant or 'none'} at a false discovery rate of 5 %" in page


def test_the_bounds_are_those_of_the_library(world, tables):
    _, correct = world
    rows = {(row["Smaller"], row["Larger"]): row for row in tables["decay"]}
    row = rows["mini", "large"]
    votes = [(correct[size].sum(axis=1) >= 2).astype(int) for size in ("mini", "large")]
    assert float(row["Decay, ensembled"]) == pytest.approx(decay_bound(*votes).bound)
    means = decay_bound(correct["mini"], correct["large"])
    assert float(row["Decay, all runs"]) == pytest.approx(means.bound)
    assert float(row["Decay, ensembled"]) > 0.1


def test_discoveries_by_threshold(world, tables):
    """By hand: the share of examples whose votes fall by the threshold or more."""
    _, correct = world
    small, large = ((correct[size].sum(axis=1) >= 2).mean(axis=0) for size in ("mini", "large"))
    rows = [row for row in tables["thresholds"] if row["Larger"] == "large"]
    rows = [row for row in rows if row["Smaller"] == "mini"]
    assert [float(row["Difference at most"]) for row in rows] == pytest.approx(
        [-1 + step / 10 for step in range(10)]
    )
    for row in rows:
        share = (large - small <= float(row["Difference at most"]) + 1e-9).mean()
        assert float(row["Discovered"]) == pytest.approx(share)
        assert float(row["At least"]) == pytest.approx(share - float(row["Falsely discovered"]))


def test_fewer_seeds_show_less(tables):
    rows = [row for row in tables["seeds"] if (row["Smaller"], row["Larger"]) == ("mini", "large")]
    assert [row["Seeds"] for row in rows] == ["2", "3", "4", "5", "6"]
    # Of two against two seeds the smallest p is 1/6, so that no test of 60 can pass.
    assert float(rows[0]["Fisher's tests"]) == 0 < float(rows[-1]["Fisher's tests"])
    (single,) = [
        row for row in tables["fisher"] if (row["Smaller"], row["Larger"]) == ("mini", "large")
    ]
    shares = [float(single[f"Share at FDR {rate}"]) for rate in ("0.05", "0.1", "0.2")]
    assert float(rows[-1]["Fisher's tests"]) >= max(shares) > 0
    assert float(rows[-1]["Decay bound"]) == pytest.approx(
        float(next(row for row in tables["decay"] if row["Larger"] == "large")["Decay, ensembled"])
    )


def test_decaying_examples_are_named_with_their_text(world, tables):
    rows = [row for row in tables["decaying_examples"] if row["Larger"] == "large"]
    rows = [row for row in rows if row["Smaller"] == "mini"]
    places = [int(row["Example"].split("/")[1]) for row in rows]
    assert np.mean([place < DECAYING for place in places]) > 0.8
    assert len({place for place in places if place < DECAYING}) >= 8
    differences = [float(row["Difference"]) for row in rows]
    assert differences == sorted(differences) and max(differences) < 0
    for row, place in zip(rows, places, strict=True):
        shown, _, cut = row["Text"].partition("; hypothesis: ")
        assert shown == f"label: {place % 2}; kind: easy; premise: sentence number {place}"
        assert cut.startswith("a long long") and len(cut) == LONGEST_TEXT + len("...")
    # All that pass the threshold are listed, those that are exactly at it, too.
    votes = [(world[1][size].sum(axis=1) >= 2).astype(int) for size in ("mini", "large")]
    bound = decay_bound(*votes)
    assert len(rows) == round(EXAMPLES * float(bound.difference.cdf(bound.threshold)))
    assert max(differences) == pytest.approx(bound.threshold)
    rising = [float(row["Difference"]) for row in tables["improving_examples"]]
    assert rising and min(rising) > 0


def test_momentum_has_an_interval_and_the_papers_index_has_none(tables):
    (row,) = tables["momentum"]
    assert float(row["r (95% CI) low"]) < float(row["r (95% CI) high"])
    assert tables["momentum_index"][-2]["Accuracy of the middle"] == "all"
    assert not [column for column in tables["momentum_index"][0] if "CI" in column]


def test_the_variances_are_of_all_runs(world, tables):
    _, correct = world
    (row,) = [row for row in tables["decomposition"] if row["Size"] == "large"]
    expected = decompose(correct["large"]).parts
    assert float(row["Fine-tuning"]) == pytest.approx(expected["finetune_seed"].mean)


def test_bad_sizes_are_refused_before_anything_is_written(world, tmp_path):
    root, _ = world
    for sizes in (["mini"], ["mini", "mini"], ["mini", "huge"]):
        with pytest.raises(UserError, match="large, medium, mini"):
            instances(run_dir=str(tmp_path / "report"), predictions=str(root / "runs"), sizes=sizes)
    assert not (tmp_path / "report").exists()
