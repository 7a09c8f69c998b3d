"""The command `reproduce`: compares a published number with a user's runs."""

from __future__ import annotations

import json as json_format
from dataclasses import dataclass, fields

from multiberts.evaluate.readers.columns import RowNames
from multiberts.evaluate.readers.log_folders import only_task
from multiberts.report.answers.published_number import reproduce
from multiberts.report.arms_of_files import ToldSense, metric_of_arms, tasks_of, with_labels
from multiberts.runs.errors import UserError, counted
from multiberts.runs.parameters import takes_fields_of
from multiberts.stats.compare.two_arms import compare
from multiberts.stats.reading import table_of
from multiberts.stats.settings import Missing


@dataclass(frozen=True, kw_only=True)
class FileReproduction(RowNames, ToldSense):
    """Settings of `reproduce_files`.

    Attributes:
      results: predictions or scores, as `multiberts compare` reads them.
      published: published number in the unit of your scores: 0.874 if they are shares, 87.4 if per cent.
      name: arm to use, if the files have several.
      of: statistic of the published runs: `mean`, `best` or `median`, optionally with their number, such as
        `best:5`; by default the number of seeds in `results`.
      metric: a metric such as `accuracy`; by default `mean` of scores, and `accuracy` of predictions.
      task: task to use, if the files have several.
      labels: table of ids and labels, which replace the labels in the files; `example` and `label` may name
        its columns.
      missing: `omit` leaves a missing prediction out of its run's score, as if missing at random.
      less_is_better: lower scores are better, so the best run is the lowest; see `multiberts compare`.
      more_is_better: higher scores are better.
      arm: column of the model, method or condition of each row; `none` if no column says it.
      seed: column of seeds.
      run: column that distinguishes several runs of one seed, which are averaged.
      example: column of example ids.
      prediction: column of predictions.
      score: column of example scores (1 for a right answer).
      label: column of labels.
      where: rows to use, `split=test`, or several conditions, `split=test,epoch=last`: `last` is the largest
        number of each run.
      seed_sd: standard deviation over seeds to use if there is one run: `0.8` points, or `0.8/24` with its
        degrees of freedom.
      json: print all numbers as JSON instead of text.
    """

    results: str
    published: float
    of: str = "mean"
    metric: str | None = None
    name: str | None = None
    task: str | None = None
    labels: str | None = None
    missing: Missing = "refuse"
    seed_sd: str | None = None
    json: bool = False


@takes_fields_of(FileReproduction)
def reproduce_files(settings: FileReproduction) -> str:
    """Tests whether a published number is plausible for runs like these on the same examples.

    Args:
      settings: files of the runs, the published number, and options.

    Returns:
      The answer in words, or as JSON.
    """
    columns = {field.name: getattr(settings, field.name) for field in fields(RowNames)}
    if settings.labels is not None:
        columns["label"] = None  # of the table of labels
    tasks = tasks_of([settings.results], settings.task, columns, told=settings)
    only_task([*tasks], settings.results)
    [arms] = tasks.values()
    name = settings.name or next(iter(arms))
    if name not in arms or (len(arms) > 1 and settings.name is None):
        raise UserError(
            f"{settings.results} holds {counted(len(arms), 'arm')} ({', '.join([*arms][:9])}), expected "
            f"{settings.name or 'the runs of one'}; choose one, such as --name={next(iter(arms))}"
        )
    arms = {name: arms[name]}
    if settings.labels is not None:
        has_metric = settings.metric is not None
        arms = with_labels(arms, settings.labels, settings, has_metric=has_metric)
    result = compare(
        arms[name],
        metric=metric_of_arms(arms, settings.metric),
        design="single",
        missing=settings.missing,
        resample="seeds" if len(table_of(name, arms[name]).seeds) > 1 else "examples",
    )
    answer = reproduce(
        result.named(name), settings.published, settings.of, seed_sd=settings.seed_sd
    )
    if settings.json:
        return json_format.dumps(answer.record(), indent=2, default=str)
    return f"{table_of(name, arms[name]).read.pooled} {answer}".lstrip()
