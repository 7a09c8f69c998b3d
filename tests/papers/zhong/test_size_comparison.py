"""Sizes compared from finished runs: every table of Zhong et al., and the examples that decay."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas
import pytest
from scipy.special import expit
from scipy.stats import norm

from multiberts.evaluate.prediction_files.run_file import set_at
from multiberts.evaluate.prediction_files.text_file import write_texts
from multiberts.papers.page_run import describe
from multiberts.papers.zhong.decomposition import decompose
from multiberts.papers.zhong.instance_level import decay_bound, fisher_tests
from multiberts.papers.zhong.size_comparison import LONGEST_TEXT, instances
from multiberts.runs.errors import UserError
from multiberts.tests.tools import warm
from multiberts.tests.worlds import write_run

pytestmark = pytest.mark.seconds

SIZES = ("mini", "medium", "large")
EXAMPLES = 60
DECAYING = 12  # the first examples get harder with size


def write(root, size, seed, run, correct, texts=True, set_name="dev", **changes):
    """Writes a run.

    Args:
      correct: right or not [examples], or by epochs the logit of the right class [examples], None at the end.
    """
    path = root / f"{size}-{seed}-{run}"
    logits = correct if isinstance(correct, dict) else {None: np.where(correct, 1, -1)}
    number = len(logits[None])
    labels, ids = np.arange(number) % 2, [f"{set_name}/{place}" for place in range(number)]
    columns = {"example_ids": ids, "labels": labels}
    more = {}
    if texts:
        premises = [f"sentence number {place}" for place in range(number)]
        shown = {"premise": premises, "hypothesis": ["a " + "long " * 100] * number}
        more = {"texts": write_texts(path, set_name, ids, shown)}
        columns["extras"] = {"kind": ["easy"] * number}
    sets = {}
    for epochs, logit in logits.items():
        name = set_name if epochs is None else set_at(set_name, epochs)
        scores = np.stack([np.zeros(number), np.where(labels, logit, -logit)], axis=1)
        early = {} if epochs is None else {"set": set_name, "epochs": epochs}
        sets[name] = {**columns, "predictions": scores.argmax(axis=1), "entry": {**more, **early}}
        if isinstance(correct, dict):
            sets[name]["scores"] = scores.astype(np.float32)
    facts = {
        "task": "nli", "parameters": {"size": size}, "procedure": size, "pretrain_seed": seed, "step": 5,
        "learning_rate": 1e-4, "finetune_seed": run, **changes,
    }  # fmt: skip
    write_run(path, sets, **facts)


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
    return tables_of(root, SIZES)


def tables_of(root, sizes):
    instances(run_dir=str(root / "report"), predictions=str(root / "runs"), sizes=sizes)
    folder = root / "report" / "report" / "tables"
    return {
        path.stem: list(csv.DictReader(path.open(encoding="utf-8")))
        for path in folder.glob("*.csv")
    }


EPOCHS = (3, 3.3333, None)
# Of the effects of pre-training, fine-tuning and the checkpoint on a logit.
SPREADS = (0.7, 1.0, 0.5)


@pytest.fixture(scope="module")
def early(tmp_path_factory):
    """Logits of the right class [4 seeds, 3 runs, epochs, examples], their means, and the tables."""
    root = tmp_path_factory.mktemp("early")
    random = np.random.default_rng(1)
    mean, shape = random.normal(0.5, 1, 2000), (4, 3, len(EPOCHS), 2000)
    logits = {}
    for size in ("mini", "large"):
        logits[size] = np.broadcast_to(mean, shape).copy()
        for depth, spread in enumerate(SPREADS):
            lone = (*shape[: depth + 1], *(1,) * (2 - depth), 2000)
            logits[size] += random.normal(scale=spread, size=lone)
        for seed, run in np.ndindex(4, 3):
            by_epochs = dict(zip(EPOCHS, logits[size][seed, run], strict=True))
            write(root / "runs", size, seed, run, by_epochs, texts=False)
    return logits, mean, tables_of(root, ("mini", "large"))


def of_pair(tables, name, small="mini", large="large"):
    """The rows of a table about two sizes."""
    return [row for row in tables[name] if (row["Smaller"], row["Larger"]) == (small, large)]


def splits(tables, size="large"):
    return {row["Loss"]: row for row in tables["decomposition"] if row["Size"] == size}


def test_the_variance_over_checkpoints_is_the_true_one(early):
    """By integrals: a run is right where its mean and three normal effects are above 0 together."""
    _, mean, tables = early
    row = splits(tables)["0/1 over checkpoints"]
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    below = [np.sqrt(np.sum(np.square(SPREADS[depth:]))) for depth in range(3)]
    # Mean squares of the probability to be right, given the first 0, 1, 2 and all 3 effects.
    squares = [norm.cdf(mean / below[0]) ** 2]
    for depth in (1, 2):
        effect = np.sqrt(np.sum(np.square(SPREADS[:depth]))) * nodes
        chance = norm.cdf((mean[:, None] + effect) / below[depth])
        squares.append(chance**2 @ (weights / weights.sum()))
    squares.append(norm.cdf(mean / below[0]))
    columns = ("Pre-training", "Fine-tuning", "Checkpoint")
    truths = {
        name: after - before
        for name, before, after in zip(columns, squares, squares[1:], strict=False)
    }
    truths["Bias squared"] = (1 - squares[-1]) ** 2
    for name, truth in truths.items():
        error = float(row[f"SE {name.lower()}"])
        assert abs(float(row[name]) - truth.mean()) < 4 * error < 0.04
    other = next(
        row
        for row in tables["disagreement"]
        if (row["Size"], row["Loss"]) == ("large", "0/1 over checkpoints")
    )
    assert float(other["Different checkpoint"]) == pytest.approx(2 * float(row["Checkpoint"]))


def test_only_the_decomposition_has_early_predictions_and_probabilities(early):
    logits, _, tables = early
    last = logits["large"][:, :, -1]
    for loss, scores in (("0/1", last > 0), ("squared", expit(last))):
        row, expected = splits(tables)[loss], decompose(scores)
        assert row["Checkpoint"] == ""
        for column, name in (
            ("Bias squared", "bias_squared"), ("Pre-training", "pretrain_seed"),
            ("Fine-tuning", "finetune_seed"), ("Mean loss", "loss"),
        ):  # fmt: skip
            assert float(row[column]) == pytest.approx(expected.parts[name].mean, abs=1e-6)
    assert float(tables["accuracy"][1]["Accuracy"]) == pytest.approx((last > 0).mean())
    assert {row["Loss"] for row in tables["disagreement"]} == {"0/1", "0/1 over checkpoints"}


def test_a_checkpoint_counts_once_and_only_if_every_run_has_it(tmp_path, capsys):
    """The kept model is that of epoch 3, so that the last predictions are those; one run lacks epoch 3.7."""
    random = np.random.default_rng(2)
    epochs = (3, 3.5, 3.7, None)
    logits = random.normal(size=(2, 2, 2, len(epochs), 50))
    logits[..., 3, :] = logits[..., 0, :]
    for size, seed, run in np.ndindex(2, 2, 2):
        by_epochs = dict(zip(epochs, logits[size, seed, run], strict=True))
        if size and seed and run:
            del by_epochs[3.7]
        kept = {"kept_model": {"directory": "model", "epochs": 3.0}}
        place = (tmp_path / "runs", SIZES[2 * size], seed, run)
        write(*place, by_epochs, texts=False, **kept)
    row = splits(tables_of(tmp_path, ("mini", "large")))["0/1 over checkpoints"]
    expected = decompose(logits[1][:, :, :2] > 0).parts["checkpoint"].mean
    assert float(row["Checkpoint"]) == pytest.approx(expected)
    assert "only some runs have dev@3.7, which the variance" in capsys.readouterr().err


def test_single_examples_vary_more_than_accuracy(early):
    """By hand: variances of one run's answers, and of its accuracy, from nested means."""
    logits, _, tables = early
    right = (logits["large"][:, :, -1] > 0).astype(float)
    variance = {}
    for name, scores in (("examples", right), ("accuracy", right.mean(axis=2, keepdims=True))):
        fine = scores.var(axis=1, ddof=1).mean(axis=0)
        seeds = scores.mean(axis=1).var(axis=0, ddof=1) - fine / 3
        variance[name] = fine.mean(), seeds.mean()
    row = splits(tables)["0/1"]
    ratio = sum(variance["examples"]) / sum(variance["accuracy"])
    assert float(row["Example / overall variance"]) == pytest.approx(ratio) and ratio > 500
    spread = float(tables["accuracy"][1]["SD over runs"])
    assert spread == pytest.approx(right.mean(axis=2).std(ddof=1))
    fine, seeds = variance["examples"]
    assert float(row["Fine-tuning / pre-training"]) == pytest.approx(fine / seeds)


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


