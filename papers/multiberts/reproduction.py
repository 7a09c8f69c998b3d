"""The tables and figures of the MultiBERTs paper from finished fine-tuning runs or from prediction sets.

    multiberts paper --gin_param='paper.run_dir = "results/paper"'
        --gin_param='paper.predictions = "results"'

Tables and figures that the runs do not allow are left out with a reason.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from multiberts.papers.multiberts.catalogue import (
    BIAS,
    EXTRA,
    FULL,
    INCREMENTAL,
    PUBLISHED,
    Catalogue,
    Roles,
    group_panels,
    group_scores,
)
from multiberts.papers.multiberts.figures import (
    agreement_figure,
    family_figure,
    occupations_figure,
    power_figure,
    score_figure,
    seeds_figure,
    variance_figure,
)
from multiberts.papers.multiberts.tables import (
    agreement_table,
    comparison_table,
    component_table,
    family_table,
    score_table,
)
from multiberts.papers.page_run import write_page_of_runs
from multiberts.report.prediction_sets import PredictionSet, curve_of_prediction_sets
from multiberts.report.presentation import words
from multiberts.report.presentation.comparison_tables import full_table
from multiberts.report.presentation.figures import bootstrap_figure, sources_figure, training_figure
from multiberts.report.presentation.formats import score_text
from multiberts.report.presentation.readable_names import readable
from multiberts.report.presentation.sections import Report, ReportSection, slug
from multiberts.report.presentation.table_writer import Table
from multiberts.report.selection import (
    finished_runs,
    learning_rate_table,
    prediction_sets_of_runs,
)
from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import FigureKind
from multiberts.runs.identity import Identity, Values, opened
from multiberts.runs.parameters import NonNegativeInt, PositiveInt, Seed, takes_fields_of
from multiberts.stats.compare.result import Comparison, arms_of
from multiberts.stats.errors import DataError
from multiberts.stats.score import metric_name
from multiberts.stats.settings import ComparisonSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Name, number in the paper (ICLR 2022), caption, maker.
Section = tuple[str, str, str, Callable[[], "Table | Figure"]]


# Sections of comparisons, whose tables hold two intervals and two p-values.
_COMPARED = ("winogender_paired", "winogender_unpaired", "winogender_checkpoints", "steps",
             "original")  # fmt: skip
_PUBLISHED = (
    "The recommended difference, interval and p come first. Numbers marked as published are computed as the "
    "paper does ({} of the paper): bootstrap means, percentile interval and one-sided p."
)


def _settle(parameters: Values, _: Values) -> None:
    parameters["parts"] = dict(parameters["parts"] or {})
    # Parameters left out at their defaults, so that older reports keep their identity.
    for name, default in (("steps_set", None), ("figures", "svg")):
        if parameters[name] == default:
            del parameters[name]


IDENTITY = Identity({"predictions": opened}, settle=_settle)


@dataclass(frozen=True, kw_only=True)
class PaperSettings:
    """Arguments of `paper`.

    Attributes:
      run_dir: run directory of the report.
      predictions: folder (or folders) with finished fine-tuning runs, at any depth.
      base: base procedure (see `papers.multiberts.catalogue.Roles`).
      original: procedure of the published checkpoint.
      early_step: early step of the base, compared with its last; None: half of the last.
      steps_set: task or evaluation set on which both steps' bootstrap distributions are drawn (figure 7);
        None: the first.
      parts: coordinate of examples (or `label`) that splits an evaluation set in figures, by its name, such
        as {"hans": "label"}.
      n_resamples: bootstrap replicates of every comparison.
      rng: number that identifies the draws: equal numbers give equal draws.
      figures: file format of the figures, such as `pdf` for LaTeX.
    """

    run_dir: str
    predictions: str | Sequence[str]
    base: str = "base"
    original: str = "original"
    early_step: NonNegativeInt | None = None
    steps_set: str | None = None
    parts: Mapping[str, str] | None = None
    n_resamples: PositiveInt = ComparisonSettings.n_resamples
    rng: Seed = ComparisonSettings.rng
    figures: FigureKind = "svg"


@takes_fields_of(PaperSettings)
def paper(settings: PaperSettings) -> None:
    """Writes `run_dir/report/` with `index.html`, `index.md`, `tables/`, `figures/` and `comparisons.csv`.

    Tables and figures that these runs do not allow are left out; `index.md` gives the reasons.

    Args:
      settings: the fields of `PaperSettings`.

    Reference: Sellam et al., "The MultiBERTs" (ICLR 2022).
    """
    parameters, _ = IDENTITY.of(vars(settings))
    comparison = replace(PUBLISHED, n_resamples=settings.n_resamples, rng=settings.rng)
    roles = Roles(base=settings.base, original=settings.original)
    runs = finished_runs(settings.predictions)

    def report() -> Report:
        prediction_sets, choices = prediction_sets_of_runs(runs)
        return paper_report(
            prediction_sets,
            roles=roles,
            settings=comparison,
            early_step=settings.early_step,
            steps_set=settings.steps_set,
            parts=dict(settings.parts or {}),
            choices=choices,
        )

    write_page_of_runs("paper", settings.run_dir, parameters, runs, report, settings.figures)


def paper_report(
    prediction_sets: Sequence[PredictionSet], *, roles: Roles | None = None, **options: Any
) -> Report:
    """Returns a page with all tables and figures that can be made, and all numbers in `comparisons.csv`.

    Args:
      prediction_sets: predictions of all procedures (see `report.prediction_sets`).
      **options: further fields of `papers.multiberts.catalogue.Catalogue`.
    """
    catalogue = Catalogue(prediction_sets, roles or Roles(), **options)
    procedures = {predictions.procedure for predictions in prediction_sets}
    if catalogue.roles.base not in procedures:
        raise DataError(
            f"found predictions of {', '.join(sorted(procedures)) or 'no procedure'}, but none of the base "
            f"procedure {catalogue.roles.base!r}; name the base with --base"
        )
    numbers = {"comparisons.csv": lambda: full_table(catalogue.made_comparisons).csv()}
    title = "The MultiBERTs paper's tables and figures, from these runs"
    return Report(title, _sections(catalogue), [*_findings(catalogue)], numbers)


def _sections(catalogue: Catalogue) -> Iterator[ReportSection]:
    """Yields every table and figure."""
    base, original = catalogue.roles.base, catalogue.roles.original
    has_original = any(item.procedure == original for item in catalogue.prediction_sets)
    with_original = ", with the original BERT" * has_original
    sections: list[Section] = [
        ("scores", "", "Scores over pre-training seeds, in numbers",
         lambda: score_table(catalogue.scores)),
        ("winogender_paired", "table 1", "Incremental CDA against base, paired",
         lambda: comparison_table(catalogue.paired, "Paired", "less")),
        ("winogender_unpaired", "table 2",
         "Full against incremental CDA, unpaired, and with seeds or examples alone resampled",
         lambda: comparison_table([catalogue.unpaired[0], *catalogue.sources], "Unpaired", "less")),
        ("winogender_checkpoints", "table 4", "Two single checkpoints, examples alone",
         lambda: comparison_table([catalogue.checkpoints], "Two checkpoints")),
        ("winogender_groups", "",
         "Winogender scores of every group of runs (the base's spread: appendix D of the paper)",
         lambda: score_table(group_scores(catalogue.winogender_groups))),
        ("steps", "table 5", "Early against late checkpoints, paired",
         lambda: comparison_table(catalogue.steps, "Steps")),
        ("original", "appendix E", "Against the original BERT, a fixed baseline",
         lambda: comparison_table(
             sorted([*catalogue.early_original, *catalogue.original],
                    key=lambda item: (item.evaluation_set, item.metric)), "Against one checkpoint")),
        ("agreement", "table 3",
         "Agreement of two runs: the share of equal answers, or Pearson's correlation for STS-B",
         lambda: agreement_table(catalogue.agreements)),
        ("family_steps", "", "Early against late checkpoints, corrected for the number of tasks",
         lambda: family_table(catalogue.family_of_steps)),
        ("components", "", "Where the variance of the base's scores comes from",
         lambda: component_table(catalogue.components)),
        ("learning_rates", "", "Learning rates and the scores they were chosen by",
         lambda: learning_rate_table(catalogue.choices)),
        ("figure_scores", "figure 1 and figure 2",  # GLUE and SQuAD
         "Scores over pre-training seeds" + with_original,
         lambda: score_figure(catalogue.panels)),
        *((f"figure_parts_{slug(name)}", "",
           f"Scores over pre-training seeds on the parts of {readable(name, {})} by {readable(by, {})}",
           partial(lambda *key: score_figure(catalogue.part_panels(*key), key[0], True), name, by))
          for name, by in catalogue.parts.items()),
        ("figure_hans_by_seed", "figure 4",
         "HANS, pairs that are not entailed: a column per pre-training seed, a dot per run",
         lambda: seeds_figure([catalogue.hans.run_scores(measure := catalogue.hans.measures[0])], measure)),
        ("figure_bias_by_seed", "figure 3 and figure 5",  # 5 is the base alone
         "Bias correlation of every seed before and after incremental CDA",
         lambda: _by_seed([catalogue.biased(name)[0] for name in (base, INCREMENTAL)], BIAS)),
        ("figure_bias_noise", "figure 6",
         "Bias correlation of seeds with many fine-tuning runs each",
         lambda: _by_seed(catalogue.biased(EXTRA)[:1], BIAS)),
        ("figure_winogender_groups", "",
         "Winogender scores of every group of runs, a dot per seed",
         lambda: score_figure(group_panels(catalogue.winogender_groups))),
        ("figure_bootstrap_paired", "", "Base and incremental CDA: bootstrap distributions",
         lambda: bootstrap_figure(catalogue.paired[-1])),
        ("figure_bootstrap_unpaired", "", "Incremental and full CDA: bootstrap distributions",
         lambda: bootstrap_figure(catalogue.unpaired[-1])),
        ("figure_bootstrap_steps", "figure 7",
         "Early and late checkpoints: bootstrap distributions",
         lambda: bootstrap_figure(catalogue.shown_steps)),
        ("figure_bootstrap_checkpoints", "", "Two single checkpoints: bootstrap distributions",
         lambda: bootstrap_figure(catalogue.checkpoints)),
        ("figure_steps", "figure 8",
         "Early and late checkpoints of the seeds that have both",
         lambda: score_figure(catalogue.step_panels)),
        ("figure_sources", "",
         "Bootstrap distributions when seeds, examples or both are resampled",
         lambda: sources_figure(catalogue.sources)),
        ("figure_occupations", "", "Bias of occupations against their share of women",
         lambda: occupations_figure(catalogue.biased(base, INCREMENTAL, FULL), BIAS)),
        *((f"figure_training_{slug(name)}", "", f"Score on {readable(name, {})} during pre-training",
           partial(_training, catalogue.settings.confidence_level, name, steps))
          for name, steps in catalogue.trained.items()),
        ("figure_agreement", "",
         "Agreement of two runs with the same and with different pre-training seeds",
         lambda: agreement_figure(catalogue.agreements)),
        ("figure_family_steps", "", "Early against late checkpoints on all tasks",
         lambda: family_figure(catalogue.family_of_steps)),
        ("figure_variance", "", "Where the variance comes from", lambda: _variance(catalogue)),
        ("figure_power", "", "Power of a paired comparison by number of seeds",
         lambda: _power(catalogue)),
    ]  # fmt: skip
    for name, number, caption, make in sections:
        if name != "learning_rates" or catalogue.choices:
            title = f"{caption} ({number} of the paper)" if number else caption
            caption = _PUBLISHED.format(number) if name in _COMPARED else f"{title}."
            yield ReportSection(name, caption, make, title=title)


def _findings(catalogue: Catalogue) -> Iterator[str]:
    """Yields the two clearest results of each contrast, or the base's scores if there is none."""
    empty = True
    for contrast in ("paired", "unpaired", "steps", "early_original", "original"):
        try:
            items: list[Comparison] = getattr(catalogue, contrast)
        except UserError:
            continue
        if not items:
            continue
        empty = False
        clearest = sorted(items, key=lambda item: item.p_value or 0.0)[:2]
        results = []
        for item in clearest:
            arms = arms_of(item)[::-1]
            scores = " against ".join(score_text(arm.estimate, item.metric, 2) for arm in arms)
            results.append(
                f"{metric_name(item.metric)} on {readable(item.evaluation_set, {})} {scores}, difference "
                f"{words.estimate_text(item, item.estimate)} ({words.level_text(item.confidence_level)} "
                f"{words.estimate_text(item, item.ci)}, {words.p_text(item.p_value or 0.0)})"
            )
        names = " against ".join(readable(arm.name, {}) for arm in arms_of(clearest[0])[::-1])
        of_many = f", the clearest of {len(items)}" * (len(items) > 2)
        yield f"{names}{of_many}: {'; '.join(results)}."
    if empty:
        means = [
            f"{score_text(arms[0].mean, measure, 2)} {metric_name(measure)} on {readable(name, {})}"
            for (name, measure), arms in catalogue.scores.items()
        ]
        yield f"Mean scores over pre-training seeds: {'; '.join(means)}."


