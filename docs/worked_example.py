"""The worked example: real predictions of several seeds, taken apart section by section.

    python docs/worked_example.py                                   # the same sections on made-up data
    python docs/worked_example.py --data FOLDER                     # prints the page
    python docs/worked_example.py --data FOLDER --section agreement # prints what one section shows
    python docs/worked_example.py --data FOLDER --write             # writes the page and its figures

The prose is in docs/worked_example.template.md; every number is printed by a
function in docs/worked_example_parts/.
FOLDER holds multiseed/, hans/ and glue/, as SOURCES.md there describes them.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from multiberts.docs.worked_example_parts.comparisons import (
    corrections,
    decay,
    fixed_baseline,
    forest,
    groups,
    looks,
    loss,
    single_tests,
    smallest_to_largest,
)
from multiberts.docs.worked_example_parts.data import Data, load, sample
from multiberts.docs.worked_example_parts.intervals import (
    clusters,
    coverage,
    intervals,
    other_metrics,
    scopes,
)
from multiberts.docs.worked_example_parts.plans import (
    detectable,
    enough_seeds,
    plan_inputs,
    power,
    runs_per_seed,
)
from multiberts.docs.worked_example_parts.seeds import (
    agreement,
    components,
    components_from_margins,
    hundred_runs,
    published_agreement,
    sources,
    subcases,
)
from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import save_figure
from multiberts.runs.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
TEMPLATE = HERE / "worked_example.template.md"
PAGE = HERE / "worked_example.md"


EXIT_USER_ERROR = 2  # as runs.command_line.command has it


SECTIONS: dict[str, Callable[[Data], str]] = {
    section.__name__: section
    for section in (
        sources, agreement, published_agreement, subcases, components, components_from_margins,
        hundred_runs, scopes, clusters, intervals, coverage, other_metrics, groups, corrections,
        fixed_baseline, decay, single_tests, loss, plan_inputs, detectable, enough_seeds,
        runs_per_seed, looks,
    )
}  # fmt: skip
FIGURES: dict[str, Callable[[Data], Figure]] = {
    "forest": forest,
    "decay": smallest_to_largest,
    "power": power,
}


def page(data: Data, template: str) -> str:
    """The page: `{{name}}` in the template becomes what a section prints, and where its code is."""

    def filled(place: re.Match) -> str:
        section = SECTIONS[place[1]]
        part = f"docs/worked_example_parts/{section.__module__.rpartition('.')[2]}.py"
        command = f"`python docs/worked_example.py --data FOLDER --section {place[1]}`"
        return f"In `{part}`, {command} prints\n\n{section(data).strip()}"

    return re.sub(r"^\{\{(\w+)\}\}$", filled, template, flags=re.MULTILINE)


def write(data: Data) -> None:
    """Writes the page and its figures."""
    text = page(data, TEMPLATE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for name, make in FIGURES.items():
            image = save_figure(make(data), Path(folder) / name)[0]
            write_atomically(HERE / f"worked_example_{name}.png", image.read_bytes())
    write_atomically(PAGE, text)


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status: 2, with one line, where the data are not there."""
    parser = argparse.ArgumentParser(description="The worked example of the statistics library.")
    parser.add_argument(
        "--data", type=Path, help="holds multiseed/, hans/, glue/; otherwise data are made up"
    )
    parser.add_argument("--section", choices=SECTIONS, help="print what this section shows")
    parser.add_argument("--write", action="store_true", help="write the page and its figures")
    options = parser.parse_args(arguments)
    if options.write and options.data is None:
        parser.error("--write needs --data: the page is about real predictions")
    try:
        data = sample() if options.data is None else load(options.data)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    if options.section:
        print(SECTIONS[options.section](data), end="")
    elif options.write:
        write(data)
    else:
        print(page(data, TEMPLATE.read_text(encoding="utf-8")), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
