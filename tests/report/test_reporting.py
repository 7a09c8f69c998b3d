"""The report on made-up runs whose truth is known: what it writes, says and refuses."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from multiberts.papers.multiberts.reproduction import paper
from multiberts.papers.page_run import describe
from multiberts.report.analysis import ReportContent, analyse
from multiberts.report.evidence import ComparedArms
from multiberts.report.page import _effect, _warnings
from multiberts.report.presentation.reported import judged
from multiberts.report.reporting import describe_report, report
from multiberts.report.selection import finished_runs
from multiberts.runs.errors import UserError
from multiberts.stats import compare
from multiberts.stats.settings import ComparisonSettings
from multiberts.tests.sketches import drawn_figures
from multiberts.tests.tools import as_module, warm
from multiberts.tests.tools.browser import CONTRASTS
from multiberts.tests.worlds import write_run

pytestmark = pytest.mark.seconds

SEEDS = range(5)
SHARES = np.linspace(3, 97, 24)  # percent of women by occupation
TRUTH = {"winogender/bias_slope": {"base": 0.8, "cda_incr": 0.1}}
EARLY, LATE = ({"procedure": "base", "step": step} for step in (0, 600))
COMPARISONS = [
    {"name": "CDA-incr against base", "base": LATE, "experiment": {"procedure": "cda_incr"}},
    {
        "name": "Step 0 against step 600", "base": {**EARLY, "task": "pairs"},
        "experiment": {**LATE, "task": "pairs"}, "design": "unpaired",
    },
]  # fmt: skip
OF_ONE_BASE = [
    COMPARISONS[0],
    {"name": "Step 0 against step 600", "base": LATE, "experiment": EARLY},
]


def pair_columns(skill: float, *key: int) -> dict:
    labels = np.random.default_rng(0).integers(0, 2, 120)
    right = np.random.default_rng(key).random(120) < skill
    return {
        "example_ids": [f"pairs/dev/{row}" for row in range(120)],
        "labels": labels,
        "predictions": np.where(right, labels, 1 - labels),
    }


def winogender_columns(slope: float, *key: int) -> dict:
    """Choices whose bias score is slope x (share of women - 1/2) on average."""
    occupation, sentence, gender = (rows.ravel() for rows in np.indices((len(SHARES), 8, 3)))
    sign, percent = np.array([0.5, -0.5, 0.0])[gender], SHARES[occupation]
    chance = 0.5 + sign * slope * (percent / 100 - 0.5)
    genders = np.array(["feminine", "masculine", "neutral"])[gender]
    occupations = [f"occupation{number:02d}" for number in occupation]
    names = zip(occupations, sentence, genders, strict=True)
    return {
        "example_ids": [f"winogender/{name}.{number}.{own}" for name, number, own in names],
        "labels": sentence % 2,
        "predictions": np.where(np.random.default_rng(key).random(len(chance)) < chance, 0, 1),
        "extras": {"occupation": occupations, "gender": genders, "percent_feminine": percent},
        "metrics": ["accuracy", "bias_correlation", "bias_slope"],
    }


def write_world(root: Path, learning_rates: tuple[float, ...] = (1e-4, 3e-4)) -> Path:
    """Base at steps 0 and 600, and its counterfactual continuation at 700; `learning_rates` are of pairs."""
    for procedure, step in (("base", 0), ("base", 600), ("cda_incr", 700)):
        code = step + (procedure != "base")
        for pretrain_seed in SEEDS:
            for finetune_seed in range(2):
                facts = {"procedure": procedure, "step": step}
                facts |= {"pretrain_seed": pretrain_seed, "finetune_seed": finetune_seed}
                place = f"{procedure}/{step}/{pretrain_seed}/{finetune_seed}"
                key = (code, pretrain_seed, finetune_seed)
                for learning_rate in learning_rates:
                    skill = 0.55 + 0.3 * min(step, 600) / 600 + 0.04 * (learning_rate > 2e-4)
                    columns = pair_columns(skill, *key, round(1e5 * learning_rate))
                    run = root / "pairs" / place / str(learning_rate)
                    known = {"task": "pairs", "learning_rate": learning_rate, **facts}
                    write_run(run, {"dev": {**columns, "metrics": ["accuracy", "f1"]}}, **known)
                slope = TRUTH["winogender/bias_slope"][procedure] * min(step, 600) / 600
                known = {"task": "coreference", "learning_rate": 1e-3, **facts}
                winogender = winogender_columns(slope, *key)
                write_run(root / "coreference" / place, {"winogender": winogender}, **known)
    return root


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    root = tmp_path_factory.mktemp("world")
    write_world(root / "runs")
    (root / "truth.json").write_text(json.dumps(TRUTH))
    return root


@pytest.fixture(scope="module")
def arguments(world):
    return {
        "predictions": str(world / "runs"),
        "title": "A made-up world",
        "comparisons": COMPARISONS,
        "truth": str(world / "truth.json"),
        "n_resamples": 40,
    }


@pytest.fixture(scope="module")
def of_pairs(world, arguments):
    """Arguments of a smaller report, on one of both tasks."""
    return {**arguments, "predictions": str(world / "runs" / "pairs"), "truth": None}


@pytest.fixture(scope="module")
def written(world, arguments):
    report(run_dir=str(world / "report"), **arguments)
    return world / "report"


@pytest.fixture(scope="module")
def drawn(world, arguments):
    with drawn_figures():
        report(run_dir=str(world / "drawn"), **arguments)
    return world / "drawn"


def read_table(path: Path) -> list[dict]:
    with path.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def test_true_values_are_found_and_their_difference_is_significant(written):
    """The first to have the report and its runs, which take longer than what is asked of them."""
    rows = {row["procedure"]: row for row in read_table(written / "tables" / "truth.csv")}
    assert set(rows) == {"base, step 600", "cda_incr, step 700"}
    for row in rows.values():
        assert row["holds"] == "True"
        assert float(row["low"]) <= float(row["truth"]) <= float(row["high"])
    comparisons = read_table(written / "tables" / "comparisons.csv")
    slope = next(row for row in comparisons if row["metric"] == "bias_slope")
    assert float(slope["ci_low"]) < -0.7 < float(slope["ci_high"]) < 0
    assert float(slope["p_value"]) < 0.01
    sizes = slope["base_num_seeds"], slope["base_num_runs"], slope["num_examples"]
    assert sizes == ("5", "10", "24")


def test_every_shared_set_and_metric_is_compared(written):
    rows = read_table(written / "tables" / "comparisons.csv")
    found = [(row["name"], row["evaluation_set"], row["metric"]) for row in rows]
    first, second = (comparison["name"] for comparison in COMPARISONS)
    of_bias = [
        (first, "coreference/winogender", metric)
        for metric in ("accuracy", "bias_correlation", "bias_slope")
    ]
    of_pairs = [
        (name, "pairs/dev", metric) for name in (first, second) for metric in ("accuracy", "f1")
    ]
    assert found == of_bias + of_pairs


def test_the_better_learning_rate_is_chosen_and_said(written):
    choices = read_table(written / "tables" / "learning_rates.csv")
    assert {(row["procedure"], row["step"]) for row in choices} == {
        ("base", "0"), ("base", "600"), ("cda_incr", "700"),
    }  # fmt: skip
    for row in choices:
        means = dict(pair.split(":") for pair in row["means"].split())
        assert float(row["learning_rate"]) == float(max(means, key=lambda rate: float(means[rate])))
    assert "slightly optimistic" in (written / "index.html").read_text()


def test_p_values_of_a_section_are_corrected_for_their_number(written):
    """Holm by hand: sorted, times the number still in play, never falling."""
    rows = read_table(written / "tables" / "comparisons.csv")
    p_values = [float(row["p_value"]) for row in rows if row["name"] == COMPARISONS[0]["name"]]
    corrected, running = {}, 0.0
    for rank, place in enumerate(np.argsort(p_values)):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = "&lt; 0.0001" if running < 1e-4 else f"{running:.2g}"
    page = (written / "index.html").read_text()
    summary = page[page.index('id="summary"') : page.index('id="truth"')]
    rows_shown = re.findall(r"<tr data-state.*?</tr>", summary, re.DOTALL)
    found = {
        int(number) - 1: re.findall(r'<td class="n" data-v="[^"]*">([^<]*)</td>', row)[2]
        for row in rows_shown
        for number in re.findall(r'href="#comparison-1-(\d+)"', row)
    }
    assert found == corrected


def test_the_page_opens_with_the_primary_comparison_and_its_picture(world, arguments, tmp_path):
    """It is not the clearest: p of the slope is larger than that of the accuracy of trained models."""
    first = {**COMPARISONS[0], "primary": "winogender/bias_slope"}
    asked = [COMPARISONS[1], first]
    report(run_dir=str(tmp_path / "report"), **{**arguments, "comparisons": asked})
    page = (tmp_path / "report" / "index.html").read_text()
    top = page[page.index("<main>") : page.index('id="summary"')]
    [answer] = re.findall(r'<p class="answer">(.*?)</p>', top, re.DOTALL)
    assert "cda incr reduces the bias of base: the bias slope falls from " in answer
    assert re.search(r">CDA[^<]*: [^<]*winogender</p>\s*<p class=\"answer\"", top, re.IGNORECASE)
    assert top.count("<svg ") == 1 and "the true slopes (0.80 and 0.10)" in top
    assert "All 5 comparisons: lower on" in top and "2 comparisons: better on 2" in top
    with pytest.raises(UserError, match="primary is 'winogender/f1'"):
        asked = {"comparisons": [{**first, "primary": "winogender/f1"}]}
        report(run_dir=str(tmp_path / "other"), **arguments | asked)
    assert not (tmp_path / "other").exists()


def test_people_read_names_and_machines_those_of_code(world, written, arguments, tmp_path):
    page = (written / "index.html").read_text()
    body = re.sub(r"<script.*?</script>", "", page[page.index("<main>") :], flags=re.DOTALL)
    links = r'(href|id|popovertarget)="[^"]*"'
    shown = re.sub(links, "", body[: body.index('id="made-with"')])
    copied = re.sub(r'<pre[^>]*aria-label="As CSV".*?</pre>', "", shown, flags=re.DOTALL)
    assert "cda_incr" not in copied and "coreference/winogender" not in copied
    names = {"cda_incr": "After CDA", "winogender": "Winogender"}
    winogender = {"predictions": str(world / "runs/coreference"), "comparisons": COMPARISONS[:1]}
    report(run_dir=str(tmp_path / "report"), **arguments | winogender, names=names)
    named = (tmp_path / "report" / "index.html").read_text()
    assert "After CDA reduces the bias of base" in named
    assert "coreference, Winogender" in named
    for folder in (written, tmp_path / "report"):
        rows = read_table(folder / "tables" / "comparisons.csv")
        assert {row["experiment_name"] for row in rows[:3]} == {"cda_incr"}
        assert rows[0]["evaluation_set"] == "coreference/winogender"


def test_a_group_of_the_table_has_one_unit(written):
    page = (written / "index.html").read_text()
    summary = page[page.index('id="summary"') : page.index('id="truth"')]
    bodies = re.findall(r"<tbody>(.*?)</tbody>", summary, re.DOTALL)
    units = [("in %" in body, len(re.findall("<tr data-state", body))) for body in bodies]
    assert units == [(True, 3), (False, 2), (True, 2)]
    assert [re.findall(r'scope="rowgroup">(.*?) <span', body) for body in bodies] == [
        [COMPARISONS[0]["name"]], [COMPARISONS[0]["name"]], [COMPARISONS[1]["name"]],
    ]  # fmt: skip
    cells = r'>([^<]+)</button>.*?<td class="n" data-v="[^"]*">([^<]*)</td>'
    found = re.findall(cells, summary, re.DOTALL)
    assert len(found) == 7
    decimals = {(metric, len(number.partition(".")[2])) for metric, number in found}
    assert len(decimals) == len({metric for metric, _ in decimals}) == 4


def test_the_paper_command_makes_what_it_can_and_says_what_it_cannot(world, tmp_path):
    """Alone it calls the command of the paper on runs in files, and draws its figures as PDF."""
    given = {"predictions": str(world / "runs/coreference"), "n_resamples": 40, "figures": "pdf"}
    paper(run_dir=str(tmp_path / "paper"), **given)
    page = (tmp_path / "paper" / "report" / "index.md").read_text()
    assert "## winogender_paired" in page
    assert (tmp_path / "paper" / "DONE").is_file()
    described = describe(str(tmp_path / "paper"))
    assert re.match(r".*/index\.html\n\ncda incr against base: .*, difference .*% CI", described)
    assert "\n  left out original: found no evaluation set" in described
    for file in (tmp_path / "paper" / "report" / "figures").iterdir():
        assert file.suffix == ".pdf" and file.read_bytes().startswith(b"%PDF")
        assert f"](figures/{file.name})" in page
    with pytest.raises(UserError, match="none of the base procedure 'other'; name .* --base"):
        paper(run_dir=str(tmp_path / "b"), predictions=str(world / "runs"), base="other")
    with pytest.raises(UserError, match=r"paper\.n_resamples is 0"):
        paper(run_dir=str(tmp_path / "b"), predictions=str(world / "runs"), n_resamples=0)
    assert not (tmp_path / "b").exists()


def test_figures_are_files_of_the_kind_that_is_asked_for(of_pairs, arguments, written, tmp_path):
    assert {path.suffix for path in (written / "figures").iterdir()} == {".svg"}
    settings = {**of_pairs, "comparisons": COMPARISONS[1:], "figures": "png"}
    report(run_dir=str(tmp_path / "png"), **settings)
    files = [*(tmp_path / "png" / "figures").iterdir()]
    for path in files:
        assert path.suffix == ".png" and path.read_bytes().startswith(b"\x89PNG")
    # The page shows them as ever, in itself.
    assert (tmp_path / "png" / "index.html").read_text().count("<svg ") == len(files) > 3
    with pytest.raises(UserError, match=r"figures .*'png'"):
        report(run_dir=str(written), **arguments | {"figures": "png"})


def test_the_page_is_whole_and_speaks(written):
    page = (written / "index.html").read_text()
    assert not re.search(r'(src|href)="https?:', page)
    for link in re.findall(r'href="((?:figures|tables)/[^"]+)"', page):
        assert (written / link).is_file(), link
    assert page.count("<svg ") == len(list((written / "figures").glob("*.svg")))
    for anchor in re.findall(r'href="#([^"]+)"', page):
        assert f'id="{anchor}"' in page
    assert "cda incr reduces the bias of base" in page
    assert "5 paired seeds (10 and 10 runs) and 24 shared occupations" in page


def test_arms_with_one_base_are_ranked_with_the_last_of_them(tmp_path, of_pairs):
    report(run_dir=str(tmp_path / "report"), **of_pairs | {"comparisons": OF_ONE_BASE})
    page = (tmp_path / "report" / "index.html").read_text()
    first, second = page.split('<h2 id="comparison-2">')
    assert "Among 3 arms" not in first.split('<h2 id="comparison-1">')[1]
    assert "pairs, dev: " in second and "Among 3 arms" in second
    assert list((tmp_path / "report" / "figures").glob("2-*-ranking-pairs-dev-accuracy.svg"))
    # Without training the answers are guesses; what continues the base is as good as it is.
    of_pairs = second.partition("<p>pairs, dev: ")[2]
    rows = re.findall(r"<td[^>]*>(1|2|3)</td><td>(.*?)</td>.*?<td>([ab])</td>", of_pairs)
    assert [row[2] for row in rows[:3]] == ["a", "a", "b"] and rows[2][1] == "base, step 0"


def test_the_page_allows_nothing_from_elsewhere(written):
    """A policy as the status page's: scripts of the page alone, and no address."""
    page = (written / "index.html").read_text()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy == (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    )
    assert page.index("Content-Security-Policy") < page.index("<style")


