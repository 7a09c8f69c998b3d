"""The report stage: turns prediction files into tables, figures and one HTML page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.report.analysis import analyse
from multiberts.report.answers.sameness import check_margin
from multiberts.report.experiment import ReportedExperiment, experiment_of
from multiberts.report.page import (
    COMPARISONS,
    MADE_WITH,
    MISSING,
    NOTE,
    RANKINGS,
    page_files,
    write_page,
)
from multiberts.report.presentation.provenance import command_again, data_facts
from multiberts.report.selection import (
    SEEDS,
    FinishedRun,
    LearningRateRule,
    by_checkpoint,
    finished_runs,
    last_steps,
    select,
)
from multiberts.runs.directory import DONE, RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import FigureKind
from multiberts.runs.files import read_json_fields
from multiberts.runs.identity import Identity, Values, opened
from multiberts.runs.parameters import (
    Level,
    PositiveInt,
    Seed,
    check_arguments,
    check_types,
    fits,
    shortened,
)
from multiberts.stats.errors import DataError
from multiberts.stats.settings import ComparisonSettings

# `Any`, because the comparisons check choices and the margin.
_COMPARISON_FIELDS = {
    "name": str, "base": Mapping[str, Any], "experiment": Mapping[str, Any] | None, "design": Any,
    "resample": Any, "margin": Any, "primary": str | None,
}  # fmt: skip


def _settle(parameters: Values, _: Values) -> None:
    """Leaves out recently added arguments at their defaults, so that older reports keep their identity."""
    if not parameters.get("names"):
        parameters.pop("names", None)
    if parameters.get("figures") == "svg":
        del parameters["figures"]


IDENTITY = Identity({"predictions": opened, "truth": opened}, settle=_settle)


def report(
    *,
    run_dir: str,
    predictions: str | Sequence[str],
    title: str = "",
    comparisons: Sequence[Mapping[str, Any]] = (),
    truth: str | None = None,
    n_resamples: PositiveInt = ComparisonSettings.n_resamples,
    rng: Seed = ComparisonSettings.rng,
    confidence_level: Level = ComparisonSettings.confidence_level,
    learning_rate_rule: LearningRateRule = "dev",
    names: Mapping[str, str] | None = None,
    figures: FigureKind = "svg",
) -> None:
    """Compares procedures on every evaluation set and metric, and writes an HTML page.

    A new report replaces the earlier one if there are new runs, so reports can be made during a sweep. In the
    root of an experiment the report uses the plan: it links to runs and status, and for an unfinished
    experiment it gives the number of finished planned seeds.

    Without a list of comparisons, procedures are compared at their last steps: two with each other (the first
    by name is the base), three or more in a ranking without a base. If checkpoints record no pre-training
    seed, each checkpoint is treated as a procedure and its fine-tuning seeds as the seeds.

    If a procedure was fine-tuned with several learning rates, the one with the best mean over runs is chosen
    per task, procedure and step; the page shows the rule and the choices.

    Args:
      run_dir: output folder for `index.html`, `tables/` and `figures/`.
      predictions: folder (or folders) with finished fine-tuning runs, at any depth.
      title: heading of the page; by default the name of the first comparison.
      comparisons: comparisons to make, each a dict with `name`, `base` and `experiment` (dicts of `procedure`
        and optionally `step`, `task`, `learning_rate`; without a step the last one), `design` (default
        `paired`), `resample` (default: what the data allow), `margin`, the largest difference that does not
        matter, in points for scores in per cent, and `primary`, the "<evaluation set>/<metric>" that the page
        opens with (default: the clearest of the first comparison). Without `experiment` the design is
        `single`. None: all procedures.
      truth: JSON file {"<evaluation set>/<metric>": {"<procedure>": value}} of true values, known from the
        construction of the data, or None.
      n_resamples: bootstrap replicates.
      rng: number that identifies the draws: equal numbers give equal draws.
      confidence_level: level of all intervals.
      learning_rate_rule: `dev`: choose by the score on the development set, as the papers do; slightly
        optimistic. `held_out`: choose by the score on the fifth of the training data that runs with
        `held_out_fold` left out; these runs are required for every learning rate.
      names: readable names of procedures, tasks and evaluation sets, such as {"cda_incr": "After CDA"}; other
        names are shown without underscores. CSV files keep the names in code.
      figures: file format of the figures, such as `pdf` for LaTeX.
    """
    parameters, _ = IDENTITY.of(locals())
    check_arguments(report, parameters)
    settings = {**parameters, "truth": _read_truth(truth)}
    runs = finished_runs(predictions)
    requests_of(
        runs, comparisons
    )  # before the directory is opened, so that a misspelt arm does not start a new report
    directory = RunDirectory(
        run_dir,
        stage="report",
        parameters={**parameters, "comparisons": [dict(request) for request in comparisons]},
        inputs={"predictions": [str(run.directory) for run in runs]}
        | ({} if truth is None else {"truth": truth}),
        renewed_by=["predictions"],
    )
    if directory.done:
        return
    folders = [predictions] if isinstance(predictions, str) else predictions
    files = _files_of_report(runs, settings, experiment_of(run_dir, folders))
    with directory:
        write_page(directory.path, files)
        directory.finish([*files])


def _files_of_report(
    runs: Sequence[FinishedRun], settings: Mapping[str, Any], experiment: ReportedExperiment | None
) -> dict[str, bytes]:
    """Makes the comparisons of a report and returns its files; see `page_files`.

    Args:
      settings: arguments of `report`; `truth` holds the contents of the file.
    """
    bootstrap = ComparisonSettings(
        **{name: settings[name] for name in ("n_resamples", "rng", "confidence_level")}
    )
    rule = settings["learning_rate_rule"]
    runs, requests = requests_of(runs, settings["comparisons"])
    content = analyse(
        runs, requests, settings["truth"], bootstrap, rule, experiment, settings.get("names")
    )
    made_by = {
        "Command": command_again("report", "of this page"),
        **data_facts([run.directory / DONE for run in runs], "the markers of the finished runs"),
    }
    if not settings["comparisons"]:
        made_by[NOTE] = requests[0]["note"]
    if content.missing:
        made_by[MISSING] = content.missing
    return page_files(
        settings["title"] or content.asked.name, content, bootstrap, rule, made_by,
        kind=settings.get("figures", "svg"),
    )  # fmt: skip


def requests_of(
    runs: Sequence[FinishedRun], comparisons: Sequence[Mapping[str, Any]]
) -> tuple[Sequence[FinishedRun], list[dict[str, Any]]]:
    """Returns the runs and the checked comparisons, with the selected runs as `base` and `experiment`.

    Args:
      comparisons: see `report`; empty: one comparison of all procedures at their last steps.

    Returns:
      The runs, regrouped by checkpoint if none has a pre-training seed, and the comparisons.
    """
    if all(run.facts["pretrain_seed"] is None for run in runs):
        runs = by_checkpoint(runs if comparisons else last_steps(runs))
    if not comparisons:
        return runs, [_of_all_arms(runs)]
    requests = []
    for checked in map(_checked_request, comparisons):
        for role in ("base", "experiment"):
            if checked[role] is not None:
                label = f"comparison {checked['name']!r}, {role}"
                checked[role] = select(runs, checked[role], label)
        requests.append(checked)
    return runs, requests


def _of_all_arms(runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """Returns the default comparison: two procedures at their last steps, or a ranking of three or more."""
    arms: dict[str, list[FinishedRun]] = {}
    for run in sorted(last_steps(runs), key=lambda run: str(run.facts["procedure"])):
        arms.setdefault(str(run.facts["procedure"]), []).append(run)
    names, steps = [*arms], {name: arm_runs[0].facts["step"] for name, arm_runs in arms.items()}
    seeds = [{run.facts["pretrain_seed"] for run in arm_runs} for arm_runs in arms.values()]
    design = "paired" if len(set.intersection(*seeds)) > 1 else "unpaired"
    asked: dict[str, Any] = {"name": names[0], "base": arms[names[0]], "design": "single"}
    said = f"{names[0]} is described"
    if len(names) == 2:
        asked = {"name": f"{names[1]} against {names[0]}", "base": arms[names[0]]}
        asked |= {"experiment": arms[names[1]], "design": design}
        said = f"{names[1]} is compared with {names[0]}, the first by name"
    elif len(names) > 2:
        every = [run for arm_runs in arms.values() for run in arm_runs]
        asked = {"name": f"All {len(names)} arms", "base": every, "design": "single"}
        asked["ranked"] = design
        said = f"all {len(names)} arms are ranked, and none is the base"
    if any(step is not None for step in steps.values()):
        said += (
            f"; at the last steps ({', '.join(f'{name}: {step}' for name, step in steps.items())})"
        )
    note = f"No comparison was given: {said}; over {f'{design} ' * (len(names) > 1)}{SEEDS[runs[0].seed_is]}."
    return {"experiment": None, "resample": "both", "margin": None, **asked, "note": note}


def describe_report(run_dir: str) -> str:
    """Returns the path of a report and its table of comparisons, for the terminal."""
    tables = Path(run_dir, "tables")
    made_with = json.loads((tables / MADE_WITH).read_text(encoding="utf-8"))
    shown = next(tables / name for name in (RANKINGS, COMPARISONS) if (tables / name).is_file())
    notes = [made_with.get(name) for name in (MISSING, NOTE)]
    parts = [Path(run_dir, "index.html"), *notes, shown.read_text(encoding="utf-8")]
    return "\n\n".join(str(part).rstrip() for part in parts if part)


def _checked_request(request: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(request) - set(_COMPARISON_FIELDS))
    missing = sorted({"name", "base"} - set(request))
    if unknown or missing:
        raise UserError(
            f"comparison {dict(request)}: "
            + (f"found the field {unknown[0]!r}" if unknown else f"lacks {missing[0]!r}")
            + f", expected name, base and any of {', '.join(sorted(_COMPARISON_FIELDS))}"
        )
    check_types(f"comparison {shortened(request['name'])}", request, _COMPARISON_FIELDS)
    single = request.get("experiment") is None
    design = "single" if single else "paired"
    settings: dict[str, Any] = {"design": design, "resample": None}
    settings |= {name: request[name] for name in settings if name in request}
    checked = {"experiment": None, "margin": None, **request, **settings}
    try:
        ComparisonSettings(**settings)  # the constructor checks them
        if checked["margin"] is not None:
            check_margin(checked["margin"], design)
    except DataError as error:
        raise UserError(f"comparison {checked['name']!r}: {error}") from error
    if (checked["design"] == "single") != single:
        raise UserError(
            f"comparison {checked['name']!r}: design {checked['design']!r} "
            + ("lacks an experiment" if single else "takes no experiment")
            + "; correct the comparison"
        )
    return checked


def _read_truth(path: str | None) -> dict[str, dict[str, float]]:
    if path is None:
        return {}
    cure = 'give JSON {"<evaluation set>/<metric>": {"<procedure>": number}} as report.truth'
    content = read_json_fields(path, cure=cure)
    for key, values in content.items():
        if not fits(values, Mapping[str, float]):
            raise UserError(f"{path}: {key} is {shortened(values)}; {cure}")
    return content
