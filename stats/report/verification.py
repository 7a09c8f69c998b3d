"""The command `verify`: a report, made again from the prediction files, number by number.

multiberts verify results/report/index.html results/runs
"""

from __future__ import annotations

import difflib
import html
import re
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.runs import console
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import parse_json_fields, read_bytes, sha256_of_file
from multiberts.runs.plan_marker import FILE as PLAN
from multiberts.runs.plan_marker import read_plan
from multiberts.runs.registration import FILE as REGISTRATION
from multiberts.stats.report.analysis import analyse
from multiberts.stats.report.experiment import ReportedExperiment
from multiberts.stats.report.page import MADE_FROM, MADE_WITH, write_page
from multiberts.stats.report.reporting import requests_of
from multiberts.stats.report.selection import FinishedRun, files_of_runs, finished_runs
from multiberts.stats.settings import ComparisonSettings

_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_FIGURE = re.compile(r"<svg.*?</svg>", re.DOTALL)
# The section on what computed the page is not compared.
_MADE_WITH = re.compile(r'<h2 id="made-with">.*', re.DOTALL)
_ADDRESS = re.compile(r' href="[^"]*"')
_MOST_LISTED = 20


def verify(*, page: str, runs: Sequence[str]) -> int:
    """Makes a report again from prediction files, and says which of its numbers hold.

    The page holds its settings and the checksums of its files. Found are digits that were changed, in the
    page or in its tables, prediction files that are not those that the page was made from, and finished runs
    that it left out.

    Args:
      page: the `index.html` that `multiberts stats` wrote.
      runs: folders with the finished fine-tuning runs, at any depth.

    Returns:
      0 where everything holds, else 1.

    Raises:
      UserError: the page is none of this program's, or there are no runs.
    """
    path = Path(page)
    text = read_bytes(path, "give the page of a report").decode(errors="replace")
    made_from = _made_from(path, text)
    there = finished_runs(runs)
    findings = list(_file_findings(made_from["files"], files_of_runs(there)))
    experiment = _experiment(made_from, runs)
    if experiment is not None and "registration" in made_from:
        file = experiment.root / REGISTRATION
        if not file.is_file() or sha256_of_file(file) != made_from["registration"]:
            findings.append(f"{file} is not the registration that the page names")
    # In the order that the page had them in, which lists of seeds keep.
    by_name = {run.name: run for run in there}
    own = [by_name[name] for name in made_from["files"] if name in by_name]
    numbers = "its numbers cannot be computed from these files"
    with tempfile.TemporaryDirectory() as folder:
        try:
            written = _make_again(Path(folder), path.stem, own, made_from, experiment)
        except UserError as error:
            findings.append(f"{numbers}: {error}")
        else:
            total, wrong = 0, 0
            for name in sorted(written, key=lambda name: "/" in name):  # pages first
                shows_results = not name.startswith("figures/") and not name.endswith(MADE_WITH)
                if shows_results and (path.parent / name).is_file():
                    given = (path.parent / name).read_text(encoding="utf-8", errors="replace")
                    again = (Path(folder) / name).read_text(encoding="utf-8")
                    found = _differences(_results(given), _results(again))
                    findings += [f"{name}{where}" for where, _ in found]
                    total += len(_numbers(_results(given)))
                    wrong += sum(count for _, count in found)
            numbers = f"{total - wrong:,} of {total:,} numbers hold"
    lines = [
        f"{page}: {numbers}, from {counted(len(made_from['files']), 'run')}",
        *(f"- {finding}" for finding in findings[:_MOST_LISTED]),
    ]
    if len(findings) > _MOST_LISTED:
        lines.append(f"- and {len(findings) - _MOST_LISTED} more")
    console.report("\n".join(lines))
    return 1 if findings else 0


def _made_from(path: Path, text: str) -> dict[str, Any]:
    start = text.find(MADE_FROM)
    cure = "give the index.html of a report that `multiberts stats` of this version wrote"
    if start < 0:
        raise UserError(f"{path} does not say what it was made from; {cure}")
    start += len(MADE_FROM)
    content = text[start : text.find("</script>", start)]
    kinds = {"settings": Mapping[str, Any], "files": Mapping[str, Mapping[str, str]]}
    return parse_json_fields(content, f"{path}, what it was made from", kinds, cure)