def test_curves_of_three_steps_have_a_band_and_axes_with_units(world, tmp_path):
    """Two steps are a comparison, and have no curve."""
    settings = ComparisonSettings(n_resamples=40)
    runs = finished_runs(str(world / "runs"))
    assert analyse(runs, [], {}, settings, "dev").curves == []
    for seed in SEEDS:
        dev = {**pair_columns(0.7, 300, seed), "metrics": ["accuracy", "f1"]}
        facts = {"task": "pairs", "learning_rate": 3e-4, "pretrain_seed": seed, "step": 300}
        write_run(tmp_path / "pairs" / str(seed), {"dev": dev}, **facts)
    runs += finished_runs(str(tmp_path))
    content = analyse(runs, [], {}, settings, "dev")
    labels = []
    for picture in content.curves:
        (axes,) = picture.make().axes
        assert axes.collections, picture.name
        assert axes.get_title("left") == "pairs, dev (band: 95% CI over seeds)"
        assert axes.get_xlabel() == "pre-training step"
        labels.append(axes.get_ylabel())
    assert labels == ["accuracy (%)", "F1 (%)"]
    top = max(line.get_ydata().max() for line in axes.get_lines())
    assert 0.5 < top <= 1 and axes.yaxis.get_major_formatter()(0.075) == "7.5"


