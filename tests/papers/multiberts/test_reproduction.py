"""The paper's report: what it writes, what it leaves out and why, and what it refuses."""

import dataclasses
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from multiberts.papers.multiberts.catalogue import PUBLISHED, Catalogue, Roles
from multiberts.papers.multiberts.figures import seeds_figure
from multiberts.papers.multiberts.reproduction import paper_report
from multiberts.report.presentation.sections import Report, write_report
from multiberts.runs.errors import UserError
from multiberts.stats.errors import DataError
from multiberts.tests.papers.conftest import chosen

pytestmark = pytest.mark.seconds

SETTINGS = replace(PUBLISHED, n_resamples=40)


@pytest.fixture(scope="module")
def written(prediction_sets, tmp_path_factory):
    folder = tmp_path_factory.mktemp("paper") / "report"
    report = paper_report(prediction_sets, settings=SETTINGS, parts={"hans": "heuristic"})
    return folder, write_report(folder, report)


def test_every_table_and_figure_is_there(written):
    """The first to have the whole report of the paper, which all tests here read."""
    folder, _ = written
    tables, figures = (list(folder.glob(f"{name}/*")) for name in ("tables", "figures"))
    assert {path.stem for path in tables} == {
        "scores", "winogender_paired", "winogender_unpaired", "winogender_checkpoints", "steps",
        "original", "agreement", "family_steps", "components", "winogender_groups",
    }  # fmt: skip
    assert {path.suffix for path in tables} == {".md", ".tex", ".csv"}
    assert {path.suffix for path in figures} == {".svg"}
    assert folder / "figures" / "figure_parts_hans.svg" in figures
    index = (folder / "index.md").read_text()
    shown = re.findall(r"\(figures/(.*?)\)", index)
    assert sorted(shown) == sorted(path.name for path in figures)


def test_what_is_missing_is_named_with_its_reason(written):
    folder, left_out = written
    ((name, reason),) = left_out.items()
    assert name == "figure_bias_noise"
    assert re.search("base_extra_seeds .*bias correlation", reason)
    index = (folder / "index.md").read_text()
    assert "- figure_bias_noise: " in index and "of base_extra_seeds with" in index


def test_the_page_answers_first_in_per_cent_and_words(written, prediction_sets):
    page = (written[0] / "index.html").read_text()
    (answer,) = re.findall('<p class="answer">(.*?)</p>', page)
    (item, _) = Catalogue(prediction_sets, settings=SETTINGS).paired
    scores = [f"{100 * arm.estimate:.2f} %" for arm in (item.experiment, item.base)]
    assert f"accuracy on coreference, winogender {' against '.join(scores)}, difference" in answer
    (contents,) = re.findall("<nav.*?</nav>", page, re.DOTALL)
    assert ">Incremental CDA against base, paired (table 1 of the paper)<" in contents
    assert not re.search(r">\w*_\w*<", contents)
    # Table 1 lies on its side: a column per metric, which fits a narrow screen.
    (first,) = re.findall(r'id="section-2">.*?<table>(.*?)</table>', page, re.DOTALL)
    assert first.count("<th ") == 3
    assert f">{100 * item.base.estimate:.2f}</td>" in first


def test_comparisons_stand_in_full_in_one_file(written):
    folder, _ = written
    whole, paired = (
        pd.read_csv(folder / name, dtype=str) for name in ("comparisons.csv", "tables/winogender_paired.csv")
    )  # fmt: skip
    whole = whole[whole["name"] == "cda_incr against base"].set_index("metric")
    row, table = whole.loc["bias_correlation"], paired.set_index("Metric").loc["bias_correlation"]
    assert row["estimate"] == table["Difference"]
    assert row["base_bootstrap_mean"] == table["Base score, published"]
    assert row["p_values_published_less"] == table["p (less, published)"]


def test_few_prediction_sets_give_what_they_can(prediction_sets, tmp_path):
    few = chosen(prediction_sets, "RTE", "base")
    report = paper_report(few, settings=SETTINGS, early_step=500_000)
    left_out = write_report(tmp_path / "few", report)
    assert {path.stem for path in (tmp_path / "few").glob("*/*")} == {
        "scores", "agreement", "components", "figure_scores", "figure_training_rte-dev",
        "figure_agreement", "figure_variance",
    }  # fmt: skip
    assert re.search("no evaluation set .*500k steps", left_out["steps"])
    assert re.search("of base .*bias correlation", left_out["winogender_paired"])
    assert "original BERT (figure" not in (tmp_path / "few" / "index.md").read_text()