def _by_seed(prediction_sets: Sequence[PredictionSet], measure: str) -> Figure:
    arms = [item.run_scores(measure, item.procedure) for item in prediction_sets]
    return seeds_figure(arms, measure)


def _training(level: float, name: str, steps: Sequence[PredictionSet]) -> Figure:
    measure = steps[0].measures[0]
    curve = curve_of_prediction_sets(steps, measure)
    return training_figure([curve], readable(name, {}), measure, level)


def _variance(catalogue: Catalogue) -> Figure:
    components, sizes = {}, {}
    for predictions in catalogue.last(catalogue.roles.base).values():
        measure = BIAS if BIAS in predictions.measures else predictions.measures[0]
        name = f"{predictions.set_name}, {metric_name(measure)}"
        components[name] = predictions.components(measure)
        scores = predictions.run_scores(measure)
        number = len(scores.seeds)
        size = predictions.measured(measure)[0].sizes["example"]
        sizes[name] = (number, scores.num_runs / number, size)
    return variance_figure(components, sizes)


def _power(catalogue: Catalogue) -> Figure:
    try:
        arms = [catalogue.biased(name)[0] for name in (catalogue.roles.base, INCREMENTAL)]
        measure = BIAS
    except DataError:
        arms = list(catalogue.pairs_of_steps[0])
        measure = arms[0].measures[0]
    components = arms[0].difference_components(arms[1], measure)
    size = arms[0].measured(measure)[0].sizes["example"]
    number = len(arms[0].run_scores(measure).seeds)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = components.plan(number, num_examples=size)
    for warning in caught:
        console.note_once(f"figure of power: {warning.message}")
    least = plan.minimum_detectable_effect()
    effects = [float(f"{least * factor:.2g}") for factor in (0.75, 1, 1.25, 1.5)]
    title = f"{arms[1].procedure} against {arms[0].procedure}, {metric_name(measure)}"
    return power_figure(effects, range(2, 2 * max(number, 10) + 1), plan, title=readable(title, {}))