def test_an_effect_beyond_all_use_is_not_printed():
    """Hedges' g of 51.65 says only that seeds hardly vary."""
    assert [_effect(g) for g in (0.5, -4.9, 51.65, -7.0)] == [
        "0.500", "\N{MINUS SIGN}4.900", "beyond 5", "beyond \N{MINUS SIGN}5",
    ]  # fmt: skip


def test_the_first_screen_answers(written):
    """The sentence comes first, then the table; no row is called clear that Holm does not clear."""
    page = (written / "index.html").read_text()
    start = page[page.index("<main>") : page.index('id="truth"')]
    assert start.index('class="answer"') < start.index('id="summary"') < start.index("<table")
    rows = re.findall(r'<tr data-state="([^"]*)">(.*?)</tr>', start, re.DOTALL)
    assert {"not clear", "better", "lower"} <= {result for result, _ in rows}
    for result, row in rows:
        corrected = float(re.findall(r'<td class="n" data-v="([^"]*)">', row)[2])
        assert (corrected < 0.05) == (result != "not clear")


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_keeps_people_from_reading_the_report(drawn, browser, width, dark):
    """At 1400 pixels the picture is next to the answer; unfolded, nothing leaves the page."""
    browser.open(drawn / "index.html", width, dark=dark)
    place = "document.querySelector('{}').getBoundingClientRect().{}"
    left, right = (
        browser.run(place.format(*what)) for what in (("figure", "left"), (".answer", "right"))
    )
    assert (left >= right) == (width == 1400)
    browser.run("for (const one of document.querySelectorAll('details')) one.open = true; 0")
    assert browser.violations() == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert min(browser.run(CONTRASTS)) >= 4.5
    assert browser.complaints == []


