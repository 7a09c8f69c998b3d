"""The command `verify`: regenerates a report from prediction files and compares it with its page.

multiberts verify results/report/index.html results/runs
"""

from __future__ import annotations

import base64
import difflib
import html
import itertools
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.runs import console
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import check_fields, parse_json_fields, read_bytes
from multiberts.runs.parameters import annotations_of
from multiberts.runs.plan_marker import FILE as PLAN
from multiberts.stats.report.analysis import Truths
from multiberts.stats.report.experiment import ReportedExperiment, experiment_of
from multiberts.stats.report.page import MADE_FROM
from multiberts.stats.report.reporting import files_of_report, report
from multiberts.stats.report.selection import files_of_runs, finished_runs

_Files = Mapping[str, Mapping[str, str]]
_NUMBER = re.compile(r"(?<![\w.])([-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?)(?!\w|\.[0-9])")
_TAG = r"<[^<>]*>"
# HTML parts that are compared as one line, without counting their numbers. Figures contain indented styles.
_BLOCKS = ("<svg", "<script", "<style")
_AROUND_BLOCKS = re.compile(
    r"(?=<(?:svg|script)\b|^<style\b)|(?<=</svg>)|(?<=</script>)|(?<=</style>)(?!\n </defs>)",
    re.MULTILINE,
)
# Ignored rows of *Made with*, on the page and in its tables: their values depend on machine and day, and rows
# on threads exist only if these variables are set.
_FREE_ROW = (
    r'(?m)^((?:<tr><th scope="row">| ")(?!(?:Command|Data|Registration)[<"])[^<"]+'
    r'(?:</th><td class="wraps">|": "))[^<"\n]*'
)
_ROW_ON_THREADS = (
    r'(?m)^(?:<tr><th scope="row">\w+_NUM_THREADS</th><td class="wraps">[0-9,]+</td></tr>'
    r'| "\w+_NUM_THREADS": "[0-9,]+",)\n'
)
_COMMIT = r'>Commit</th><td class="wraps">([0-9a-f]{40})'
_DRAWN_BY = r'>matplotlib</th><td class="wraps">([^<]*)<'
_MOST_BYTES_UNPACKED = 2**28
_MOST_LISTED = 20


def verify(*, page: str, runs: Sequence[str]) -> int:
    """Regenerates a report from prediction files and reports the differences.

    The page contains its settings and the checksums of its input files. The page, its tables and its figures
    are compared with new ones. Changed prediction files, and finished runs that the page left out, are also
    reported. Relative differences up to 1e-9 in long numbers, differences up to 1e-5 points in figures, and
    rows on date, commit, processor and versions are ignored.

    Args:
      page: `index.html` written by `multiberts stats`.
      runs: folders with the finished fine-tuning runs, at any depth.

    Returns:
      0 if nothing differs, else 1.

    Raises:
      UserError: the page is not from this program, its settings are not valid for `multiberts stats`, or
        there are no runs.
    """
    path = Path(page)
    text = read_bytes(path, "give the page of a report").decode(errors="replace")
    made_from = _made_from(text, path)
    there = finished_runs(runs)
    findings = list(_file_findings(made_from["files"], files_of_runs(there)))
    # In the page's order, because lists of seeds depend on it.
    by_name = {run.name: run for run in there}
    of_page = [by_name[name] for name in made_from["files"] if name in by_name]
    numbers = "its numbers cannot be computed from these files"
    try:
        experiment = _experiment(runs) if "up" in made_from else None
        settings, inputs = made_from["settings"], made_from["files"]
        again = files_of_report(of_page, settings, experiment, inputs)
    except UserError as error:
        if not findings:
            raise UserError(f"{path}, made again: {error}") from error
        findings.append(f"{numbers}: {error}")
    else:
        total, wrong, changed, in_figures = _compared(path, again)
        commits = re.findall(_COMMIT, text + again["index.html"].decode())
        if changed + in_figures and len({*commits}) > 1:
            total, wrong, changed, in_figures = _compared(path, again, tables_only=True)
            findings.append(
                f"the page is of commit {commits[0]}, this program of {commits[-1]}: only numbers in tables "
                f"were compared; `git checkout {commits[0]}` and verify again for the rest"
            )
        findings += changed
        drawn_by = re.findall(_DRAWN_BY, text + again["index.html"].decode())
        if in_figures and drawn_by[0] != drawn_by[-1]:
            versions = f"drawn by matplotlib {drawn_by[0]}, and here by {drawn_by[-1]}"
            findings.append(f"figures were {versions}: pip install matplotlib=={drawn_by[0]}")
        findings += in_figures
        numbers = f"{total - wrong:,} of {total:,} numbers hold"
    more = len(findings) - _MOST_LISTED
    listed = findings[:_MOST_LISTED] + [f"and {more} more"] * (more > 0)
    summary = f"{page}: {numbers}, from {counted(len(made_from['files']), 'run')}"
    if findings:
        summary += f"; {counted(len(findings), 'difference')}:"
    console.report("\n- ".join([summary, *listed]))
    return 1 if findings else 0