def test_the_command_on_the_page_makes_it_again(world, tmp_path):
    """Of one run of each seed, which make few figures; a process of its own draws them."""
    root, _ = world
    for size, seed in np.ndindex(2, 4):
        name = f"{SIZES[2 * size]}-{seed}-0"
        shutil.copytree(root / "runs" / name, tmp_path / "runs" / name)
    tables_of(tmp_path, ("mini", "large"))
    page = (tmp_path / "report/report/index.html").read_text()
    (command,) = re.findall("<td[^>]*>multiberts (stats instances .*?), from the folder", page)
    done = warm.run(command.replace("FOLDER", "report").split(), tmp_path)
    assert done.returncode == 0, done.stderr
    again = (tmp_path / "again/report/index.md").read_text()
    assert again == (tmp_path / "report/report/index.md").read_text()


def test_first_line_and_lists_say_what_the_tables_have(world, tables):
    root, _ = world
    page = (root / "report/report/index.md").read_text()
    (row,) = of_pair(tables, "improvement")
    limits = [float(row[f"{kind}, at least"]) for kind in ("Improving", "Decaying")]
    bounds = [float(row[f"{kind}, bound"]) for kind in ("Improving", "Decaying")]
    assert all(np.less(limits, bounds))
    better, worse, *shown = (f"{share:.1%}" for share in limits + bounds)
    assert f"at least {better} of {EXAMPLES} examples get better and at least {worse} get" in page
    assert f"before sampling error, the bounds are {shown[0]} and {shown[1]}" in page
    significant = sum(float(row["p (BH)"]) <= 0.05 for row in tables["decaying_examples"])
    assert f"Decaying examples: {significant or 'none'} at a false discovery rate of 5 %" in page