def test_a_warning_of_several_comparisons_stands_once():
    """Three seeds carry both differences, and cannot say so much by their order."""
    base = np.tile([[0.2], [0.4], [0.5]], (1, 30))
    better = base + np.array([[0.299], [0.3], [0.302]])
    items = [
        compare(base, better, "mean", less_is_better=False, n_resamples=50).named(
            evaluation_set=name
        )
        for name in ("a", "b")
    ]
    content = ReportContent([ComparedArms("x", "paired", judged(items))], [], [], [], [])
    ((text, concerned),) = _warnings(content).items()
    assert "below 0.25" in text
    assert concerned == items


def test_same_arguments_give_the_same_bytes(world, arguments, written):
    report(run_dir=str(world / "again"), **arguments)
    files = sorted(path.relative_to(written) for path in written.rglob("*.*") if path.is_file())
    assert len(files) > 20
    for file in files:
        if file.name != "config.gin":
            assert (written / file).read_bytes() == (world / "again" / file).read_bytes(), file


def test_a_finished_report_is_left_alone_and_other_parameters_are_refused(
    world, arguments, written
):
    before = (written / "index.html").stat().st_mtime_ns
    report(run_dir=str(written), **arguments)
    assert (written / "index.html").stat().st_mtime_ns == before
    with pytest.raises(UserError, match="n_resamples"):
        report(run_dir=str(written), **{**arguments, "n_resamples": 100})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"comparisons": [{"name": "x", "base": {"procedure": "bse"}}]}, "no finished run has"),
        ({"comparisons": [{"name": "x", "base": {"step": 1}}]}, "expected procedure"),
        ({"comparisons": [{"name": "x", "bose": {}}]}, "found the field 'bose'"),
        ({"comparisons": [{**COMPARISONS[0], "design": "pared"}]}, "found design 'pared'"),
        ({"comparisons": [{**COMPARISONS[0], "design": "single"}]}, "takes no experiment"),
        ({"comparisons": [{**COMPARISONS[0], "margin": "1"}]}, "'[^']+': found margin '1'"),
        ({"truth": "absent.json"}, "absent.json does not exist"),
        ({"predictions": "absent"}, "absent"),
        ({"confidence_level": 95}, "report.confidence_level is 95"),
    ],
)
def test_bad_parameters_are_refused_before_anything_is_written(
    tmp_path, arguments, change, message
):
    with pytest.raises(UserError, match=message):
        report(run_dir=str(tmp_path / "report"), **(arguments | change))
    assert not (tmp_path / "report").exists()