def test_the_same_bytes_again_over_the_old_folder(prediction_sets, tmp_path):
    few = chosen(prediction_sets, "RTE")
    contents = []
    for _ in range(2):
        write_report(tmp_path / "report", paper_report(few, settings=SETTINGS))
        files = sorted((tmp_path / "report").rglob("*.*"))
        contents.append({file.name: file.read_bytes() for file in files})
    assert contents[0] == contents[1]


def test_refusals(prediction_sets, tmp_path):
    with pytest.raises(DataError, match="of base, cda_.* none of the base procedure 'plain'"):
        paper_report(prediction_sets, roles=Roles(base="plain"))
    with pytest.raises(DataError, match="no procedure, but none of the base procedure 'base'"):
        paper_report([])
    with pytest.raises(UserError, match="exists and is not a report"):
        write_report(tmp_path, Report("Nothing", []))


def test_every_numbered_table_and_figure_of_the_paper_has_a_maker(
    written, prediction_sets, tmp_path
):
    numbers = [*(f"table {n}" for n in range(1, 6)), *(f"figure {n}" for n in range(1, 9))]
    winogender = chosen(prediction_sets, "coreference")
    extra = dataclasses.replace(winogender[0], procedure="base_extra_seeds")
    write_report(tmp_path / "more", paper_report([*winogender, extra], settings=SETTINGS))
    page = (written[0] / "index.md").read_text() + (tmp_path / "more" / "index.md").read_text()
    for number in numbers:
        assert re.search(rf"\((\w+ \d and )?{number}( and \w+ \d)? of the paper\)", page), number


def test_figure_4_has_a_column_per_seed_and_only_pairs_that_are_not_entailed(prediction_sets):
    (hans,) = [own for own in prediction_sets if own.evaluation_set == "hans"]
    paper = Catalogue(prediction_sets)
    rows = hans.data["label"].to_numpy() == 0
    right = (hans.data["prediction"].to_numpy() == 0)[:, rows].mean(axis=1)
    seeds = hans.data["pretrain_seed"].to_numpy()
    (axes,) = seeds_figure([paper.hans.run_scores("accuracy")], "accuracy").axes
    assert len(axes.get_xticks()) == 6
    dots = [line.get_ydata() for line in axes.get_lines() if line.get_marker() == "."]
    np.testing.assert_allclose(
        sorted(sorted(line) for line in dots),
        sorted(sorted(right[seeds == seed]) for seed in range(6)),
    )


def test_figure_8_has_both_steps_of_every_task_and_the_seeds_with_both(prediction_sets):
    panels = Catalogue(prediction_sets).step_panels
    assert [panel.title for panel in panels] == ["MNLI/dev", "RTE/dev", "STS-B/dev", "SQuAD/v2.0"]
    for panel in panels:
        assert [arm.name for arm in panel.arms] == ["1M steps", "2M steps"]
        assert [arm.seeds for arm in panel.arms] == [(0, 1, 2, 3, 4)] * 2


def test_a_task_with_two_sets_counts_once_in_the_mean_and_the_correction(prediction_sets):
    again = [
        dataclasses.replace(item, evaluation_set="second")
        for item in chosen(prediction_sets, "MNLI")
        if item.evaluation_set == "dev"
    ]
    paper = Catalogue([*prediction_sets, *again], settings=SETTINGS)
    assert "MNLI/second" in {item.evaluation_set for item in paper.steps}
    names = ["MNLI/dev", "RTE/dev", "STS-B/dev", "SQuAD/v2.0"]
    assert list(paper.family_of_steps.comparisons) == names


def test_the_variance_of_gender_bias_is_that_of_its_correlation(prediction_sets):
    section = {
        item.name: item for item in paper_report(prediction_sets, settings=SETTINGS).sections
    }
    axes = section["figure_variance"].make().axes[0]
    names = [" ".join(label.get_text().split()) for label in axes.get_yticklabels()]
    assert [name for name in names if "winogender" in name] == [
        "coreference, winogender, bias correlation"
    ]
