"""`multiberts compare`: files in, an answer out."""

import csv
import html
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np
import pandas as pd
import pytest

import multiberts
from multiberts import stats
from multiberts.evaluate.exporting import export
from multiberts.evaluate.imports.importing import import_predictions
from multiberts.report import compare_command
from multiberts.report.reproduce_command import reproduce_files
from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import annotations_of, value_of_flag
from multiberts.stats.results import flat_values
from multiberts.tests.tools import warm
from multiberts.tests.worlds import write_run

pytestmark = pytest.mark.seconds

ROOT = Path(multiberts.__file__).parent
compare_files = partial(compare_command.compare_files, n_resamples=40)


def write_arms(path: Path, shifts: dict[str, float], num_seeds: int = 5) -> None:
    """Right or wrong answers of several arms on 300 examples, one row per run and example."""
    rng = np.random.default_rng(0)
    difficulty = rng.normal(size=300)
    frames = []
    for arm, shift in shifts.items():
        for seed in range(num_seeds):
            chance = 1 / (1 + np.exp(difficulty - shift - rng.normal(0, 0.1)))
            score = (rng.random(300) < chance).astype(int)
            names = {"model": arm, "seed": seed, "id": np.arange(300) + 7, "correct": score}
            frames.append(pd.DataFrame({**names, "family": np.arange(300) // 3}))
    pd.concat(frames).to_csv(path, index=False)


@pytest.fixture
def arms(tmp_path: Path) -> Path:
    write_arms(tmp_path / "arms.csv", {"old": 0.0, "new": 1.5, "same": 0.05})
    return tmp_path / "arms.csv"


@pytest.fixture
def verbose() -> Iterator[None]:
    console.take_verbosity(["-v"])
    yield
    console.take_verbosity([])


@pytest.mark.parametrize(("kind", "other"), [("examples", "seeds"), ("seeds", "examples")])
def test_page_and_record_say_first_what_is_drawn(kind: str, other: str, tmp_path: Path) -> None:
    write_arms(
        tmp_path / "t.csv", {"old": 0.0, "new": 1.5}, num_seeds=1 if kind == "examples" else 5
    )
    if kind == "seeds":
        table = pd.read_csv(tmp_path / "t.csv").groupby(["model", "seed"], sort=False)["correct"]
        table.mean().reset_index().to_csv(tmp_path / "t.csv", index=False)
    compare_files(results=str(tmp_path / "t.csv"), html=str(tmp_path / "p.html"))
    page = (tmp_path / "p.html").read_text()
    start = "One run of each model: " if kind == "examples" else "Scores of whole runs: "
    answer = re.search('<p class="answer">(.*?)</p>', page, re.DOTALL)
    assert answer is not None and answer[1].startswith(start) and "difference" in answer[1]
    assert f"over the choice of {kind}. p" in page and f"drawing {kind} with replacement" in page
    assert "seeds and examples" not in page and f"further {other}" not in page
    assert ("which decide nothing" in page) == (kind == "examples")
    [record] = json.loads(compare_files(results=str(tmp_path / "t.csv"), json=True))
    assert record["read"].startswith(start) and record["resample"] == kind


def test_words_table_and_files(arms: Path, tmp_path: Path) -> None:
    page, table, numbers = tmp_path / "page.html", tmp_path / "table.tex", tmp_path / "all.csv"
    files = {"html": str(page), "latex": str(table), "csv": str(numbers)}
    text = compare_files(results=str(arms), base="old", **files)
    assert text.endswith(f"\n\nWritten: {table}, {numbers}, {page}")
    assert "new is better than old: " in text
    rows = [line.split("  ")[0] for line in text.splitlines()]
    assert "new against old" in rows and "same against old" in rows
    assert "Detecting a true difference" not in text  # one sentence for each of many arms
    assert page.read_text().count("<svg") + page.read_text().count("data:image") >= 5
    assert 'href="tables/' not in page.read_text()
    assert table.read_text().startswith("% made by multiberts\n\\begin{tabular}")
    assert pd.read_csv(numbers)["name"].tolist() == ["new against old", "same against old"]


@pytest.mark.usefixtures("verbose")
def test_what_few_seeds_cannot_show_is_said_once_and_is_no_warning(tmp_path: Path) -> None:
    """Five seeds at accuracy .9 on 400 balanced examples, of which none failed, in three arms."""
    random, labels = np.random.default_rng(1), np.arange(400) % 2
    shown = {"id": np.arange(400), "label": labels}
    for arm in ("old", "new", "third"):
        for seed in range(5):
            shown[f"{arm}_seed_{seed}"] = np.where(random.random(400) < 0.9, labels, 1 - labels)
    path, page = tmp_path / "arms.csv", tmp_path / "page.html"
    pd.DataFrame(shown).to_csv(path, index=False)
    text = compare_files(results=str(path), html=str(page))
    said = "None of the 5 seeds failed"
    assert text.count(said) == 1 and f"Note: {said}" not in text
    assert said in page.read_text() and 'class="warn"' not in page.read_text()
    pd.DataFrame(shown | {f"new_seed_{seed}": 1 for seed in range(5)}).to_csv(path, index=False)
    compare_files(results=str(path), html=str(page))
    assert re.search('class="warn"><summary>All 5 seeds of new .*one class', page.read_text())


def test_a_name_has_one_number_in_the_pages_csv_the_file_and_json(tmp_path: Path) -> None:
    path, page, numbers = (tmp_path / name for name in ("arms.csv", "page.html", "all.csv"))
    write_arms(path, {"old": 0.0, "new": 1.5})
    text = compare_files(results=str(path), html=str(page), csv=str(numbers))
    (of_json,) = json.loads(compare_files(results=str(path), json=True))
    copied = re.search(
        r'<pre[^>]*aria-label="As CSV"[^>]*>(.*?)</pre>', page.read_text(), re.DOTALL
    )
    assert copied is not None
    tables = [html.unescape(copied[1]), numbers.read_text()]
    of_page, of_file = (next(iter(csv.DictReader(io.StringIO(table)))) for table in tables)
    assert of_page == of_file and of_page["metric"] == "share"
    flat = flat_values(of_json)
    assert len({*flat} & {*of_file}) > 43
    for name, value in of_file.items():
        number = flat.get(name)
        assert name not in flat or value == ("" if number is None else str(number)), name
    # What readers see has the unit beside it.
    shown = f"difference {100 * float(of_file['estimate']):.1f} points, "
    assert shown in text and shown in page.read_text()
    columns = r"Compared +Metric +Difference \(95% CI\) +p +Result +Base +Experiment\n.*mean \(%\)"
    assert re.search(columns, text)


@pytest.mark.parametrize("with_texts", [True, False])
def test_the_page_says_how_many_examples_decide_nothing(tmp_path: Path, with_texts: bool) -> None:
    """Both seeds of both arms agree on three of five. A table of examples shows their texts."""
    scores = {
        "old_seed0": "10110",
        "old_seed1": "10100",
        "new_seed0": "11110",
        "new_seed1": "11110",
    }
    path, page = tmp_path / "scores.csv", tmp_path / "page.html"
    table = pd.DataFrame({name: [*values] for name, values in scores.items()}).assign(id=range(5))
    if with_texts:
        table["text"] = [f"The sentence number {row}" for row in range(5)]
    table.to_csv(path, index=False)
    compare_files(results=str(path), html=str(page))
    shown = page.read_text()
    assert "agree on 3 of 5 examples" in shown
    assert ("The sentence number 3" in shown, 'id="examples-1-1"' in shown) == (with_texts,) * 2


def test_three_arms_are_ranked(arms: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    text = compare_files(results=str(arms), html=str(page))
    assert re.search(
        "^new leads clearly by mean.* Among 3 arms .*5 paired seeds .*300 .*examples", text
    )
    rows = {row[1]: row for row in map(str.split, re.findall("^[123] .*", text, re.MULTILINE))}
    assert [*rows] in (["new", "same", "old"], ["new", "old", "same"]) and " against " not in text
    assert rows["new"][6] == "1" and rows["old"][6:9] == ["2", "to", "3"]  # old and same are tied
    assert "Ranking by mean on arms.csv: " in page.read_text()
    assert "new leads clearly" in page.read_text()
    every_two = page.read_text().partition("Every two arms: 3 differences")[2]
    assert "<td>new</td><td>same</td>" in every_two.partition("</details>")[0]
    alone = json.loads(compare_files(results=str(arms), json=True))
    assert [row["base"]["ranks"] for row in alone[:3]] == [[2, 3], [1, 1], [2, 3]]
    best, *_ = alone[3:]
    assert best["experiment"]["name"] == "new" and best["p_holm"] <= best["p_bonferroni"] < 0.05
    numbers = tmp_path / "all.csv"
    compare_files(results=str(arms), csv=str(numbers))
    rows = pd.read_csv(numbers)
    assert len(rows) == 6 and rows["ci_low"][3] == pytest.approx(best["ci"]["low"])
    first, second = json.loads(compare_files(results=str(arms), base="old", json=True))
    assert (first["experiment"]["ranks"], first["base"]["ranks"]) == ([1, 1], [2, 3])
    assert second["experiment"]["groups"] == second["base"]["groups"] == ["b"]
    assert first["p_holm"] == pytest.approx(2 * first["p_value"])
    assert second["p_holm"] == second["p_value"] > 0.05
    with pytest.raises(UserError, match="3 arms and --margin, .*with a base; .* --base=old"):
        compare_files(results=str(arms), margin=1.0)


def test_paired_arms_without_common_seeds_are_not_ranked(tmp_path: Path) -> None:
    write_arms(tmp_path / "a.csv", {"a": 0.0}, num_seeds=6)
    for name, kept in (("b", [0, 1, 2]), ("c", [3, 4, 5])):
        write_arms(tmp_path / f"{name}.csv", {name: 0.0}, num_seeds=6)
        frame = pd.read_csv(tmp_path / f"{name}.csv")
        frame[frame["seed"].isin(kept)].to_csv(tmp_path / f"{name}.csv", index=False)
    paths = [str(tmp_path / f"{name}.csv") for name in "abc"]
    paired = compare_files(results=paths[0], experiment=paths[1:])
    assert "no ranking of all arms" in paired
    unpaired = compare_files(results=paths[0], experiment=paths[1:], design="unpaired")
    assert "3 arms with 3 to 6 seeds" in unpaired and "no ranking" not in unpaired
    fixed = compare_files(results=paths[0], experiment=paths[1:], design="fixed_baseline", base="a")
    assert "no ranking of all arms" in fixed
    page = tmp_path / "page.html"
    compare_files(results=paths[0], experiment=paths[1:], base="a", html=str(page))
    assert "no ranking of all arms" in page.read_text()
    assert ">2 comparisons<" in page.read_text()
    compare_files(results=paths[0], experiment=paths[1:2], html=str(page))
    assert "data-filters" not in page.read_text().partition("<script>")[0]


def test_clusters_widen_the_interval(arms: Path) -> None:
    frame = pd.read_csv(arms)
    frame = frame[frame["family"] * 3 + 7 == frame["id"]]  # one of each family, three times
    copies = [frame.assign(id=frame["id"] * 3 + copy) for copy in range(3)]
    path = arms.parent / "copies.csv"
    pd.concat(copies).to_csv(path, index=False)

    def width(**options: str) -> float:
        first = json.loads(compare_files(results=str(path), json=True, **options))[0]
        return float(first["ci"]["high"] - first["ci"]["low"])

    assert width(cluster="family") > 1.2 * width()


def test_two_files_and_what_does_not_fit(arms: Path, tmp_path: Path) -> None:
    write_arms(tmp_path / "a.csv", {"a": 0.0})
    write_arms(tmp_path / "b.csv", {"b": 0.0}, num_seeds=3)
    a, b = str(tmp_path / "a.csv"), str(tmp_path / "b.csv")
    [found] = json.loads(compare_files(results=a, experiment=[b], json=True))
    assert (found["design"], found["base"]["seeds"]) == ("paired", [0, 1, 2])
    with pytest.raises(UserError, match="3 arms .old, new, same."):
        compare_files(results=str(arms), experiment=[b])
    with pytest.raises(UserError, match="found a path twice"):
        compare_files(results=a, experiment=[a])
    fractions = pd.read_csv(a).rename(columns={"correct": "prediction"})
    fractions["prediction"] += 0.5
    fractions["label"] = 1
    fractions.to_csv(tmp_path / "fractions.csv", index=False)
    with pytest.raises(UserError, match="fractions, .*accuracy"):
        compare_files(results=str(tmp_path / "fractions.csv"))


def test_nothing_is_written_where_a_side_is_refused(tmp_path: Path) -> None:
    write_arms(tmp_path / "a.csv", {"a": 0.0}, num_seeds=1)
    write_arms(tmp_path / "b.csv", {"b": 0.0}, num_seeds=1)
    done = warm.run(["compare", "a.csv", "b.csv", "--resample=both", "--html=page.html"], tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert re.fullmatch("error: b against a on all examples, .*\n", done.stderr)
    assert not (tmp_path / "page.html").exists()


def test_missing_predictions_are_left_out_of_their_run(arms: Path) -> None:
    """Cells that are empty, and rows that are not there."""
    frame = pd.read_csv(arms).astype({"correct": float})
    frame.loc[5, "correct"] = np.nan
    tables = {
        arm: rows.pivot(index="seed", columns="id", values="correct")
        for arm, rows in frame.groupby("model")
    }
    expected = stats.compare(tables["old"], tables["new"], missing="omit")
    for rows, line in ((frame, "nan at "), (frame.dropna(), "seed 0, example 12 ")):
        rows.to_csv(arms, index=False)
        with pytest.raises(UserError, match=f"{line}.*missing='omit'"):
            compare_files(results=str(arms))
        first, _ = json.loads(
            compare_files(results=str(arms), base="old", missing="omit", json=True)
        )
        assert first["estimate"] == pytest.approx(expected.estimate, abs=1e-15)
        ends = first["ci"]["low"], first["ci"]["high"]
        assert ends == pytest.approx(tuple(expected.ci), abs=1e-12)
        assert first["needs"]["detectable_difference"] == pytest.approx(
            expected.needs.detectable_difference
        )


def test_outputs_never_replace_folders_or_what_is_compared(arms: Path, tmp_path: Path) -> None:
    content = arms.read_bytes()
    for flag in ("html", "latex", "csv"):
        with pytest.raises(UserError, match=f"--{flag} is .*directory"):
            compare_files(results=str(arms), **{flag: str(tmp_path)})
        with pytest.raises(UserError, match=f"--{flag} is .*files compared"):
            compare_files(results=str(arms), **{flag: str(arms)})
    assert arms.read_bytes() == content


def test_arms_without_names_are_called_as_their_files_and_folders(tmp_path: Path) -> None:
    write_arms(tmp_path / "all.csv", {"a": 0.0, "b": 1.0})
    frame = pd.read_csv(tmp_path / "all.csv").rename(columns={"model": "arm_name"})
    folder, file = tmp_path / "pythia-1.4b", tmp_path / "new.csv.gz"
    folder.mkdir()
    for name, path in (("a", folder / "all.csv"), ("b", file)):
        frame[frame["arm_name"] == name].drop(columns="arm_name").to_csv(path, index=False)
    [found] = json.loads(compare_files(results=str(folder), experiment=[str(file)], json=True))
    assert (found["base"]["name"], found["experiment"]["name"]) == ("pythia-1.4b", "new")


@pytest.mark.parametrize("metric", ["auc", "brier", "log_loss"])
def test_probabilities_in_a_file_are_those_of_arrays(metric: str, tmp_path: Path) -> None:
    random, labels = np.random.default_rng(0), np.arange(30) % 2
    given = {
        name: np.clip(labels * 0.2 + random.random((30, 30)) * 0.8, 0.01, 0.99)  # as many seeds
        for name in ("old", "new")
    }
    for name, values in given.items():
        columns = {
            "seed": np.repeat(np.arange(30), 30), "id": np.tile(np.arange(30), 30),
            "prediction": values.ravel(), "label": np.tile(labels, 30),
        }  # fmt: skip
        pd.DataFrame(columns).to_csv(tmp_path / f"{name}.csv", index=False)
    files = [str(tmp_path / f"{name}.csv") for name in ("old", "new")]
    page = str(tmp_path / "page.html")
    text = compare_files(
        results=files[0], experiment=files[1:], metric=metric, json=True, html=page
    )
    expected = stats.compare(given["old"], given["new"], metric, labels=labels)
    assert json.loads(text)[0]["estimate"] == pytest.approx(expected.estimate, abs=1e-12)


def test_every_answer_says_what_was_read_as_what(tmp_path: Path) -> None:
    """Of two files with other names of columns; 4 of 5 seeds are shared."""
    random, labels = np.random.default_rng(0), np.arange(50) % 2
    names = {"old": ("pred", "gold", "uid"), "new": ("answer", "truth", "uid")}
    for arm, (prediction, label, example) in names.items():
        frames = [
            pd.DataFrame({
                "random_seed": seed, example: [f"q{number}" for number in range(50)],
                prediction: np.where(random.random(50) < 0.8, labels, 1 - labels), label: labels,
            })
            for seed in range(5 if arm == "old" else 4)
        ]  # fmt: skip
        pd.concat(frames).to_csv(tmp_path / f"{arm}.csv", index=False)
    paths, page = [str(tmp_path / f"{arm}.csv") for arm in names], tmp_path / "page.html"
    text = compare_files(results=paths[0], experiment=paths[1:], html=str(page))
    [line] = [line for line in text.splitlines() if line.startswith("Read: ")]
    assert line.startswith(
        "Read: old: prediction = 'pred', label = 'gold', example = 'uid', seed = 'random_seed'; "
        "new: prediction = 'answer', label = 'truth', example = 'uid', seed = 'random_seed'; from "
    )
    assert line.endswith(
        f"{paths[0]}, {paths[1]}; old: 50 examples, 5 seeds, 5 runs; new: 50 examples, 4 seeds, 4 runs; "
        "metric accuracy, task not named (old.csv); left out: 1 seed of old (4)."
    )
    assert "answer" in page.read_text() and "random_seed" in page.read_text()
    [found] = json.loads(compare_files(results=paths[0], experiment=paths[1:], json=True))
    assert found["read"] == line.removeprefix("Read: ")


def test_pooled_values_are_said_first_and_possible_clusters_in_a_note(tmp_path: Path) -> None:
    write_arms(tmp_path / "t.csv", {"old": 0.0, "new": 1.5})
    table = pd.read_csv(tmp_path / "t.csv")
    of_examples = {"domain": table["family"] % 2, "Passage": "text " + table["family"].astype(str)}
    table.assign(**of_examples, epoch=1).to_csv(tmp_path / "t.csv", index=False)
    given = {"results": str(tmp_path / "t.csv")}
    pooled = "The rows of 2 values of 'domain' (0, 1) are pooled. "
    text = compare_files(**given)
    assert text.startswith(pooled + "new is better") and text.count(pooled) == 1
    assert len(re.findall("Note: .*'Passage': .*--cluster=Passage ", text)) == 1
    assert "'Passage':" not in compare_files(**given, cluster="Passage")
    one = compare_files(**given, where="domain=1,epoch=last")
    assert "150 shared examples" in one and "rows with domain=1,epoch=last;" in one
    answer = reproduce_files(**given, published=0.5, name="old")
    assert answer.startswith(pooled)
    write_run(tmp_path / "runs" / "a", {"dev": {"labels": [1], "predictions": [1]}})
    with pytest.raises(UserError, match="no columns for --where=a=b; leave it out"):
        compare_files(results=str(tmp_path / "runs"), where="a=b")


def test_none_is_a_word_for_the_arm() -> None:
    known = annotations_of(compare_command.compare_files)
    assert value_of_flag(["none"], known["arm"]) == "none"
    assert value_of_flag(["none"], known["seed"]) is None


def test_rows_and_seeds_by_order_are_noted(tmp_path: Path) -> None:
    write_arms(tmp_path / "a.csv", {"a": 0.0, "b": 1.0})
    frame = pd.read_csv(tmp_path / "a.csv").drop(columns=["id", "family"])
    for arm, rows in frame.groupby("model"):
        (tmp_path / arm).mkdir()
        for seed, own in rows.groupby("seed"):
            own["correct"].to_frame().to_csv(tmp_path / arm / f"run{seed}.csv", index=False)
    text = compare_files(results=str(tmp_path / "a"), experiment=[str(tmp_path / "b")])
    assert re.search("Seeds of a are paired .*names of files", text)
    assert re.search("Examples of b are known .*order of rows", text)
    (tmp_path / "b/run4.csv").unlink()
    known = "base and experiment .*names of files"
    with pytest.raises(UserError, match=f"5 seeds of base, 4 .*{known}"):
        compare_files(results=str(tmp_path / "a"), experiment=[str(tmp_path / "b")])


def test_learning_rates_of_an_export_are_compared(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    random, labels = np.random.default_rng(0), np.arange(60) % 2
    for rate, accuracy in ((2e-5, 0.6), (3e-5, 0.9)):
        for seed in range(4):
            given = np.where(random.random(60) < accuracy, labels, 1 - labels)
            dev = {"labels": labels, "predictions": given}
            facts = {"pretrain_seed": seed, "learning_rate": rate, "step": 10}
            write_run(tmp_path / f"runs/{rate}-{seed}", {"dev": dev}, **facts)
    path = tmp_path / "all.parquet"
    export(path=str(path), predictions=str(tmp_path / "runs"))
    [found] = json.loads(compare_files(results=str(path), arm="learning_rate", json=True))
    assert found["name"] == "3e-05 against 2e-05" and found["estimate"] > 0.15
    assert "arm = 'learning_rate'" in found["read"] and "task t/dev" in found["read"]
    [usual] = json.loads(compare_files(results=str(path), json=True))
    assert usual["name"] == "base, learning_rate 3e-05 against base, learning_rate 2e-05"
    assert usual["estimate"] == found["estimate"]
    with pytest.raises(UserError, match="no column 'rate' for --arm"):
        compare_files(results=str(path), arm="rate")


def page_of(path: Path, **columns: str) -> str:
    """The page of two arms whose columns of seeds and runs have other names, three runs per seed."""
    write_arms(path / "a.csv", {"old": 0.0, "new": 1.0})
    frame = pd.read_csv(path / "a.csv").rename(columns={"seed": columns["seed"]})
    if "run" in columns:
        frame = pd.concat([frame.assign(**{columns["run"]: run}) for run in range(3)])
    frame.to_csv(path / "a.csv", index=False)
    compare_files(results=str(path / "a.csv"), html=str(path / "page.html"))
    return (path / "page.html").read_text()


def test_methods_claim_only_what_the_data_name(tmp_path: Path) -> None:
    own = page_of(tmp_path, seed="seed")
    assert "averaged over seeds (5 and 5)" in own
    assert "both seeds and examples as random" in own
    assert "pre-training seeds" not in own and "fine-tuning runs" not in own
    runs = page_of(tmp_path, seed="random_seed", run="repeat")
    assert "runs of each seed" in runs and "over seeds (5 and 5)" in runs
    ours = page_of(tmp_path, seed="pretrain_seed", run="finetune_seed")
    assert "fine-tuning runs of each seed" in ours and "pre-training seeds" in ours


def test_pasted_tables_have_the_corrected_p_and_the_result(tmp_path: Path) -> None:
    """Of seven arms each interval is of one comparison, and p is corrected for six."""
    write_arms(tmp_path / "a.csv", {f"arm {n}": 0.05 * n for n in range(7)}, num_seeds=6)
    path, page, table = (tmp_path / name for name in ("a.csv", "page.html", "table.tex"))
    files = {"html": str(page), "latex": str(table)}
    text = compare_files(results=str(path), base="arm 0", **files)
    found = json.loads(compare_files(results=str(path), base="arm 0", json=True))
    beyond = [row for row in found if row["p_holm"] >= 0.05 > row["p_value"]]
    assert beyond
    latex = table.read_text()
    assert "p (Holm) & Result" in latex and latex.count("not clear") > len(beyond)
    sides = f"{len(beyond)} interval{'s exclude' if len(beyond) > 1 else ' excludes'} 0 beside the result"
    for shown in (text, latex, page.read_text()):
        assert sides in shown
    # Of so many comparisons words tell the clear ones; the others' are with their rows on the page.
    assert "though the interval" not in text
    assert "of this comparison alone, excludes 0" in page.read_text()
    copied = re.search(r"\| Compared .*?\n\n", page.read_text(), re.DOTALL)
    assert copied and "p (Holm) | Result" in copied[0]


def test_runs_without_done_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random, labels = np.random.default_rng(0), np.arange(40) % 2
    runs = []
    for seed in range(4):
        given = np.where(random.random(40) < 0.8, labels, 1 - labels)
        dev = {"labels": labels, "predictions": given}
        runs.append(write_run(tmp_path / f"{seed}", {"dev": dev}, pretrain_seed=seed))
    assert "4 seeds" in compare_files(results=str(tmp_path)) and capsys.readouterr().err == ""
    (runs[2] / "DONE").unlink()
    assert "Across 3 seeds" in compare_files(results=str(tmp_path))
    assert re.search(f"1 run .*DONE .*: {runs[2]}", capsys.readouterr().err)


def test_the_printed_flag_overwrites_a_file_of_others(arms: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.csv"
    notes.write_text("my notes\n")
    command = ["compare", arms, "--n_resamples=40", "--csv=notes.csv"]
    done = warm.run(command, tmp_path)
    assert done.returncode == 2 and done.stderr.endswith("or add --overwrite\n"), done.stderr
    assert notes.read_text() == "my notes\n"
    for flags in (["--overwrite"], []):  # the second time it is ours
        assert warm.run([*command, *flags], tmp_path).returncode == 0
        assert notes.read_text().startswith("name,evaluation_set,")


def test_a_reader_follows_compare_to_few_functions_of_other_files(arms: Path) -> None:
    file, called = "compare_command.py", set()

    def watch(frame: FrameType, event: str, _: object) -> None:
        caller = frame.f_back
        if event == "call" and caller is not None:
            own, where = (Path(each.f_code.co_filename) for each in (caller, frame))
            ours = where.is_relative_to(ROOT) and ".venv" not in where.relative_to(ROOT).parts
            if own.name == file != where.name and ours:
                called.add((where.name, frame.f_code.co_name))

    sys.setprofile(watch)
    try:
        compare_command.compare_files(results=str(arms), n_resamples=40)
    finally:
        sys.setprofile(None)
    assert ("evidence.py", "compare_all") in called
    assert len(called) <= 10, sorted(called)


def two_namings(folder: Path) -> list[str]:
    """The same answers under other names of columns, one file with the index of `to_csv`."""
    rng, paths = np.random.default_rng(1), []
    for name, columns in (
        ("base", ["seed", "id", "pred", "gold"]),
        ("new", ["s", "qid", "y", "t"]),
    ):
        right = (rng.random(120) < 0.7).astype(int)
        ids = [f"q{item}" for item in range(40)] * 3
        frame = pd.DataFrame({0: np.repeat(range(3), 40), 1: ids, 2: right, 3: 1}).set_axis(
            columns, axis=1
        )
        paths.append(str(folder / f"{name}.csv"))
        frame.sample(frac=1, random_state=2).to_csv(paths[-1], index=name == "new")
        frame.set_axis(["seed", "id", "prediction", "label"], axis=1).to_csv(
            folder / f"usual_{name}.csv", index=False
        )
    return paths


def test_each_file_may_have_names_of_its_own(tmp_path: Path) -> None:
    base, new = two_namings(tmp_path)
    named = {"prediction": "pred,y", "label": ",t", "seed": ",s", "example": "id,qid", "json": True}
    [found] = json.loads(compare_files(results=base, experiment=[new], **named))
    usual = [str(tmp_path / f"usual_{name}.csv") for name in ("base", "new")]
    [expected] = json.loads(compare_files(results=usual[0], experiment=[usual[1]], json=True))
    assert found["estimate"] == expected["estimate"] and found["ci"] == expected["ci"]
    assert "label = 'gold'" in found["read"] and "label = 't'" in found["read"]
    with pytest.raises(UserError, match="--seed=a,b,c .*3 columns, .*2 paths"):
        compare_files(results=base, experiment=[new], seed="a,b,c")


def test_slices_have_the_first_name_where_files_differ(tmp_path: Path) -> None:
    for name, column in (("a", "language"), ("b", "lang")):
        rows = [(s, i, (i + s) % 3 > 0, ["de", "en"][i % 2]) for s in range(3) for i in range(40)]
        frame = pd.DataFrame(rows, columns=["seed", "id", "correct", column])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    files = {"results": str(tmp_path / "a.csv"), "experiment": [str(tmp_path / "b.csv")]}
    text = compare_files(**files, by="language,lang")
    assert re.search(r"^language +examples", text, re.MULTILINE)
    for wrong in ("language,label", "length,lang", "language,"):
        with pytest.raises(UserError, match=f"--by={wrong} .*each path"):
            compare_files(**files, by=wrong)


def test_the_index_that_pandas_writes_is_no_run(tmp_path: Path) -> None:
    wide = pd.DataFrame({"id": ["a", "b", "c"], "seed_0": [1, 0, 1], "seed_1": [1, 1, 0]})
    wide.to_csv(tmp_path / "wide.csv")
    [data] = stats.read(tmp_path / "wide.csv").values()
    assert data["pretrain_seed"].values.tolist() == [0, 1]
    # A part of a table, without other ids: the index distinguishes the examples.
    wide.drop(columns="id")[["seed_0", "seed_1"]].iloc[[2, 0]].to_csv(tmp_path / "part.csv")
    [part] = stats.read(tmp_path / "part.csv").values()
    assert part["example_id"].values.tolist() == [2, 0]


def test_sides_and_task_have_names_for_people(tmp_path: Path) -> None:
    two_namings(tmp_path)
    base, new = (str(tmp_path / f"usual_{name}.csv") for name in ("base", "new"))
    files = {"html": str(tmp_path / "page.html"), "latex": str(tmp_path / "table.tex")}
    names = {"names": ["RoBERTa", "Ours & more"], "task_name": "Sentiment"}
    text = compare_files(results=base, experiment=[new], n_resamples=50, **names, **files)
    assert "Ours & more" in text and "RoBERTa" in text and "task Sentiment" in text
    page, table = (Path(path).read_text() for path in files.values())
    assert "Ours &amp; more against RoBERTa" in page and "Sentiment" in page
    assert r"Ours \& more" in table and "Sentiment" in table
    for wrong in (["Ours"], ["Ours", "Ours"], ["a", "b", "c"]):
        with pytest.raises(UserError, match="there are 2 arms"):
            compare_files(results=base, experiment=[new], names=wrong)


def test_five_parts_are_printed_and_the_rest_on_request(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    two_namings(tmp_path)
    base, new = (str(tmp_path / f"usual_{name}.csv") for name in ("base", "new"))
    text = compare_files(results=base, experiment=[new])
    parts = [part.split()[0] for part in text.split("\n\n") if not part.startswith("Note: ")]
    assert parts == ["usual_new", "Compared", "Report", "The", "Read:"]
    request.getfixturevalue("verbose")
    whole = compare_files(results=base, experiment=[new])
    assert "would reduce the standard error" in whole and "would reduce" not in text
    same = compare_files(
        results=base, experiment=[str(Path(new).rename(tmp_path / "n.csv"))], metric="acc"
    )
    assert "accuracy" in same


def write_sweep(root: Path, rates: list[float], num_seeds: int = 5) -> pd.DataFrame:
    """Finished runs of one checkpoint, and their predictions as a table."""
    random, labels = np.random.default_rng(3), np.arange(200) % 2
    ids, rows = [f"x/{number}" for number in range(200)], []
    for rate in rates:
        for seed in range(num_seeds):
            right = random.random(200) < 0.7 + 2e3 * rate
            answers = np.where(right, labels, 1 - labels)
            dev = {"labels": labels, "predictions": answers}
            facts = {"procedure": "published", "learning_rate": rate, "finetune_seed": seed}
            write_run(root / f"rate={rate:g},seed={seed}", {"dev": dev}, **facts)
            named = {"seed": seed, "id": ids, "prediction": answers, "label": labels}
            rows.append(pd.DataFrame({"model": f"{rate:g}", **named}))
    return pd.concat(rows)


def test_fine_tuning_seeds_of_one_checkpoint_are_seeds(tmp_path: Path) -> None:
    table = write_sweep(tmp_path / "runs", [2e-5, 5e-5])
    table.to_csv(tmp_path / "table.csv", index=False)
    root, page = str(tmp_path / "runs"), tmp_path / "page.html"
    [found] = json.loads(compare_files(results=root, seeds="finetune", json=True))
    [expected] = json.loads(compare_files(results=str(tmp_path / "table.csv"), json=True))
    assert found["estimate"] == expected["estimate"] and found["ci"] == expected["ci"]
    text = compare_files(results=root, seeds="finetune", html=str(page))
    names = found["base"]["name"], found["experiment"]["name"]
    assert names == ("learning rate 2e-05", "learning rate 5e-05") and found["design"] == "paired"
    assert "about this checkpoint only" in text and "about this checkpoint only" in page.read_text()
    assert "{" not in text
    assert "fine-tuning seeds" in page.read_text() and "pre-training seeds" not in page.read_text()
    write_sweep(tmp_path / "other", [3e-5])
    write_sweep(tmp_path / "third", [5e-5])
    folders = [str(tmp_path / name) for name in ("other", "third")]
    text = compare_files(results=folders[0], experiment=folders[1:], seeds="finetune")
    assert "third" in text and "other" in text and "about this checkpoint only" in text


def test_runs_are_compared_by_the_main_metric_of_their_task(tmp_path: Path) -> None:
    qas = [{"id": f"q{n}", "answers": [{"text": "the old cat"}]} for n in range(30)]
    questions = tmp_path / "dev.json"
    questions.write_text(json.dumps({"data": [{"paragraphs": [{"qas": qas}]}]}))
    for arm, answer in (("base", "cat"), ("new", "old cat")):
        for seed in range(3):
            answers = {f"q{n}": "dog" if (n + seed) % 7 == 0 else answer for n in range(30)}
            (tmp_path / "answers.json").write_text(json.dumps(answers))
            import_predictions(
                run_dir=str(tmp_path / "runs"), layout="squad", source=str(tmp_path / "answers.json"),
                questions=str(questions), procedure=arm, pretrain_seed=seed,
            )  # fmt: skip
    [result] = json.loads(compare_files(results=str(tmp_path / "runs"), json=True))
    assert result["metric"] == "squad_f1"
    right = np.mean([(n + seed) % 7 != 0 for n in range(30) for seed in range(3)])
    assert result["estimate"] == pytest.approx(right * (1 - 2 / 3))


def write_steps(root: Path, steps: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """Finished runs of three pre-training seeds at some steps, and their predictions as a table."""
    random, labels = np.random.default_rng(8), np.arange(100) % 2
    rows = []
    for procedure, own in steps.items():
        for step in own:
            for seed in range(3):
                answers = np.where(random.random(100) < 0.6 + step / 500, labels, 1 - labels)
                dev = {"labels": labels, "predictions": answers}
                facts = {"procedure": procedure, "pretrain_seed": seed, "step": step}
                facts |= {"learning_rate": None}
                write_run(root / f"{procedure}-{step}-{seed}", {"dev": dev}, **facts)
                right = (answers == labels).mean()
                rows.append({"procedure": procedure, "step": step, "seed": seed, "right": right})
    return pd.DataFrame(rows)


def test_runs_are_compared_at_their_last_step_or_those_that_are_named(tmp_path: Path) -> None:
    root = str(tmp_path / "runs")
    means = write_steps(tmp_path / "runs", {"news": [10, 100], "books": [10, 80]})
    right = means.groupby(["procedure", "step"])["right"].mean()
    [last] = json.loads(compare_files(results=root, json=True))
    assert [last[role]["name"] for role in ("base", "experiment")] == ["books", "news"]
    assert last["estimate"] == pytest.approx(right["news", 100] - right["books", 80])
    assert "books: runs of" in last["read"] and "step 80, the last of 10, 80;" in last["read"]
    [early] = json.loads(compare_files(results=root, step=[10], base="news", json=True))
    assert early["estimate"] == pytest.approx(right["books", 10] - right["news", 10])
    given = {"step": [10, 100], "base": "books, 10 steps"}
    both = json.loads(compare_files(results=root, **given, json=True))
    assert [one["experiment"]["name"] for one in both] == ["news, 10 steps", "news, 100 steps"]
    with pytest.raises(UserError, match="no run at step 7, and the known steps are 10, 80, 100"):
        compare_files(results=root, step=[7])
    two_namings(tmp_path)
    with pytest.raises(UserError, match="usual_new.csv holds no finished runs, .*leave --step out"):
        compare_files(results=str(tmp_path / "usual_new.csv"), step=[7])


def test_the_base_is_the_arm_that_is_named(arms: Path) -> None:
    first, *_ = json.loads(compare_files(results=str(arms), base="old", json=True))
    other = first["experiment"]["name"]
    turned, *_ = json.loads(compare_files(results=str(arms), base=other, json=True))
    assert turned["base"]["name"] == other and turned["estimate"] == -first["estimate"]
    with pytest.raises(UserError, match="no arm --base=none, only old, new, same"):
        compare_files(results=str(arms), base="none")