def test_truth_that_fits_no_run_is_refused(tmp_path, of_pairs):
    path = tmp_path / "truth.json"
    for truth, line in (
        ('{"base": 1}', "truth names winogender/bias"),
        ("3", "winogender/bias is 3"),
    ):
        path.write_text(f'{{"winogender/bias": {truth}}}')
        with pytest.raises(UserError, match=line):
            report(run_dir=str(tmp_path / "report"), **of_pairs | {"truth": str(path)})
    assert not (tmp_path / "report").exists()


def test_the_command_makes_the_same_page_and_refuses_bad_input(world, tmp_path):
    """Alone it makes a report from the shipped configuration, in processes of their own."""
    given = {
        "RUN_DIR": str(tmp_path / "report"),
        "PREDICTIONS": str(world / "runs/coreference"),
        "BASE": "base",
        "EXPERIMENT": "cda_incr",
        "report.n_resamples": 40,
    }
    bindings = [f"--gin_param={name} = {value!r}" for name, value in given.items()]
    flags = ["--gin_file=configs/stats/paired.gin", *bindings]
    done = warm.run(["stats", *flags])
    assert done.returncode == 0, done.stderr
    assert "Experiment against base" in (tmp_path / "report" / "index.html").read_text()
    # A process of its own draws its figures.
    figures = list((tmp_path / "report" / "figures").iterdir())
    assert len(figures) > 5 and all(file.stat().st_size > 5000 for file in figures)
    refused = as_module.run("stats", [*flags, "--gin_param=EXPERIMENT = 'cda'"])
    assert refused.returncode == 2
    assert re.match("error: .*'Experiment against base', experiment: no ", refused.stderr)
    assert len(refused.stderr.splitlines()) == 1


