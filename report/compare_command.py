"""The command `compare`: reads a user's predictions and writes the answer."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from multiberts.evaluate.metrics.register import counted_metrics, known_name, metrics_by_task
from multiberts.evaluate.readers.columns import SliceNames
from multiberts.evaluate.readers.log_folders import only_task
from multiberts.evaluate.readers.rows import BY_TIME, ArmTable
from multiberts.report.analysis import ReportContent
from multiberts.report.answers.listed import ANSWERS, asked
from multiberts.report.arms_of_files import (
    ToldSense,
    columns_of_each,
    metric_of_arms,
    tasks_of,
    with_labels,
)
from multiberts.report.compare_output import (
    as_json,
    as_text,
    tables_of_answers,
    what_was_read,
)
from multiberts.report.evidence import ComparedArms, Pair, Request, compare_all
from multiberts.report.page import page_files
from multiberts.report.prediction_sets import PredictionSet
from multiberts.report.presentation.comparison_tables import full_table, summary_table
from multiberts.report.presentation.provenance import data_facts
from multiberts.report.selection import SEEDS, SeedKind
from multiberts.runs.errors import UserError, counted
from multiberts.runs.files import MARK, check_output, write_outputs
from multiberts.runs.parameters import (
    Level,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Seed,
    takes_fields_of,
)
from multiberts.stats.compare.arms import ManyDesign
from multiberts.stats.reading import table_of
from multiberts.stats.settings import ComparisonSettings, Design, Missing, Resample


@dataclass(frozen=True, kw_only=True)
class FileComparison(SliceNames, ToldSense):
    """Settings of `compare_files`.

    Attributes:
      results: predictions or scores, as a table (CSV, TSV, JSON lines, JSON, Parquet), long or with one
        column per run; arrays (`.npz`, `.npy`); a folder of such files, one per seed, whose names say seed,
        arm and task (`base_seed0.csv`, `base/seed_0/rte.csv`); a folder of finished fine-tuning runs; folders
        of logs of lm-evaluation-harness, Inspect or HELM, where several logs of one model are repeated
        evaluations, or seeds if their folders say so (`seed_0`); Hugging Face `datasets`.
      experiment: the same for one or more other arms; or further seeds, if names differ in the seed
        (`base_seed*.csv new_seed*.csv`).
      labels: table of ids and labels, which replace the labels in the files; `example` and `label` may name
        its columns.
      base: reference arm of all comparisons; by default the first of two, and none of more.
      metric: a metric such as `accuracy`, `f1`, `matthews_correlation`; by default `mean` of scores,
        and `accuracy` of predictions. For several tasks one metric each, `MRPC:accuracy+f1,accuracy`; two
        metrics of a task are averaged. `glue`: GLUE's metrics.
      html: path of a self-contained HTML page to write, with the answer and its figures.
      latex: path of a LaTeX table to write.
      csv: path of a CSV file to write, with all numbers.
      json: print all numbers as JSON instead of text.
      design: `paired` for runs that share their seeds (default, unless it leaves out more seeds than it
        keeps), `unpaired`, `fixed_baseline`. Repeated evaluations are always unpaired.
      resample: `both`; `examples` holds the seeds fixed, so the result is about these seeds only (default for
        one run of each arm); `seeds` holds the examples fixed (default for one score per run).
      seeds: training stage whose seeds count, for finished runs: `pretrain`, or `finetune`, which compares
        single checkpoints; other files have a column of seeds.
      step: pre-training steps of finished runs to compare; by default the last of each procedure.
      names: names of the arms in text, page and LaTeX, in the order of the files: "RoBERTa,Ours".
      task: one of several tasks in the files; by default all, and their mean.
      task_name: name of the task in text, page and LaTeX.
      missing: `omit` leaves a missing prediction out of its run's score, as if missing at random.
      less_is_better: lower scores are better. By default the name of their column decides (`test_loss`,
        `latency_ms`, `accuracy`); for other names nothing is called better.
      more_is_better: higher scores are better.
      confidence_level: level of the intervals.
      margin: largest irrelevant difference, in points for scores in per cent; each arm is tested for
        non-inferiority and for equality within this margin.
      by: column that splits the examples into slices for separate comparisons: a category, a language,
        `label`, or `length` (number of words); numbers are cut at their quartiles.
      seed_sd: standard deviation over seeds for arms with one seed, in points for scores in per cent:
        `0.8`, or `0.8/24` with its degrees of freedom. Seeds are then not paired.
      arm: column of the model, method or condition of each row; for this and the other columns give one name
        for all files, or one per file, separated by commas. `none` if no column says it.
      seed: column of seeds; `columns` (if no column has that name) if there is one column per seed with the
        seed's number at the end of its name (`base_0`).
      run: column that distinguishes several runs of one seed, which are averaged.
      example: column of example ids.
      prediction: column of predictions.
      score: column of example scores (1 for a right answer); for a harness the metric.
      label: column of labels.
      cluster: column of groups of related examples, such as sentences of one template.
      where: rows to use, `split=test`, or several conditions, `split=test,epoch=last`: `last` is the largest
        number of each run.
      n_resamples: bootstrap replicates.
      rng: number that identifies the draws: equal numbers give equal draws.
    """

    results: str
    experiment: Sequence[str] = ()
    labels: str | None = None
    base: str | None = None
    metric: str | None = None
    html: str | None = None
    latex: str | None = None
    csv: str | None = None
    json: bool = False
    design: Design | None = None
    resample: Resample | None = None
    seeds: SeedKind = "pretrain"
    step: Sequence[NonNegativeInt] = ()
    names: Sequence[str] = ()
    task: str | None = None
    task_name: str | None = None
    missing: Missing = "refuse"
    confidence_level: Level = ComparisonSettings.confidence_level
    margin: PositiveFloat | None = None
    seed_sd: str | None = None
    n_resamples: PositiveInt = ComparisonSettings.n_resamples
    rng: Seed = ComparisonSettings.rng

    @property
    def columns(self) -> dict[str, str | None]:
        """Returns the names of columns of the predictions, by role."""
        names = {field.name: getattr(self, field.name) for field in fields(SliceNames)}
        return names | {"label": self.label if self.labels is None else None}

    @property
    def inputs(self) -> list[str]:
        """Returns all input paths."""
        return [self.results, *self.experiment, *([self.labels] if self.labels else [])]

    def of_comparison(self, design: Design | None) -> ComparisonSettings:
        return ComparisonSettings(
            design, self.resample, self.n_resamples, self.rng, self.confidence_level
        )


@takes_fields_of(FileComparison)
def compare_files(settings: FileComparison) -> str:
    """Compares predictions or scores of your models over seeds and examples.

    `multiberts compare base.csv new.csv --metric=f1` compares two files; `multiberts compare results.csv`
    compares the arms in one file. Of two arms, the first is the base. Three or more are ranked, with ties;
    with `--base` each is also compared with that arm, with p corrected for the number of comparisons (Holm).

    Args:
      settings: files to compare and settings of the comparison.
    """
    inputs = {Path(path).resolve() for path in settings.inputs}
    for flag in ("html", "latex", "csv"):
        path = getattr(settings, flag)
        if path is not None and (Path(path).is_dir() or Path(path).resolve() in inputs):
            taken_by = "a directory" if Path(path).is_dir() else "one of the files compared"
            raise UserError(f"--{flag} is {path}, which is {taken_by}; give the name of a new file")
        if path is not None:
            check_output(path)
    paths = [settings.results, *settings.experiment]
    read_tasks = partial(
        tasks_of, paths, settings.task, seeds=settings.seeds, steps=settings.step, told=settings
    )
    tasks = read_tasks(settings.columns)
    if known_name(settings.metric or "") == "loss" and settings.score is None:
        # Columns of scores are ignored by default if there are predictions and labels.
        reads = [table.read for arms in _tables(tasks).values() for table in arms.values()]
        losses = [name for read in reads for name in read.unused if name.lower() == "loss"]
        if losses:
            settings = replace(settings, score=losses[0])
            tasks = read_tasks(settings.columns)
    if settings.names:
        tasks = _renamed(tasks, settings.names)
    if settings.labels is not None:
        has_metric = settings.metric is not None
        only_task([*tasks], settings.results)
        tasks = {
            task: with_labels(arms, settings.labels, settings, has_metric=has_metric)
            for task, arms in tasks.items()
        }
    tables = _tables(tasks)
    compared = _compare_tasks(tasks, settings)
    read = what_was_read(tables, compared, settings.results, settings.task_name or settings.task)
    texts = {}
    if settings.latex is not None:
        shown = [summary_table(compared.items), *tables_of_answers(compared)]
        texts[settings.latex] = f"% {MARK}\n" + "\n".join(table.latex() for table in shown)
    if settings.csv is not None:
        answers = [item.answers for item in compared.items]
        texts[settings.csv] = full_table(compared.comparisons, answers, compared.without_base).csv()
    texts |= _pages(compared, settings, read, tables) if settings.html is not None else {}
    if texts:
        write_outputs({Path(path): text for path, text in texts.items()})
    if settings.json:
        return as_json(compared, read)
    answer = as_text(compared, read)
    return f"{answer}\n\nWritten: {', '.join(texts)}" if texts else answer


def _tables(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, ArmTable]]:
    return {
        task: {name: table_of(name, data) for name, data in arms.items()}
        for task, arms in tasks.items()
    }


def _renamed(
    tasks: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    arms = dict.fromkeys(name for arms_of in tasks.values() for name in arms_of)
    if len({*names}) != len(arms) or len(names) != len(arms):
        raise UserError(
            f"--names={','.join(names)} holds {counted(len({*names}), 'name')}, but there are {len(arms)} "
            f"arms ({', '.join(arms)}); give one name for each, in this order"
        )
    new = dict(zip(arms, names, strict=True))
    return {
        task: {new[name]: data for name, data in arms_of.items()} for task, arms_of in tasks.items()
    }


def _compare_tasks(
    tasks: Mapping[str, Mapping[str, Any]], settings: FileComparison
) -> ComparedArms:
    """Compares each arm with the base on each task, or describes a single arm."""
    every_arm = [*dict.fromkeys(name for arms in tasks.values() for name in arms)]
    if settings.base is not None and settings.base not in every_arm:
        arms_read = ", ".join(every_arm)
        raise UserError(f"found no arm --base={settings.base}, only {arms_read}; give one of them")
    [by, *_] = columns_of_each([settings.results, *settings.experiment], {"by": settings.by})
    questions = {kind.parameter: getattr(settings, kind.parameter, None) for kind in ANSWERS} | by
    ranked = _design_of_ranking(settings, every_arm, questions)
    base_name = every_arm[0] if settings.base is None else settings.base
    others = [name for name in every_arm if name != base_name]
    try:
        metrics = metrics_by_task(settings.metric, [*tasks])
    except ValueError as error:
        raise UserError(str(error)) from error
    by_arm: dict[str, list[Pair]] = {name: [] for name in (every_arm if ranked else others or [""])}
    lacking: list[str] = []
    # A set of several files' examples is not called by the file of the base.
    unnamed = "all examples" if settings.experiment else Path(settings.results).name
    for task, arms in tasks.items():
        called = task or settings.task_name or settings.task or unnamed
        # Tasks of finished runs have several evaluation sets, treated as in a report.
        of_task = [*getattr(next(iter(arms.values())), "attrs", {}).get("metrics", ())]
        run_task, _, set_name = (task if of_task else "").partition("/")
        every = metrics[task]
        if every is None and run_task:
            every = counted_metrics(run_task, of_task)
        every = every if isinstance(every, tuple) else (every,)
        measures = [metric_of_arms(arms, metric) for metric in every]
        sets = {
            name: PredictionSet(
                run_task or task, set_name or called, name, None, (*measures,), data, settings.missing,
                "cluster" if "cluster" in table_of(name, data).of_examples else None,
            )
            for name, data in arms.items()
        }  # fmt: skip
        lacking += [f"{name} on {task}" for name in (base_name, *others) if name not in sets]
        for name, arm_pairs in by_arm.items():
            arm_names = [name] if ranked else [base_name, *([name] if name else [])]
            if not {*arm_names} <= {*sets}:
                continue
            pair = [sets[arm_name] for arm_name in arm_names]
            title = " against ".join(reversed(arm_names))
            arm_pairs += [
                Pair(
                    pair, measure, (arm_names[0], "" if ranked else name), title, "",
                    counts=not run_task or pair[0].counts(measure),
                )
                for measure in measures
            ]  # fmt: skip
    every_pair = [pair for arm_pairs in by_arm.values() for pair in arm_pairs]
    pairs = [
        replace(pair, file_stem=str(number)) for number, pair in enumerate(every_pair, start=1)
    ]
    if not pairs:
        raise UserError(
            f"{settings.results}: found no task of both {base_name} and {', '.join(others)}; give "
            "predictions of the same tasks"
        )
    titles = {pair.name for pair in pairs}
    title = titles.pop() if len(titles) == 1 else f"All against {base_name}"
    if ranked:
        title = f"{len(every_arm)} models"
    how = settings.of_comparison("single" if ranked or not others else settings.design)
    request = Request(title, how, pairs, questions, ranked=ranked)
    [compared] = compare_all([request], for_page=settings.html is not None)
    if ranked and not compared.rankings:
        compared.unranked.append(f"Give --base={every_arm[0]} to compare the others with it.")
    if lacking:
        compared.unranked.append(f"Left out, as there are no predictions: {', '.join(lacking)}.")
    return compared


def _design_of_ranking(
    settings: FileComparison, arms: Sequence[str], questions: Mapping[str, Any]
) -> ManyDesign | Literal["inferred"] | None:
    """Returns the design in which three or more arms are ranked; None: arms are compared with a base."""
    if len(arms) < 3 or settings.base is not None:
        return None
    needs_base = [f"--{kind.parameter}" for kind in asked(questions)]
    if settings.design in ("fixed_baseline", "single"):
        needs_base = [f"--design={settings.design}"]
    if needs_base:
        raise UserError(
            f"found {len(arms)} arms and {needs_base[0]}, which is about a comparison with a base; name the "
            f"base with --base={arms[0]}"
        )
    return cast("ManyDesign | None", settings.design) or "inferred"


def _pages(
    compared: ComparedArms,
    settings: FileComparison,
    read: str,
    tasks: Mapping[str, Mapping[str, ArmTable]],
) -> dict[str, str]:
    """Returns the report page of these comparisons, and its linked pages."""
    bootstrap = settings.of_comparison(compared.comparisons[0].design)
    tables = [table for arms in tasks.values() for table in arms.values()]
    names = {
        role: {(table.read.columns or usual).get(role) for table in tables}
        for role, usual in (("seed", {"seed": "pretrain_seed"}), ("run", {"run": "finetune_seed"}))
    }
    content = ReportContent(
        [compared], [], [], [], [],
        # Say "pre-training seeds" only if the data have a column of that name.
        seeds_are=SEEDS["finetune"]
        if settings.seeds == "finetune"
        else SEEDS["pretrain"]
        if names["seed"] == {"pretrain_seed"}
        else "repeated evaluations" if names["seed"] == {BY_TIME} else "seeds",
        runs_are="fine-tuning runs" if names["run"] == {"finetune_seed"} else "runs",
    )  # fmt: skip
    path = Path(settings.html or "index.html")
    paths = [Path(name) for name in settings.inputs]
    files = [
        file for source in paths for file in ([source] if source.is_file() else source.rglob("*"))
    ]
    outputs = {Path(name).resolve() for name in (settings.latex, settings.csv) if name}
    data = [
        file
        for file in files
        if file.is_file() and file.suffix != ".html" and file.resolve() not in outputs
    ]
    made_by = {
        "Command": f"multiberts compare {shlex.join(sys.argv[1:])}",
        "Read": read,
        **data_facts(data, "the files compared"),
    }
    pages = page_files(compared.name, content, bootstrap, "dev", made_by, name=path.stem)
    return {
        str(path.with_name(file)): page.decode()
        for file, page in pages.items()
        if file.endswith(".html")
    }
