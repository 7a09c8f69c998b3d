"""Compares predictions of the user's own: the command `compare`, from files to an answer."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multiberts.evaluate.dumps.run_file import find_runs
from multiberts.evaluate.readers.columns import (
    ROLES,
    TEXT_NAMES,
    ColumnNames,
    default_metric,
    described,
)
from multiberts.evaluate.readers.reading import name_of, read_frame
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import write_atomically
from multiberts.runs.parameters import Level, PositiveInt, takes_fields_of
from multiberts.stats.compare.checks import seeds_of
from multiberts.stats.errors import DataError
from multiberts.stats.formats import NONE, Cell, format_cell
from multiberts.stats.metrics import named_metric
from multiberts.stats.presentation import ranking_words, wording
from multiberts.stats.presentation.comparison_tables import (
    full_table,
    summary_table,
    unclear_beyond_zero,
)
from multiberts.stats.presentation.metric_names import metric_name, score_format
from multiberts.stats.presentation.provenance import data_facts
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.reading import from_frame
from multiberts.stats.report.analysis import ReportContent
from multiberts.stats.report.dumps import Dump
from multiberts.stats.report.evidence import (
    ComparedProcedures,
    Pair,
    Request,
    compare_all,
)
from multiberts.stats.report.page import write_page
from multiberts.stats.report.selection import dumps_of_runs, finished_runs
from multiberts.stats.settings import ComparisonSettings, Design, Missing

if TYPE_CHECKING:
    import pandas
    import xarray


def read_predictions(
    path: str, *, task: str | None = None, **columns: str | None
) -> dict[str, xarray.Dataset]:
    r"""Reads predictions or scores of many runs for `compare`, recognised by their content.

    Args:
      path: a table (CSV, TSV, JSON lines, JSON, Parquet), long or with one column per run; a `.npz`
        file; a folder of such files, one per seed; a folder of finished fine-tuning runs; outputs
        of lm-evaluation-harness, Inspect, HELM or Hugging Face `datasets`, one folder per seed (see
        `evaluate.readers.reading.read_frame`).
      task: one of several tasks in there; of finished runs, "<task>/<evaluation set>" or either.
      **columns: names of columns that do not have their usual names: any of `arm`, `seed`, `run`,
        `example`, `prediction`, `score`, `label`, `cluster`.

    Returns:
      By arm (model, method or condition; "" where the file names none), in the order of the file, a
      Dataset with dims (run, example) as `compare` takes it; texts of the examples (`text`,
      `question`, `premise`, ...) are coordinates.

    Raises:
      UserError: the files cannot be read as predictions; the line shows what was found and what to
        give.

    Example:
      >>> from multiberts import stats
      >>> path = getfixture("tmp_path") / "scores.csv"
      >>> _ = path.write_text("id,old_0,old_1,new_0,new_1\na,0,1,1,1\nb,1,0,1,1\n")
      >>> arms = stats.read_predictions(str(path))
      >>> {name: data["score"].values.tolist() for name, data in arms.items()}
      {'old': [[0, 1], [1, 0]], 'new': [[1, 1], [1, 1]]}
    """
    if Path(path).is_dir() and next(iter(find_runs(path)), None) is not None:
        return {dump.name: dump.data for dump in _own_dumps(path, task)}
    names = ColumnNames(**columns)
    frame = read_frame(path, names, task)
    given = {name: name if name in frame else None for name in ("run", "label", "cluster")}
    value = "prediction" if "prediction" in frame else "score"
    options: dict[str, Any] = {"seed": "seed", "example": "example", value: value, **given}
    try:
        if "arm" not in frame:
            return {"": _with_facts(from_frame(frame, **options), frame)}
        arms = from_frame(frame, arm="arm", **options)
        return {
            str(arm): _with_facts(data, frame[frame["arm"] == arm]) for arm, data in arms.items()
        }
    except DataError as error:
        raise UserError(f"{path}: {error}") from error


def _with_facts(data: xarray.Dataset, frame: pandas.DataFrame) -> xarray.Dataset:
    """Returns runs with the texts and facts of their examples as coordinates, and what was read."""
    facts = frame.attrs["identifying"]
    texts = [name for name in frame.columns if str(name).lower() in TEXT_NAMES]
    names = [*dict.fromkeys([*texts, *facts])]
    of_examples = frame.drop_duplicates("example").set_index("example")[names]
    ids = data["example_id"].to_numpy()
    data = data.assign_coords(
        {name: ("example", of_examples.loc[ids, name].to_numpy(object)) for name in names}
    )
    identifying = [*facts, *(["cluster"] if "cluster" in frame else [])]
    return data.assign_attrs({**frame.attrs, "identifying": identifying})


def _own_dumps(path: str, task: str | None) -> list[Dump]:
    """Reads finished fine-tuning runs on one evaluation set, one dump per procedure and step."""
    dumps, _ = dumps_of_runs(finished_runs(path))
    known = {dump.set_name for dump in dumps}
    chosen = [
        dump
        for dump in dumps
        if task is None or task in (dump.set_name, dump.evaluation_set, dump.task)
    ]
    sets = sorted({dump.set_name for dump in chosen})
    if len(sets) != 1:
        found = "no such task" if not sets else f"{len(sets)} evaluation sets"
        raise UserError(
            f"{path}: found {found} ({', '.join(sorted(known)[:20])}); choose one with --task=NAME"
        )
    return chosen


@dataclass(frozen=True, kw_only=True)
class OwnComparison(ColumnNames):
    """What `compare_files` compares, and how.

    Attributes:
      base: predictions or scores: a table (CSV, TSV, JSON lines, JSON, Parquet), long or with one
        column per run; a `.npz` file; a folder of such files, one per seed; a folder of finished
        fine-tuning runs; outputs of lm-evaluation-harness, Inspect, HELM or Hugging Face
        `datasets`, one folder per seed.
      experiment: the same for the other side, or for several.
      metric: a metric such as `accuracy`, `f1`, `matthews_correlation`; by default `mean` of scores,
        and `accuracy` of predictions.
      design: `paired` for runs that share their seeds, `unpaired`, `fixed_baseline`.
      task: one of several tasks in the files.
      arm: column that names the model, method or condition of each row.
      seed: column of seeds.
      run: column that tells several runs of one seed apart, which are averaged.
      example: column of example ids.
      prediction: column of predictions.
      score: column of each example's own score (1 where it is right); of a harness, the metric.
      label: column of labels.
      cluster: column of groups of examples that belong together, such as sentences of one template.
      missing: `omit` leaves a missing prediction out of its run's score, as if it were missing at
        random; `bound` gives the interval that holds whatever the missing ones are.
      confidence: level of the intervals.
      num_bootstrap: bootstrap replicates.
      bootstrap_seed: seed of their draws.
      html: where to write a page with the answer and its figures, one file.
      latex: where to write the table in LaTeX.
      csv: where to write every number.
      json: print every number as JSON instead of text.
    """

    base: str
    experiment: Sequence[str] = ()
    metric: str | None = None
    design: Design = "paired"
    task: str | None = None
    missing: Missing = "refuse"
    confidence: Level = ComparisonSettings.confidence
    num_bootstrap: PositiveInt = ComparisonSettings.num_bootstrap
    bootstrap_seed: int = ComparisonSettings.bootstrap_seed
    html: str | None = None
    latex: str | None = None
    csv: str | None = None
    json: bool = False

    @property
    def columns(self) -> dict[str, str | None]:
        """Returns the names of columns by role."""
        return {role: getattr(self, role) for role in ROLES}

    def of_comparison(self, design: Design) -> ComparisonSettings:
        """Returns the settings of each comparison."""
        return ComparisonSettings(
            design=design,
            num_bootstrap=self.num_bootstrap,
            bootstrap_seed=self.bootstrap_seed,
            confidence=self.confidence,
        )


@takes_fields_of(OwnComparison)
def compare_files(settings: OwnComparison) -> str:
    """Compares predictions or scores of your own models over seeds and examples.

    `multiberts compare base.csv new.csv --metric=f1` compares two files, `multiberts compare
    results.csv` the arms that one file holds. The first arm is the base; with more than two, each
    other is compared with it and p-values are corrected for their number (Holm), and all are ranked,
    with the arms that are tied.

    Args:
      settings: what to compare, and how.

    Returns:
      The finding in words, what was read as what, a table, what to do next, and the files written.

    Raises:
      UserError: a file cannot be read as predictions, or the sides do not fit together.
    """
    inputs = {Path(path).resolve() for path in (settings.base, *settings.experiment)}
    for flag in ("html", "latex", "csv"):
        path = getattr(settings, flag)
        if path is not None and (Path(path).is_dir() or Path(path).resolve() in inputs):
            found = "a directory" if Path(path).is_dir() else "one of the files compared"
            raise UserError(f"--{flag} is {path}, which is {found}; give the name of a new file")
    arms = _arms_of(settings)
    compared = _compare_arms(arms, settings)
    read = what_was_read(arms, compared, settings)
    table = summary_table(compared.items)
    every = full_table(compared.comparisons)
    outputs = (
        (settings.latex, table.latex),
        (settings.csv, every.csv),
    )
    texts = {path: make() for path, make in outputs if path is not None}
    texts |= _pages(compared, settings, read, arms) if settings.html is not None else {}
    for path, text in texts.items():
        write_atomically(path, text)
    if settings.json:
        return _as_json(compared, read)
    answer = _as_text(compared, read)
    return f"{answer}\n\nWritten: {', '.join(texts)}" if texts else answer


def what_was_read(
    arms: Mapping[str, xarray.Dataset], compared: ComparedProcedures, settings: OwnComparison
) -> str:
    """Returns one line on what was read as what, from which files, and what was left out."""
    alike: dict[str, list[str]] = {}
    for name, data in arms.items():
        read = data.attrs.get("columns")
        text = "runs of multiberts finetune, by their run.json" if read is None else described(read)
        alike.setdefault(text, []).append(name)
    columns = "; ".join(
        f"{', '.join(names)}: {text}" if len(alike) > 1 else text for text, names in alike.items()
    )
    files = [*dict.fromkeys(file for data in arms.values() for file in data.attrs.get("files", ()))]
    more = f" and {len(files) - 4} more files" if len(files) > 4 else ""
    by_size: dict[str, list[str]] = {}
    for name, data in arms.items():
        numbers = {
            "example": data.sizes["example"],
            "seed": len(seeds_of(data)),
            "run": data.sizes["run"],
        }
        size = ", ".join(counted(number, what) for what, number in numbers.items())
        by_size.setdefault(size, []).append(name)
    sizes = "; ".join(
        f"{', '.join(names)}: {size}" if len(by_size) > 1 else size + " each" * (len(arms) > 1)
        for size, names in by_size.items()
    )
    unused = [
        *dict.fromkeys(name for data in arms.values() for name in data.attrs.get("unused", ()))
    ]
    left_out = [f"column {name!r}" for name in unused]
    for item in compared.comparisons:
        for side in (item.base, item.experiment):
            if side is not None and side.left_out:
                seeds = ", ".join(map(str, side.left_out))
                left_out.append(f"{counted(len(side.left_out), 'seed')} of {side.name} ({seeds})")
    measured = compared.comparisons[0].metric
    scores = {data.attrs.get("columns", {}).get("score") for data in arms.values()} - {None}
    of_column = (
        f" of {' and '.join(map(repr, sorted(scores)))}" if measured == "mean" and scores else ""
    )
    return (
        f"{columns}; from {', '.join(files[:4]) or settings.base}{more}; {sizes}; metric "
        f"{metric_name(measured)}{of_column}, task {_task_of(arms, settings)}; "
        f"left out: {', '.join(dict.fromkeys(left_out)) or 'nothing'}."
    )


def _task_of(arms: Mapping[str, xarray.Dataset], settings: OwnComparison) -> str:
    named = {str(data.attrs["task"]) for data in arms.values() if data.attrs.get("task")}
    return settings.task or " and ".join(sorted(named)) or f"not named ({Path(settings.base).name})"


def _arms_of(settings: OwnComparison) -> dict[str, xarray.Dataset]:
    """Returns the arms of all paths, the base first."""
    paths = [settings.base, *settings.experiment]
    if len(set(paths)) < len(paths):
        raise UserError(f"found a path twice among {', '.join(paths)}; give each once")
    found = [read_predictions(path, task=settings.task, **settings.columns) for path in paths]
    if len(paths) == 1:
        return {name or name_of(paths[0]): data for name, data in found[0].items()}
    arms: dict[str, xarray.Dataset] = {}
    for path, own in zip(paths, found, strict=True):
        if len(own) != 1:
            raise UserError(
                f"{path} holds {counted(len(own), 'arm')} ({', '.join(own)}), expected one where "
                "several paths are given; give this path alone, or one arm per path"
            )
        [(name, data)] = own.items()
        name = name or name_of(path)
        arms[name if name not in arms else path] = data
    return arms


def _compare_arms(
    arms: Mapping[str, xarray.Dataset], settings: OwnComparison
) -> ComparedProcedures:
    """Compares every other arm with the first; a single arm is described."""
    (base_name, _), *others = arms.items()
    metric = settings.metric or max(  # of both kinds, the mean
        default_metric(data["prediction"].to_numpy() if "prediction" in data else None)
        for data in arms.values()
    )
    named_metric(metric)  # refuses a wrong name before anything is read
    evaluation_set = settings.task or Path(settings.base).name
    dumps = {
        name: Dump(
            "", evaluation_set, name, None, (metric,), data, settings.missing,
            "cluster" if "cluster" in data.coords else None,
        )
        for name, data in arms.items()
    }  # fmt: skip
    pairs = [
        Pair((dumps[base_name], dumps[name]), metric, (base_name, name),
             f"{name} against {base_name}", str(number))
        for number, (name, _) in enumerate(others, start=1)
    ]  # fmt: skip
    if not others:
        pairs = [Pair((dumps[base_name],), metric, (base_name, ""), base_name, "1")]
    title = pairs[0].name if len(pairs) == 1 else f"All against {base_name}"
    how = settings.of_comparison(settings.design if others else "single")
    return compare_all([Request(title, how, pairs)])[0]


def _pages(
    compared: ComparedProcedures,
    settings: OwnComparison,
    read: str,
    arms: Mapping[str, xarray.Dataset],
) -> dict[str, str]:
    """Returns the page of a report that has these comparisons alone, and those that it links to."""
    bootstrap = settings.of_comparison(compared.comparisons[0].design)
    names = {
        role: {str(data.attrs.get("columns", own).get(role)) for data in arms.values()}
        for role, own in (("seed", {"seed": "pretrain_seed"}), ("run", {"run": "finetune_seed"}))
    }
    content = ReportContent(
        [compared], [], [], [], [],
        # Only what the data name is claimed in a paper.
        seeds_are="pre-training seeds" if names["seed"] == {"pretrain_seed"} else "seeds",
        runs_are="fine-tuning runs" if names["run"] == {"finetune_seed"} else "runs",
    )  # fmt: skip
    path = Path(settings.html or "index.html")
    places = [Path(given) for given in (settings.base, *settings.experiment)]
    files = [
        file for place in places for file in ([place] if place.is_file() else place.rglob("*"))
    ]
    outputs = {Path(given).resolve() for given in (settings.latex, settings.csv) if given}
    data = [
        file
        for file in files
        if file.is_file() and file.suffix != ".html" and file.resolve() not in outputs
    ]
    made_by = {
        "Command": "multiberts " + shlex.join(sys.argv[1:]),
        "Read": read,
        **data_facts(data, "the files compared"),
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = write_page(
            folder, compared.name, content, bootstrap, "dev", made_by, name=path.stem
        )
        pages = [file for file in written if file.endswith(".html")]
        return {
            str(path.with_name(file)): (folder / file).read_text(encoding="utf-8") for file in pages
        }


def _as_json(compared: ComparedProcedures, read: str) -> str:
    table = full_table(compared.comparisons)
    records: list[dict[str, Any]] = [
        dict(zip(table.columns, row, strict=True)) for row in table.rows
    ]
    ranked = {arm.name: arm for ranking in compared.rankings for arm in ranking.arms}
    for record, item in zip(records, compared.items, strict=True):
        record["p_holm"] = item.adjusted
        record["read"] = read
        for side in ("base", "experiment") if ranked else ():
            arm = ranked[str(record[f"{side}_name"])]
            record[f"{side}_ranks"] = [arm.rank_low, arm.rank_high]
            record[f"{side}_groups"] = list(arm.groups)
    return json.dumps(records, indent=2, default=str)


def _as_text(compared: ComparedProcedures, read: str) -> str:
    """Returns the findings, a table of all, what more would be needed, and the warnings once."""
    items = compared.comparisons
    findings = [wording.finding(one.comparison, one.adjusted) for one in compared.items]
    metric, level = items[0].metric, f"{items[0].confidence:.0%} CI"  # one of all items
    records: list[dict[str, Cell]] = [
        {
            "Compared": item.name, "Base": item.base.estimate,
            "Experiment": item.experiment.estimate, "Difference": item.estimate, level: item.t,
            "p": item.p_t.two_sided if item.p_t else None, "p (Holm)": one.adjusted,
            "Result": one.result,
        }
        for item, one in zip(items, compared.items, strict=True)
        if item.experiment is not None
    ]  # fmt: skip
    formats = {
        **dict.fromkeys(("Base", "Experiment"), score_format(metric)),
        **dict.fromkeys(("Difference", level), score_format(metric, True)),
        **dict.fromkeys(("p", "p (Holm)"), "p"),
    }
    table = Table.from_records(records, formats) if records else None
    warned = dict.fromkeys(
        text for item in items for text in wording.warnings(item, len(items) == 1)
    )
    parts = ["\n".join(findings), f"Read: {read}"]
    if table is not None:
        parts.append(_aligned(table))
        parts += [*filter(None, [unclear_beyond_zero(compared.items)])]
    for ranking in compared.rankings:
        parts += [ranking_words.finding(ranking), _aligned(ranking.table())]
        parts += [f"Note: {text}" for text in ranking_words.notes(ranking)[:1]]
    limits = [*filter(None, dict.fromkeys(map(wording.unseen_failures, items)))]
    for item, one in zip(items, compared.items, strict=True):
        name = f"{item.name}: " if len(items) > 1 else ""
        answers = wording.short_answers_in_words(item, one.adjusted)
        parts += [name + text for text in answers if text not in limits]
    parts += limits
    parts += [f"Note: {text}" for text in compared.unranked]
    parts += [f"Note: {text}" for text in warned]
    return "\n\n".join(parts)


def _aligned(table: Table) -> str:
    """Returns a table as columns of text."""
    cells = [
        [format_cell(cell, table.formats.get(name, "")) if cell is not None else NONE
         for name, cell in zip(table.columns, row, strict=True)]
        for row in table.rows
    ]  # fmt: skip
    rows = [table.headings, *cells]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