def test_without_comparisons_two_procedures_are_compared_and_three_are_ranked(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    skills = {"news": 0.6, "books": 0.75, "poems": 0.9}
    scores = {}
    for place, (procedure, skill) in enumerate(skills.items()):
        for seed in range(4):
            columns = pair_columns(skill, place, seed)
            facts = {"task": "pairs", "procedure": procedure, "pretrain_seed": seed, "step": 50}
            write_run(tmp_path / f"{procedure}/{seed}", {"dev": columns}, **facts)
            scores[procedure, seed] = (columns["predictions"] == columns["labels"]).mean()
    means = {name: np.mean([scores[name, seed] for seed in range(4)]) for name in skills}
    settings = {"n_resamples": 40}
    two = [str(tmp_path / name) for name in ("news", "books")]
    report(run_dir=str(tmp_path / "two"), predictions=two, **settings)
    [row] = read_table(tmp_path / "two/tables/comparisons.csv")
    assert float(row["estimate"]) == pytest.approx(means["news"] - means["books"])
    page = (tmp_path / "two/index.html").read_text()
    assert '<h1 id="top">news against books</h1>' in page
    assert "news is compared with books, the first by name; at the last steps (books: 50, " in page
    three = [*skills]  # relative paths, which the command below resolves
    report(run_dir=str(tmp_path / "three"), predictions=three, **settings)
    rows = read_table(tmp_path / "three/tables/comparisons.csv")
    assert {row["name"]: float(row["estimate"]) for row in rows[:3]} == pytest.approx(means)
    assert [pair["base_name"] for pair in rows[3:]] == ["books", "news", "news"]
    page = (tmp_path / "three/index.html").read_text()
    assert re.search(
        r'class="answer">poems (comes first|leads clearly) .* Among 3 arms with 4 paired seeds each',
        page,
    )
    assert "all 3 arms are ranked, and none is the base" in page
    said = describe_report(str(tmp_path / "three"))
    ranked = re.findall(r"^\| (\d) +\| (\w+)", said, re.MULTILINE)
    assert ranked == [("1", "poems"), ("2", "books"), ("3", "news")]
    [command] = re.findall(r">Command</th><td[^>]*>multiberts ([^<,]*), from the folder", page)
    made = warm.run(command.replace("FOLDER", "three").split(), tmp_path)
    assert made.returncode == 0, made.stderr
    tables = [tmp_path / folder / "tables/comparisons.csv" for folder in ("three", "again")]
    assert tables[0].read_bytes() == tables[1].read_bytes()