def _file_findings(
    given: Mapping[str, Mapping[str, str]], there: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yields what differs between the files of the page and those that are there."""
    for run in sorted({*given, *there}):
        if run not in there:
            yield f"missing here: {run}"
        elif run not in given:
            yield f"left out by the page: {run}"
        else:
            for name in sorted({*given[run], *there[run]}):
                if given[run].get(name) != there[run].get(name):
                    yield f"another file than the page was made from: predictions on {name} of {run}"


def _experiment(made_from: Mapping[str, Any], runs: Sequence[str]) -> ReportedExperiment | None:
    """Returns the experiment that the page is part of, if it is."""
    if "up" not in made_from:
        return None
    for folder in map(Path, runs):
        for root in (folder.absolute(), *folder.absolute().parents):
            if (root / PLAN).is_file():
                return ReportedExperiment(root, str(made_from["up"]), read_plan(root))
    raise UserError(
        f"the page is of an experiment, and {', '.join(runs)} is in none ({PLAN} is not above it); give the "
        "runs where they were made"
    )


def _make_again(
    folder: Path,
    name: str,
    runs: Sequence[FinishedRun],
    made_from: Mapping[str, Any],
    experiment: ReportedExperiment | None,
) -> list[str]:
    """Writes the page from the runs, and returns its files."""
    settings = made_from["settings"]
    how = ComparisonSettings(
        **{name: settings[name] for name in ("n_resamples", "rng", "confidence_level")}
    )
    rule = settings["learning_rate_rule"]
    requests = requests_of(runs, settings["comparisons"])
    names = settings.get("names")
    content = analyse(runs, requests, settings["truth"], how, rule, experiment, names)
    return write_page(folder, settings["title"], content, how, rule, {}, name)


def _results(text: str) -> str:
    """Returns what a page shows as results; other files stay as they are."""
    if "<main>" not in text:
        return text
    shown = text.partition("<main>")[2].partition("</main>")[0]
    return _ADDRESS.sub("", _MADE_WITH.sub("", shown))


def _numbers(text: str) -> list[str]:
    return _NUMBER.findall(re.sub(r"<[^>]*>", " ", _FIGURE.sub("", text)))


def _differences(given: str, again: str) -> list[tuple[str, int]]:
    """Returns what differs, in words, each with how many numbers of the page it is."""
    found: list[tuple[str, int]] = []
    figures: list[list[str]] = [_FIGURE.findall(text) for text in (given, again)]
    # Each figure is one difference at most, and their lines are left out of the search.
    lines = [_FIGURE.sub("<figure>", text).splitlines() for text in (given, again)]
    for number, pair in enumerate(zip(*figures, strict=False), start=1):
        if pair[0] != pair[1]:
            found.append((f": figure {number} is another", 0))
    heading = ""
    matcher = difflib.SequenceMatcher(None, lines[0], lines[1], autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            for line in lines[0][a:b]:
                heading = _heading(line) or heading
            continue
        for one, other in _pairs(lines[0][a:b], lines[1][c:d]):
            heading = _heading(one) or heading
            here, there = (
                repr(" ".join(html.unescape(text).split())[:120] or "nothing")
                for text in (one, other)
            )
            wrong = Counter(_numbers(one)) - Counter(_numbers(other))
            place = f", {heading}" if heading else ""
            said = f"{place}: {here} on the page, {there} from the files"
            found.append((said, wrong.total()))
    return found


def _heading(line: str) -> str:
    found = re.search(r"<h[1-3][^>]*>(.*?)</h[1-3]>", line)
    return html.unescape(re.sub(r"<[^>]*>", "", found[1])) if found else ""


def _pairs(given: Sequence[str], again: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields the texts that differ between some lines and those in their place, cell by cell."""
    if len(given) != len(again):
        yield "\n".join(given), "\n".join(again)
        return
    for one, other in zip(given, again, strict=True):
        cells = [re.split(r"(<[^>]*>|,)", line) for line in (one, other)]
        if len(cells[0]) != len(cells[1]):
            yield one, other
            continue
        yield from (pair for pair in zip(*cells, strict=True) if pair[0] != pair[1])
