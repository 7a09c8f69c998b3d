"""Reports made again: what was changed is found, what another machine may change is not; registrations."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.runs.errors import UserError
from multiberts.runs.files import sha256_of_file
from multiberts.runs.plan_marker import read_plan
from multiberts.runs.registration import plan_hash, register
from multiberts.stats.report.page import MADE_FROM
from multiberts.stats.report.reporting import report
from multiberts.stats.report.verification import _differences, verify
from multiberts.tests import warm
from multiberts.tests.sketches import drawn_figures
from multiberts.tests.stats.report.test_reporting import pair_columns, write_run

pytestmark = pytest.mark.seconds

COMPARISON = {
    "name": "New against base",
    "base": {"procedure": "base"},
    "experiment": {"procedure": "new"},
}
SETTINGS: dict[str, Any] = {
    "title": "A <small> world",
    "comparisons": [COMPARISON],
    "n_resamples": 50,
}
SKILLS = {"base": 0.6, "new": 0.75}


def made_run(root: Path, procedure: str, seed: int) -> None:
    facts = {
        "task": "pairs", "procedure": procedure, "step": 5, "pretrain_seed": seed, "finetune_seed": 0,
        "learning_rate": 1e-4,
    }  # fmt: skip
    columns = pair_columns(SKILLS[procedure], seed, len(procedure))
    columns["extras"] = {"sentence": [f"This is sentence {row}." for row in range(120)]}
    write_run(root / f"runs/{procedure}/{seed}", facts, "dev", ["accuracy", "f1"], **columns)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An experiment of four seeds, all done, with its report."""
    root = tmp_path_factory.mktemp("made") / "root"
    plan = []
    for procedure in SKILLS:
        for seed in range(4):
            made_run(root, procedure, seed)
            path = f"runs/{procedure}/{seed}"
            facts = {
                "task": "pairs",
                "procedure": procedure,
                "pretrain_seed": seed,
                "checkpoint_step": 5,
            }
            run = {"path": path, "stage": "finetune", "name": path, "identity": path, "parents": []}
            plan.append({**run, "facts": facts})
    (root / "launch").mkdir()
    (root / "launch/plan.json").write_text(json.dumps({"version": 1, "runs": plan}))
    report(run_dir=str(root / "report"), predictions=str(root / "runs"), **SETTINGS)
    return root


@pytest.fixture(scope="module")
def drawn(made: Path) -> Path:
    """The page of the same experiment with its figures, which are sketched elsewhere."""
    with drawn_figures():
        report(run_dir=str(made / "drawn"), predictions=str(made / "runs"), **SETTINGS)
    return made / "drawn/index.html"


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """The same, somewhere else."""
    shutil.copytree(made, tmp_path / "root", ignore=shutil.ignore_patterns("drawn"))
    return tmp_path / "root"


def verified(
    root: Path, capsys: pytest.CaptureFixture[str], page: str = "report/index.html"
) -> tuple[int, list[str]]:
    capsys.readouterr()
    status = verify(page=str(root / page), runs=[str(root / "runs")])
    return status, capsys.readouterr().out.splitlines()


def held(line: str) -> tuple[int, int]:
    found = re.search(r"([\d,]+) of ([\d,]+) numbers hold", line)
    assert found is not None
    return int(found[1].replace(",", "")), int(found[2].replace(",", ""))