def _compared(
    page: Path, again: Mapping[str, bytes], *, tables_only: bool = False
) -> tuple[int, int, list[str], list[str]]:
    """Returns the counts of numbers and of wrong ones, and the differences, those in figures apart."""
    total, wrong, findings, in_figures = 0, 0, list[str](), list[str]()
    for name in sorted(again, key=lambda name: "/" in name):  # pages first
        file = page if name == "index.html" else page.parent / name
        if file.is_file() and not name.endswith((".png", ".pdf", *[".svg"] * tables_only)):
            texts = [_comparable(name, data) for data in (file.read_bytes(), again[name])]
            if tables_only and name.endswith(".html"):
                texts = [*map(_rows, texts)]
            total += len(_numbers(texts[0]))
            for is_figure, difference, count in _differences(*texts):
                if count or not tables_only:
                    (in_figures if is_figure else findings).append(f"{name}{difference}")
                wrong += count
    return total, wrong, findings, in_figures


def _rows(text: str) -> str:
    """Returns the headings of a page, and the rows of its tables as lines of cells without markup."""
    text = re.sub(r"(?s)<(svg|script|style)\b.*?</\1>", "", text)
    parts = re.findall(r"(?s)<h[1-3][ >].*?</h[1-3]>|<tr[ >].*?</tr>", text)
    cells = (re.findall(r"(?<=>)[^<>\n]+", part) for part in parts)
    return "\n".join(
        ", ".join([part] if part[1] == "h" else row) for part, row in zip(parts, cells, strict=True)
    )


def _made_from(text: str, path: Path) -> dict[str, Any]:
    """Returns the settings and files stored in a page; checks them like the command `stats`."""
    start = text.find(MADE_FROM)
    cure = "give the index.html of a report that `multiberts stats` of this version wrote"
    if start < 0:
        raise UserError(
            f"{path} does not say what it was made from: only the page of `multiberts stats` does, not those "
            "of `compare` or `stats learned`; give the index.html of a report"
        )
    start += len(MADE_FROM)
    where = f"{path}, what it was made from"
    kinds: dict[str, Any] = {"settings": Mapping[str, Any], "files": _Files}
    kinds |= {"up": str | None, "registration": str | None}
    made_from = parse_json_fields(text[start : text.find("</script>", start)], where, kinds, cure)
    kinds = {**annotations_of(report), "truth": Truths}
    del kinds["run_dir"], kinds["predictions"]
    # The stored settings do not contain defaults.
    check_fields({"figures": "svg", **made_from["settings"]}, kinds, where, cure)
    unknown = sorted(set(made_from["settings"]) - set(kinds))
    if unknown:
        raise UserError(f"{where}: found {unknown[0]!r}, expected {', '.join(kinds)}; {cure}")
    return made_from


def _file_findings(of_page: _Files, there: _Files) -> Iterator[str]:
    """Yields the differences between the files of the page and the files found."""
    for run in sorted({*of_page, *there}):
        if run not in there:
            yield f"missing here: {run}"
        elif run not in of_page:
            yield f"left out by the page: {run}"
        else:
            for name in sorted({*of_page[run], *there[run]}):
                if of_page[run].get(name) != there[run].get(name):
                    yield f"another file than the page was made from: predictions on {name} of {run}"


def _experiment(runs: Sequence[str]) -> ReportedExperiment:
    """Returns the experiment that contains the runs."""
    for report_there in (Path(folder, "report").absolute() for folder in runs):
        for inside in (report_there, *report_there.parents):
            if experiment := experiment_of(inside):
                return experiment
    raise UserError(
        f"the page is of an experiment, and {', '.join(runs)} is in none ({PLAN} is not above it); give the "
        "runs where they were made"
    )