def test_discoveries_by_threshold(world, tables):
    """By hand: the share of examples whose votes fall by the threshold or more."""
    _, correct = world
    small, large = ((correct[size].sum(axis=1) >= 2).mean(axis=0) for size in ("mini", "large"))
    rows = of_pair(tables, "thresholds")
    assert [float(row["Difference at most"]) for row in rows] == pytest.approx(
        [-1 + step / 10 for step in range(10)]
    )
    for row in rows:
        share = (large - small <= float(row["Difference at most"]) + 1e-9).mean()
        assert float(row["Discovered"]) == pytest.approx(share)
        assert float(row["At least"]) == pytest.approx(share - float(row["Falsely discovered"]))


def test_fewer_seeds_show_less(world, tables):
    rows = of_pair(tables, "seeds")
    assert [row["Seeds"] for row in rows] == ["2", "3", "4", "5", "6"]
    # Of two against two seeds the smallest p is 1/6, so that no test of 60 can pass.
    assert float(rows[0]["Fisher's tests"]) == 0 < float(rows[-1]["Fisher's tests"])
    votes = [(world[1][size].sum(axis=1) >= 2).astype(int) for size in ("mini", "large")]
    shares = [fisher_tests(*votes, level=rate).share for rate in (0.05, 0.1, 0.2)]
    assert float(rows[-1]["Fisher's tests"]) >= max(shares) > 0
    (row,) = of_pair(tables, "decay")
    assert float(rows[-1]["Decay bound"]) == pytest.approx(float(row["Decay, ensembled"]))
    assert float(row["Decay, ensembled"]) == pytest.approx(decay_bound(*votes).bound)


def test_decaying_examples_are_named_with_their_text(world, tables):
    rows = of_pair(tables, "decaying_examples")
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


def test_one_run_against_one_run_counts_every_pair(world, tables):
    _, correct = world
    small, large = (correct[size].reshape(18, 1, EXAMPLES) for size in ("mini", "large"))
    large = large.swapaxes(0, 1)
    (row,) = of_pair(tables, "improvement")
    assert float(row["Better, one run each"]) == pytest.approx((large > small).mean())
    assert float(row["Worse, one run each"]) == pytest.approx((large < small).mean())
    gains = np.diff([correct[size].mean(axis=(0, 1)) for size in SIZES], axis=0)
    assert float(tables["momentum_index"][-1]["Index"]) == pytest.approx(np.corrcoef(*gains)[0, 1])


def test_the_blind_sheet_hides_which_examples_decay(world, tables):
    root, correct = world
    folder = root / "report" / "report" / "blind"
    sheet, key = (pandas.read_csv(folder / f"{name}.csv") for name in ("sheet", "key"))
    assert list(sheet) == ["Set", "Smaller", "Larger", "Example", "Text", "category"]
    assert sheet["category"].isna().all() and sheet["Text"].str.contains("premise: sent").all()
    assert "decay" not in (folder / "sheet.csv").read_text()
    assert (sheet["Example"] == key["Example"]).all() and sheet["Example"].is_unique
    small, large = ((correct[size].sum(axis=1) >= 2).mean(axis=0) for size in ("mini", "large"))
    fall = large - small
    decays = key["Example"].str.removeprefix("dev/").astype(int).map(lambda row: fall[row] <= -0.9)
    assert (decays == (key["Group"] == "decaying")).all() and 3 <= decays.sum() < len(key)
    assert not (np.diff(decays.astype(int)) >= 0).all()  # mixed, not one group after the other