def test_every_number_of_an_honest_page_holds(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, (line,) = verified(root, capsys)
    right, total = held(line)
    assert status == 0 and right == total > 200 and line.endswith("from 8 runs")


def replaced(old: str, new: str) -> Callable[[str], str]:
    """Returns what replaces the first `old`, a regular expression, by `new`."""
    return lambda text: re.sub(old, new, text, count=1, flags=re.DOTALL)


def next_digit(before: str) -> Callable[[str], str]:
    """Returns what adds one to the digit after `before`, a regular expression."""
    return lambda text: re.sub(
        f"({before})([0-9])",
        lambda m: f"{m[1]}{(int(m[2]) + 1) % 10}",
        text,
        count=1,
        flags=re.DOTALL,
    )


def moved(share: float) -> Callable[[str], str]:
    """Returns what changes the longest number of a table by a share of it."""

    def change(text: str) -> str:
        number = max(re.findall(r"[0-9]\.[0-9]+", text), key=len)
        return text.replace(number, repr(float(number) * (1 + share)), 1)

    return change


def shifted(points: float) -> Callable[[str], str]:
    """Returns what moves a marker of a figure."""
    return lambda text: re.sub(
        r'(<use [^>]*x=")([0-9.]+)', lambda m: f"{m[1]}{float(m[2]) + points:.6f}", text, count=1
    )


def packed_again(change: Callable[[str], str], level: int = 1) -> Callable[[str], str]:
    """Returns what changes the examples of a grid, and compresses them as another library may."""

    def packed(found: re.Match[str]) -> str:
        content = change(zlib.decompress(base64.b64decode(found[0])).decode())
        return base64.b64encode(zlib.compress(content.encode(), level)).decode()

    return lambda text: re.sub(r"(?<=data-packed>)[^<]+", packed, text, count=1)


FORGERIES = {
    "after main": (
        replaced("</main>", "</main>\n<p>The rest is wrong.</p>"),
        "Made with: '<p>The rest",
    ),
    "before main": (
        replaced("<main>", "<p>All is well.</p>\n<main>"),
        "index.html: '<p>All is well.",
    ),
    "rule": (
        replaced("</style>", "tr:nth-child(2) { display: none; }\n</style>"),
        "tr:nth-child(2)",
    ),
    "script": (
        replaced("</body>", "<script>document.title = 'x';</script></body>"),
        "document.title",
    ),
    "heading": (
        replaced(">How the numbers", ">Guess how the numbers"),
        "How the numbers are computed: 'Guess how",
    ),
}
# What differs, how many numbers of the page no longer hold, and what of it is said.
CHANGED_PAGES: dict[str, tuple[Callable[[str], str], int, str]] = {
    "digit": (next_digit('id="summary".*?<td class="n"[^>]*>[^<]*?'), 1, "All comparisons: '"),
    "sentence": (replaced("Across 4 paired", "Across 9 paired"), 1, "Across 9"),
    "word": (replaced("is better", "is worse"), 0, "is worse"),
    "caption": (replaced("(<figcaption>)[^<]*", r"\1Nothing."), 0, "<figcaption>Nothing."),
    "attribute": (replaced('data-state="better"', 'data-state="worse"'), 0, "data-state"),
    "link": (replaced('href="#runs"', 'href="https://example.org"'), 0, "example.org"),
    "row": (replaced('<tr data-state="better">.*?</tr>', ""), 0, "from the files"),
    "blank": (lambda text: text + "\n", 0, r"'\n' on the page, 'nothing' from the files"),
    "examples": (packed_again(replaced("This is sentence 3", "That was")), 0, "That was"),
    "checksum": (next_digit('"dev": "[a-f]*'), 0, "- another file than the page was made from"),
    "data": (next_digit("</th><td class=.wraps.>SHA-256 [a-f]*"), 0, "Made with: 'SHA-256"),
    "command": (
        replaced("multiberts stats --gin", "multiberts paper --gin"),
        0,
        "multiberts paper",
    ),
    "row made with": (
        replaced('<tr><th scope="row">Commit.*?</tr>\n', ""),
        0,
        "nothing' on the page",
    ),
    "field": (replaced('"up": ', '"by": "me", "up": '), 0, '"by": "me"'),
    "directory": (replaced('"up": ".."', '"up": "../.."'), 0, '"up": "../.."'),
}
CHANGED_FIGURES: dict[str, Callable[[str], str]] = {
    "dot": shifted(1e-4),
    "line": next_digit('<path d="M '),
    "label": replaced("(<svg.*?<text[^>]*>)[^<]*", r"\1Bias"),
    "number": next_digit("<svg.*?<text[^>]*>[^<]*(?<![0-9a-z])"),
    "colour": replaced("#0072b2", "#d55e00"),
    "added": replaced("</svg>", '<rect x="1" y="1"/></svg>'),
    "removed": replaced("(<svg.*?)<use [^>]*/>", r"\1"),
}
CHANGED_FILES = {
    "comparisons.csv": (moved(1e-8), 1, "- tables/comparisons.csv: '0."),
    "comparisons.md": (next_digit(r"\| [+-]?"), 1, "- tables/comparisons.md: "),
    "runs.csv": (replaced("base", "bare"), 0, "- tables/runs.csv: 'bare'"),
    "made_with.json": (replaced("multiberts stats", "multiberts paper"), 0, "- tables/made_with.json"),
}  # fmt: skip
# Settings that `stats` takes, and of which it makes another page.
OTHER_SETTINGS: dict[str, Any] = {
    "title": "Another",
    "comparisons": [{**COMPARISON, "resample": "seeds"}],
    "n_resamples": 51,
    "rng": 43,
    "confidence_level": 0.9,
    "truth": {"pairs/dev/accuracy": {"base": 0.6}},
    "names": {"base": "Before"},
}
NESTED: Any = json.loads("[" * 500 + "]" * 500)
WRONG_SETTINGS: list[tuple[str, Any]] = [
    *((name, None) for name in ("title", "comparisons", "n_resamples", "rng", "truth")),
    *(("title", value) for value in (3, ["a"])),
    *(("n_resamples", value) for value in ("50", 50.0, True, [50], 0, 10**12, 10**8, float("nan"))),
    *(("rng", value) for value in (-1, "x", 10**400)),
    *(("confidence_level", value) for value in ("0.95", 2, float("nan"), 1e-300, 1 - 1e-13)),
    *(("learning_rate_rule", value) for value in ("best", ["dev"])),
    *(("comparisons", value) for value in ("abc", ["abc"], COMPARISON)),
    *(
        ("comparisons", [{**COMPARISON, name: value}])
        for name, values in {
            "name": (3, ["a"]),
            "base": ("base", ["procedure"], None, {"procedure": "other"}, {"procedure": NESTED}),
            "experiment": ("new", False),
            "design": ("x", ["paired"], None),
            "resample": ("x", {}),
            "margin": ("1", [1], -1, True, float("nan"), 60),
            "primary": (3, ["a"], "pairs/dev/brier"),
            "wish": (1,),
        }.items()
        for value in values
    ),
    *(
        ("truth", value)
        for value in ("a", [1], {"a": "b"}, {"a": {"b": "c"}}, {"a/b": {"base": 1}})
    ),
    *(("names", value) for value in ("abc", ["a"], {"base": 3}, {"base": NESTED})),
    ("wish", 1),
]


def with_made_from(page: str, change: Callable[[dict[str, Any]], None]) -> str:
    """Returns a page that says of itself that it was made from something else."""
    before, _, rest = page.partition(MADE_FROM)
    content, _, after = rest.partition("</script>")
    made_from = json.loads(content)
    change(made_from)
    text = json.dumps(made_from).replace("<", "\\u003c")
    return f"{before}{MADE_FROM}{text}</script>{after}"


def rewritten(file: Path, change: Callable[[str], str]) -> None:
    honest = file.read_text()
    file.write_text(change(honest))
    assert file.read_text() != honest


@pytest.mark.parametrize("forgery", FORGERIES)
def test_what_was_changed_outside_the_results_is_found(
    root: Path, capsys: pytest.CaptureFixture[str], forgery: str
) -> None:
    change, said = FORGERIES[forgery]
    rewritten(root / "report/index.html", change)
    status, (line, finding) = verified(root, capsys)
    assert status == 1 and len(set(held(line))) == 1 and said in finding


def test_the_command_finds_all_of_it_and_refuses_settings_in_a_line(
    drawn: Path, tmp_path: Path
) -> None:
    page, runs = tmp_path / "index.html", drawn.parents[1] / "runs"
    page.write_text(drawn.read_text())
    for change, _ in FORGERIES.values():
        rewritten(page, change)
    done = warm.run(["verify", page, runs])
    assert done.returncode == 1 and not done.stderr
    line, *findings = done.stdout.splitlines()
    assert len(set(held(line))) == 1 and len(findings) == len(FORGERIES)
    for _, said in FORGERIES.values():
        assert said in done.stdout
    page.write_text(drawn.read_text())
    assert warm.run(["verify", page, runs]).returncode == 0
    rewritten(page, replaced('"n_resamples": 50', f'"n_resamples": {10**12}'))
    done = warm.run(["verify", page, runs])
    assert done.returncode == 2 and not done.stdout and len(done.stderr.splitlines()) == 1
    assert "found n_resamples 1000000000000, expected" in done.stderr


@pytest.mark.parametrize("change", CHANGED_FIGURES)
def test_a_changed_figure_is_found(drawn: Path, change: str) -> None:
    """In the page, and in the file beside it."""
    page = drawn.read_text()
    figure = sorted((drawn.parent / "figures").glob("*.svg"))[0].read_text()
    for honest in (page, figure):
        forged = CHANGED_FIGURES[change](honest)
        assert forged != honest
        [(is_figure, _, count)] = _differences(honest, forged)
        assert is_figure and count == 0


@pytest.mark.parametrize("changed", CHANGED_PAGES)
def test_what_was_changed_in_the_page_is_found(
    root: Path, capsys: pytest.CaptureFixture[str], changed: str
) -> None:
    change, numbers, said = CHANGED_PAGES[changed]
    rewritten(root / "report/index.html", change)
    status, (line, finding) = verified(root, capsys)
    right, total = held(line)
    assert (status, total - right) == (1, numbers) and said in finding


@pytest.mark.parametrize("name", CHANGED_FILES)
def test_what_was_changed_beside_the_page_is_found(
    root: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    change, numbers, said = CHANGED_FILES[name]
    rewritten(root / "report/tables" / name, change)
    status, (line, finding) = verified(root, capsys)
    right, total = held(line)
    assert (status, total - right) == (1, numbers) and finding.startswith(said)


def test_a_page_of_another_commit_is_told_by_it_and_compared_by_the_numbers_of_its_tables(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = root / "report/index.html"
    rewritten(page, replaced("(Commit.*?wraps.>)[^<]*", rf"\g<1>{'0' * 40}"))
    assert verified(root, capsys)[0] == 0
    for change in ("rule", "before main", "heading"):
        rewritten(page, FORGERIES[change][0])
    status, (line, finding) = verified(root, capsys)
    assert status == 1 and len(set(held(line))) == 1
    assert f"the page is of commit {'0' * 40}, this program of" in finding
    rewritten(page, CHANGED_PAGES["digit"][0])
    _, (line, _, finding) = verified(root, capsys)
    right, total = held(line)
    assert total - right == 1 and finding.startswith("- index.html, All comparisons: '")
    assert "<" not in finding


def test_what_another_machine_may_change_holds(
    root: Path, drawn: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(drawn.parent, root / "drawn")
    page = root / "drawn/index.html"
    for change in (
        shifted(1e-6),
        moved(1e-11),
        packed_again(str),
        replaced("(?<=wraps.>)20[0-9 :-]+UTC", "2031-01-01 00:00 UTC"),
        replaced("(Commit.*?wraps.>)[^<]*", r"\1not known"),
        replaced("(Processor.*?wraps.>)[^<]*", r"\1another"),
        replaced("(numpy.*?wraps.>)[^<]*", r"\g<1>1.0"),
        replaced("(matplotlib</th>.*?wraps.>)[^<]*", r"\g<1>3.1.0"),
        replaced(
            '<tr><th scope="row">Python',
            '<tr><th scope="row">OMP_NUM_THREADS</th><td class="wraps">7</td></tr>\n\\g<0>',
        ),
    ):
        rewritten(page, change)
    rewritten(root / "drawn/tables/comparisons.csv", moved(1e-11))
    rewritten(root / "drawn/tables/made_with.json", replaced('(?<="Commit": ")[^"]*', "not known"))
    figure, *others = sorted((root / "drawn/figures").glob("*.svg"))
    rewritten(figure, shifted(1e-6))
    # Markers are named by a checksum of their coordinates.
    rewritten(figure, lambda text: re.sub(r'(?<=["#])m(?=[0-9a-f]{10}")', "mm", text))
    with drawn_figures():
        status, (line,) = verified(root, capsys, "drawn/index.html")
        assert status == 0 and len(set(held(line))) == 1
        rewritten(page, shifted(1e-4))
        rewritten(others[0], shifted(1e-4))
        status, (line, versions, *findings) = verified(root, capsys, "drawn/index.html")
    assert status == 1 and len(set(held(line))) == 1
    assert re.match(
        "- figures were drawn by matplotlib 3.1.0, and here by [^:]*: pip install", versions
    )
    assert ", figure: " in findings[0] and findings[1].startswith(
        f"- figures/{others[0].name}, figure: "
    )


@pytest.mark.parametrize("name", OTHER_SETTINGS)
def test_another_setting_is_found(
    root: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    value = OTHER_SETTINGS[name]
    changed = {name: value}
    rewritten(
        root / "report/index.html",
        lambda page: with_made_from(page, lambda made: made["settings"].update(changed)),
    )
    status, lines = verified(root, capsys)
    assert status == 1 and len(lines) > 1


@pytest.mark.parametrize(
    ("name", "value"), WRONG_SETTINGS, ids=[f"{n}-{str(v)[:50]}" for n, v in WRONG_SETTINGS]
)
def test_a_setting_that_the_report_does_not_take_is_refused_in_a_line(
    made: Path, tmp_path: Path, name: str, value: Any
) -> None:
    def change(made_from: dict[str, Any]) -> None:
        made_from["settings"].pop(name, None)
        if value is not None:
            made_from["settings"][name] = value

    page = tmp_path / "index.html"
    page.write_text(with_made_from((made / "report/index.html").read_text(), change))
    with pytest.raises(UserError, match=r"^[^\n]*(made again|what it was made from)[^\n]*$"):
        verify(page=str(page), runs=[str(made / "runs")])


@pytest.mark.parametrize("value", [["a"], 3, {}])
@pytest.mark.parametrize("field", ["files", "up", "registration"])
def test_fields_of_another_kind_are_refused(root: Path, field: str, value: Any) -> None:
    if (field, value) == ("files", {}):
        value = {"a": {"dev": 3}}
    rewritten(
        root / "report/index.html",
        lambda page: with_made_from(page, lambda made: made.update({field: value})),
    )
    with pytest.raises(UserError, match=f"made from: {field} is "):
        verify(page=str(root / "report/index.html"), runs=[str(root / "runs")])


def test_two_swapped_files_are_found(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Predictions of one seed in the place of another's, and each run.json says that it is so."""
    first, second = (root / f"runs/new/{seed}/predictions/dev.tfrecord" for seed in (0, 1))
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    for seed in (0, 1):
        path = root / f"runs/new/{seed}/run.json"
        record = json.loads(path.read_text())
        entry = record["evaluation_sets"]["dev"]
        entry["sha256"] = sha256_of_file(path.parent / entry["file"])
        path.write_text(json.dumps(record))
    status, lines = verified(root, capsys)
    assert status == 1
    named = [
        line for line in lines if line.startswith("- another file than the page was made from")
    ]
    right, total = held(lines[0])
    assert right < total  # seeds are paired
    assert len(named) == 2 and "pretrain_seed 0" in named[0] and "pretrain_seed 1" in named[1]


def test_runs_that_were_left_out_or_are_gone_are_found(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_run(root, "new", 7)
    status, (line, finding) = verified(root, capsys)
    # The page's numbers are those of its own runs.
    assert status == 1 and len(set(held(line))) == 1
    assert re.match("- left out .*procedure new, pretrain_seed 7", finding)
    shutil.rmtree(root / "runs/new/7")
    shutil.rmtree(root / "runs/new/0")
    status, (line, finding, *rest) = verified(root, capsys)
    assert status == 1 and re.search("missing .*procedure new, pretrain_seed 0", finding)
    assert rest and len(set(held(line))) == 2


def test_pages_that_say_nothing_of_their_origin_are_refused(root: Path) -> None:
    page = root / "report/index.html"
    page.write_text(page.read_text().replace('id="made-from"', ""))
    with pytest.raises(UserError, match="does not say"):
        verify(page=str(page), runs=[str(root / "runs")])


def registered(root: Path, **changes: Any) -> None:
    content: dict[str, Any] = {
        "runs": 8,
        "plan": plan_hash(read_plan(root)),
        "hypothesis": "New is better.",
        "metric": "pairs/dev/accuracy",
        "stopping_rule": "all_seeds",
        "seeds": {"base": [0, 1, 2, 3], "new": [0, 1, 2, 3]},
        "analysis": {"comparisons": [COMPARISON], "n_resamples": 50, "confidence_level": 0.95},
    }
    register(root, content | changes, done=0)


def registration_on_page(root: Path) -> str:
    shutil.rmtree(root / "report")
    report(run_dir=str(root / "report"), predictions=str(root / "runs"), **SETTINGS)
    page = (root / "report/index.html").read_text()
    found = re.search(r'Registration</th><td class="wraps">([^<]*)<', page)
    assert found is not None
    return found[1]


def test_the_report_says_that_it_is_as_registered(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registered(root)
    said = registration_on_page(root)
    assert "0 of 8 runs" in said and "New is better." in said
    assert said.endswith("pairs/dev/accuracy. As registered.")
    assert verified(root, capsys)[0] == 0
    path = root / "registration.json"
    path.write_text(path.read_text().replace("New is better", "New is worse"))
    status, (_, row, field, file) = verified(root, capsys)
    assert status == 1 and "New is better" in row and '"registration": "' in field
    assert file.startswith("- tables/made_with.json: ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"plan": "0" * 64}, "Differs: the plan"),
        (
            {"metric": "pairs/dev/brier"},
            "Differs: pairs/dev/brier",
        ),
        ({"seeds": {"new": [0, 1]}}, "seeds [0, 1, 2, 3], registered [0, 1]"),
        (
            {"analysis": {"confidence_level": 0.9}},
            "confidence_level is 0.95, registered 0.9",
        ),
        (
            {"analysis": {"comparisons": [{**COMPARISON, "margin": 0.01}]}},
            "Differs: comparisons is",
        ),
    ],
    ids=["plan", "metric", "seeds", "level", "margin"],
)
def test_the_report_says_what_differs(root: Path, change: dict[str, Any], said: str) -> None:
    registered(root, **change)
    assert said in registration_on_page(root)


def test_an_early_look_differs_where_all_seeds_were_to_be_waited_for(root: Path) -> None:
    registered(root)
    shutil.rmtree(root / "runs/new/3")
    said = registration_on_page(root)
    assert "7 of 8 planned" in said and "registered to wait" in said


def test_a_margin_of_a_comparison_is_on_the_page(root: Path) -> None:
    settings = {**SETTINGS, "comparisons": [{**COMPARISON, "margin": 0.05}]}
    report(run_dir=str(root / "other"), predictions=str(root / "runs"), **settings)
    assert "margin" in (root / "other/index.html").read_text()
    wrong = {**SETTINGS, "comparisons": [{**COMPARISON, "margin": -1}]}
    with pytest.raises(UserError, match="margin -1"):
        report(run_dir=str(root / "wrong"), predictions=str(root / "runs"), **wrong)


def test_a_registration_is_written_once(root: Path) -> None:
    registered(root)
    before = (root / "registration.json").read_bytes()
    registered(root)
    with pytest.raises(UserError, match="registered .* metric, stopping_rule"):
        registered(root, metric="pairs/dev/f1", stopping_rule="sequential")
    assert (root / "registration.json").read_bytes() == before