def _comparable(name: str, data: bytes) -> str:
    """Returns a file's text without parts that depend on the machine: origin, hashed names, compression."""
    text = data.decode(errors="replace")
    text = re.sub(_FREE_ROW, r"\1", re.sub(_ROW_ON_THREADS, "", text))
    if name.endswith(".svg"):
        numbers: dict[str, int] = {}  # numbered in order of appearance
        text = re.sub(
            r'(\bid="|href="#|url\(#)([^")]+)',
            lambda name: f"{name[1]}{numbers.setdefault(name[2], len(numbers))}",
            text,
        )
    return re.sub(r"(?<= data-packed>)[A-Za-z0-9+/=]+", _unpacked, text)


def _unpacked(packed: re.Match[str]) -> str:
    """Returns the packed examples of a grid as JSON; other text unchanged."""
    try:
        data = base64.b64decode(packed[0])
        return zlib.decompressobj().decompress(data, _MOST_BYTES_UNPACKED).decode()
    except (ValueError, zlib.error):
        return packed[0]


def _items(text: str) -> list[str]:
    """Returns the lines of a text; a figure, script or style counts as one line."""
    parts = _AROUND_BLOCKS.split(text)
    lines = ([part] if part.startswith(_BLOCKS) else part.splitlines(True) for part in parts)
    return list(itertools.chain(*lines))


def _numbers(text: str) -> list[str]:
    shown = "".join(item for item in _items(text) if not item.startswith(_BLOCKS))
    return _NUMBER.findall(re.sub(_TAG, " ", shown))


def _differences(on_page: str, again: str) -> Iterator[tuple[bool, str, int]]:
    """Yields (is in a figure, description, number of differing values) for each difference.

    Lines with the same number of cells are compared by cell; in a figure, script or style only the first
    different cell is reported.
    """
    items = _items(on_page), _items(again)
    # Align lines that differ only in the last digits.
    keys = [[_NUMBER.sub(lambda m: f"{float(m[0]):.6g}", item) for item in text] for text in items]
    heading = ""
    for _, a, b, c, d in difflib.SequenceMatcher(None, keys[0], keys[1]).get_opcodes():
        lines = [items[0][a:b], items[1][c:d]]
        if b - a != d - c:
            lines = [["".join(group)] for group in lines]
        for pair in zip(*lines, strict=True):
            if above := re.search(r"<h[1-3][^>]*>(.*?)</h[1-3]>", pair[1]):
                heading = f", {html.unescape(re.sub(_TAG, '', above[1]))}"
            cells = [re.split(rf"({_TAG}|,)", item) for item in pair]
            if len(cells[0]) != len(cells[1]):
                cells = [[item] for item in pair]
            is_block, is_figure = pair[0].startswith(_BLOCKS), pair[0].startswith("<svg")
            for texts in zip(*cells, strict=True):
                if _agree(texts[0], texts[1], is_drawn=is_figure and texts[0].startswith("<")):
                    continue
                letters = enumerate(itertools.zip_longest(*texts))
                start = max(0, next(index for index, (x, y) in letters if x != y) - 40)
                here, there = (html.unescape(text[start:])[:120] or "nothing" for text in texts)
                said = f"{', figure' * is_figure}: {here!r} on the page, {there!r} from the files"
                wrong = Counter(_numbers(texts[0])) - Counter(_numbers(texts[1]))
                yield is_figure, heading + said, 0 if is_block else wrong.total()
                if is_block:
                    break


def _agree(on_page: str, again: str, is_drawn: bool) -> bool:
    """Returns whether texts are equal up to digits that depend on the machine."""
    parts = [_NUMBER.split(text) for text in (on_page, again)]

    def agree(left: str, right: str) -> bool:
        digits = max(len(re.sub(r"e.*|\D", "", number).lstrip("0")) for number in (left, right))
        is_rounded = digits < 12 or "." not in left + right
        tolerance = 1e-5 if is_drawn else -1 if is_rounded else 1e-9 * abs(float(right))
        return left == right or abs(float(left) - float(right)) <= tolerance

    return parts[0][::2] == parts[1][::2] and all(map(agree, parts[0][1::2], parts[1][1::2]))