def test_the_page_makes_table_5_from_a_filled_sheet(world, tables, tmp_path, monkeypatch):
    """With every decaying label wrong and every other one correct, but for a misspelt one."""
    root, _ = world
    folder = tmp_path / "results" / "sizes" / "report" / "blind"
    folder.mkdir(parents=True)
    sheet, key = (
        pandas.read_csv(root / "report" / "report" / "blind" / f"{name}.csv")
        for name in ("sheet", "key")
    )
    sheet["category"] = np.where(key["Group"] == "decaying", "wrong ", "CORRECT")
    sheet.loc[key["Group"].eq("control").idxmax(), "category"] = "crroect"
    sheet.sort_values("Text").to_csv(folder / "sheet.csv", index=False)
    key.to_csv(folder / "key.csv", index=False)
    page = (Path(__file__).parents[3] / "docs" / "zhong.md").read_text()
    (code,) = re.findall(r"```python\n(.*?crosstab.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code, names)
    table = names["table"]
    assert list(table) == ["Correct", "Crroect", "Wrong"]
    assert table.loc[("nli/dev", "decaying")].tolist() == [0, 0, 1]
    misspelt = 1 / (key["Group"] == "control").sum()
    assert table.loc[("nli/dev", "control")].tolist() == pytest.approx([1 - misspelt, misspelt, 0])


def test_without_texts_the_blind_sheet_says_so(tmp_path, capsys):
    for size, seed in np.ndindex(2, 2):
        right = np.arange(20) < 3 if size else np.arange(20) < 10
        write(tmp_path / "runs", SIZES[2 * size], seed, 0, right, texts=False, set_name="bare")
    tables_of(tmp_path, ("mini", "large"))
    notes = capsys.readouterr().err
    assert "the predictions have no texts, so the blind sheet has ids" in notes
    assert "nli/bare, large, mini: no decomposition, disagreement or variance given bias" in notes
    sheet = pandas.read_csv(tmp_path / "report" / "report" / "blind" / "sheet.csv")
    assert set(sheet["Text"]) == {"label: 0", "label: 1"}


def test_the_rate_is_chosen_on_held_out_data_if_there_are_runs_that_held_some_out(tmp_path, capsys):
    """On dev the higher rate is better, on held-out data the lower."""
    for size, seed, high in np.ndindex(2, 2, 2):
        place, rate = (tmp_path / "runs" / str(high), SIZES[2 * size], seed, 0), [1e-4, 1e-3][high]
        write(*place, np.arange(20) < 10 + 5 * high + size, learning_rate=rate)
        held_out = (tmp_path / "held_out" / str(high), *place[1:])
        right = np.arange(10) < 8 - 5 * high
        parameters = {"held_out_fold": 0}
        write(*held_out, right, set_name="held_out", learning_rate=rate, parameters=parameters)
    one_size = ["runs", *(f"held_out/{high}/mini-{seed}-0" for high, seed in np.ndindex(2, 2))]
    for name, folders, accuracy, rule in (
        ("one", one_size, 0.75, "development"),  # mini alone held data out: one rule for both
        ("both", ["."], 0.5, "held out"),
    ):
        chosen, predictions = tmp_path / name, [str(tmp_path / folder) for folder in folders]
        instances(run_dir=str(chosen), predictions=predictions, sizes=("mini", "large"))
        notes = [line for line in capsys.readouterr().err.splitlines() if "learning rate" in line]
        assert len(notes) == 2 and all(rule in line for line in notes)
        rows = csv.DictReader((chosen / "report/tables/accuracy.csv").open())
        assert float(next(rows)["Accuracy"]) == accuracy


def test_bad_sizes_are_refused_before_anything_is_written(world, tmp_path):
    root, _ = world
    for sizes in (["mini"], ["mini", "mini"], ["mini", "huge"]):
        with pytest.raises(UserError, match="large, medium, mini"):
            instances(run_dir=str(tmp_path / "report"), predictions=str(root / "runs"), sizes=sizes)
    assert not (tmp_path / "report").exists()
