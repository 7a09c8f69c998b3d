"""The comparisons of a report: pairs of arms, results, figures and rankings.

Both the command `compare` and the report of finished runs use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, cast, get_args

from multiberts.evaluate.metrics.winogender_bias import OCCUPATION_MEASURES
from multiberts.report.answers.listed import answers_to, asked, settings_for, why_unranked
from multiberts.report.examples_by_seed import ExampleGrid, example_grid
from multiberts.report.prediction_sets import PredictionSet, compare_prediction_sets, task_of
from multiberts.report.presentation import figures, ranking_words, words
from multiberts.report.presentation.answer import FurtherAnswer
from multiberts.report.presentation.formats import metric_label
from multiberts.report.presentation.reported import ReportedComparison, answer, clearest, judged
from multiberts.report.presentation.sections import ReportSection, slug
from multiberts.runs.console import ProgressBar
from multiberts.runs.errors import in_flags
from multiberts.stats.compare.arms import ManyDesign, compare_named_arms
from multiberts.stats.compare.prepared_arms import TaskData, prepare_arms
from multiberts.stats.compare.ranking import ArmComparisons
from multiberts.stats.compare.result import Comparison, arms_of
from multiberts.stats.compare.shared import SharedArms
from multiberts.stats.compare.tasks import CountedArms, mean_over_tasks, rank_means
from multiberts.stats.errors import DataError, UndefinedScore, as_data_errors
from multiberts.stats.score import may_be_averaged, metric_name
from multiberts.stats.settings import ComparisonSettings

# Reason why three or more arms are not ranked.
NO_RANKING = "it needs two seeds that all arms have, or the unpaired design, which draws each arm's own seeds"


@dataclass(frozen=True)
class Pair:
    """A base and an experiment to compare by a metric, or a base alone to describe.

    Attributes:
      prediction_sets: prediction sets of base and experiment.
      measure: a key of `METRICS` or `OCCUPATION_MEASURES`.
      file_stem: start of the names of its figures' files.
      arms: names of the prediction sets in a ranking, if they differ from the sets' names.
      counts: whether the pair is included in the mean over tasks.
    """

    prediction_sets: Sequence[PredictionSet]
    measure: str
    names: tuple[str, str]
    name: str
    file_stem: str
    arms: Sequence[str] = ()
    counts: bool = False

    def by_arm(self) -> dict[str, PredictionSet]:
        """Returns the prediction sets by name in a ranking."""
        names = self.arms or [predictions.name for predictions in self.prediction_sets]
        return dict(zip(names, self.prediction_sets, strict=True))


@dataclass(frozen=True)
class Request:
    """Comparisons of one list, whose p-values are corrected for their number.

    Attributes:
      questions: further questions about each comparison, by parameter, such as {"margin": 0.5}.
      prefix: prefix of the file names of figures about the whole list.
      primary: index of the primary pair; None: the mean over tasks if it includes all tasks, else the
        clearest pair.
      ranked: design of a ranking of the arms without a base, with one pair per arm; None: rank arms with a
        common base.
    """

    name: str
    settings: ComparisonSettings
    pairs: Sequence[Pair]
    questions: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    primary: int | None = None
    ranked: ManyDesign | Literal["inferred"] | None = None

    @property
    def of_ranking(self) -> ComparisonSettings:
        design = None if self.ranked == "inferred" else self.ranked or self.settings.design
        return replace(self.settings, design=design)

    def file(self, name: str) -> str:
        """Returns the name of a figure of the whole list, without file extension."""
        return f"{self.prefix}-{name}" if self.prefix else name


@dataclass
class ComparedArms:
    """The answer to a request.

    Attributes:
      items: comparisons, one per pair, then the means over tasks.
      rankings: rankings of more than two arms with one base, shown in a report with the last comparison of
        the family.
      unranked: notes on arms that could not be compared or ranked.
      grids: grids of examples by seeds, by name of the comparison and evaluation set.
      primary: index of the primary item; None: the clearest item.
      as_made: comparisons with names in code, if the page shows readable names; otherwise empty.
    """

    name: str
    design: str
    items: list[ReportedComparison]
    overview: list[ReportSection] = field(default_factory=list)
    rankings: list[ArmComparisons] = field(default_factory=list)
    unranked: list[str] = field(default_factory=list)
    grids: dict[tuple[str, str], ExampleGrid] = field(default_factory=dict)
    primary: int | None = None
    as_made: Sequence[Comparison] = ()

    @property
    def asked(self) -> ReportedComparison:
        if self.primary is not None:
            return self.items[self.primary]
        return clearest([item for item in self.items if not item.comparison.tasks] or self.items)

    @property
    def comparisons(self) -> list[Comparison]:
        """Returns the comparisons without their answers."""
        return [cast("Comparison", item.comparison) for item in self.items]

    @property
    def without_base(self) -> Sequence[ArmComparisons]:
        """Returns the rankings whose differences are not among the comparisons."""
        return self.rankings if self.comparisons[0].experiment is None else ()

    @property
    def answer(self) -> str:
        return answer(self.items, self.asked)


class _Answered(NamedTuple):
    """A comparison with its answers; for a mean over tasks also the averaged comparisons."""

    comparison: Comparison
    answers: list[FurtherAnswer]
    counted: Sequence[Comparison] = ()

    def named(self, name_of: Callable[[str], str]) -> _Answered:
        """Returns the comparison with readable names."""
        item = _named(self.comparison, name_of)
        answers = [replace(answer, comparison=item) for answer in self.answers]
        return _Answered(item, answers, [_named(mean_of, name_of) for mean_of in self.counted])


@dataclass
class _Results:
    """Results of a request, with names in code; integer keys are indices of pairs.

    Attributes:
      grids: see `ComparedArms`.
      rankings: (name of its figure, ranking) pairs.
      unranked: reasons why there is no ranking or no mean over tasks.
    """

    request: Request
    comparisons: dict[int, _Answered] = field(default_factory=dict)
    left_out: dict[int, UndefinedScore] = field(default_factory=dict)
    grids: dict[tuple[str, str], ExampleGrid] = field(default_factory=dict)
    rankings: list[tuple[str, ArmComparisons]] = field(default_factory=list)
    unranked: list[str] = field(default_factory=list)
    means: list[_Answered] = field(default_factory=list)


def compare_all(
    requests: Sequence[Request],
    truth_of: Callable[[PredictionSet, str], float | None] | None = None,
    name_of: Callable[[str], str] = str,
    for_page: bool = True,
) -> list[ComparedArms]:
    """Makes all comparisons with their figures, and ranks three or more arms that have one base.

    Pairs on the same data are compared together, so that a common base is read and bootstrapped once. A pair
    is left out with a note if the score of an arm is 0/0 in every run; if all pairs of a request are left
    out, the note is attached to the next request.

    Args:
      truth_of: function that returns the true value of a measure of a prediction set, for figures.
      name_of: function that returns the readable name of an arm or evaluation set.
      for_page: whether to make figures and grids of examples, which only pages show.
    """
    every = [_Results(request) for request in requests]
    together: dict[tuple, list[tuple[_Results, int]]] = {}
    for results in every:
        for number, pair in enumerate(results.request.pairs):
            base = pair.prediction_sets[0]
            key = base.task, base.set_name, pair.measure
            together.setdefault(key, []).append((results, number))
    for group in ProgressBar(list(together.values()), desc="comparisons"):
        shared = SharedArms()
        for results, number in group:
            _compare(results, number, shared, name_of if for_page else None)
        _rank_families([each for each in group if each[1] in each[0].comparisons], shared, name_of)
    for results in every:
        _add_means(results)
    refused = [error for results in every for error in results.left_out.values()]
    if refused and not any(results.comparisons for results in every):
        raise refused[0]
    compared: list[ComparedArms] = []
    notes: list[str] = []
    for results in every:
        notes += [f"Left out: {error}." for _, error in sorted(results.left_out.items())]
        if results.comparisons:
            compared.append(_shown(results, notes, truth_of, name_of, for_page))
            notes = []
    if notes:
        compared[-1].unranked += notes
    return compared


def _compare(
    results: _Results, number: int, shared: SharedArms, name_of: Callable[[str], str] | None
) -> None:
    """Compares a pair, answers the further questions and makes the grid of examples.

    Args:
      name_of: function that returns the readable name of an arm in the grid of examples; None: make no grid.
    """
    request, pair = results.request, results.request.pairs[number]
    base, experiment = pair.prediction_sets[0], next(iter(pair.prediction_sets[1:]), None)
    settings = settings_for(request.questions, request.settings)
    try:
        item = compare_prediction_sets(
            base, experiment, pair.measure, settings, pair.names, pair.name, shared
        )
    except UndefinedScore as error:
        results.left_out[number] = error
        return
    with as_data_errors(f"{item.name} on {item.evaluation_set}, {pair.measure}"):
        seen, answers = answers_to(request.questions, item)
    results.comparisons[number] = _Answered(cast("Comparison", seen), answers)
    key = seen.name, seen.evaluation_set  # other metrics have the same examples
    if name_of is not None and key not in results.grids:
        arms = [name_of(name) for name in pair.names[: len(pair.prediction_sets)]]
        grid = example_grid(pair.prediction_sets, arms, seen.computed_from().spec, shared)
        if grid is not None:
            results.grids[key] = grid


def _add_means(results: _Results) -> None:
    """Adds a mean over tasks for each pair of arms with several tasks."""
    request = results.request
    by_arms: dict[tuple[str, str], list[int]] = {}
    for number in sorted(results.comparisons):
        if request.pairs[number].counts:
            by_arms.setdefault(request.pairs[number].names, []).append(number)
    kinds = asked(request.questions)
    for names, numbers in by_arms.items():
        pairs = [request.pairs[number] for number in numbers]
        sets = [pair.prediction_sets[0] for pair in pairs]
        if len({each.task for each in sets}) < 2:
            continue
        items = [results.comparisons[number].comparison for number in numbers]
        questions = {
            kind.parameter: request.questions.get(kind.parameter) for kind in kinds if kind.of_means
        }
        try:
            if any(kind.replaces for kind in kinds):
                raise DataError("a borrowed spread is that of one task")
            cells = [
                CountedArms(each.task, each.set_name, item.computed_from().spec.prepared)
                for each, item in zip(sets, items, strict=True)
            ]
            mean = mean_over_tasks(cells, request.settings, names)
            mean = mean.named(name=pairs[0].name)
            seen, answers = answers_to(questions, mean)
        except DataError as error:
            results.unranked.append(f"No mean over tasks: {in_flags(str(error))}.")
            continue
        results.means.append(_Answered(cast("Comparison", seen), answers, items))
    if request.ranked and len(results.means) > 1:
        _rank_means(results, by_arms)


def _rank_means(results: _Results, by_arms: Mapping[tuple[str, str], Sequence[int]]) -> None:
    """Adds the ranking of the arms by their means over tasks, or the reason for none."""
    request = results.request
    settings = request.of_ranking
    pairs = {
        name: [request.pairs[number] for number in numbers]
        for (name, _), numbers in by_arms.items()
    }
    measured = {
        name: [(pair.prediction_sets[0].set_name, pair.measure) for pair in of_arm]
        for name, of_arm in pairs.items()
    }
    every = {each for of_arm in measured.values() for each in of_arm}
    lacking = [name for name, of_arm in measured.items() if {*of_arm} != every]

    def cells(base: str, experiment: str) -> list[CountedArms]:
        return [
            CountedArms(first.task, first.set_name, prepare_arms(task, settings))
            for pair, other in zip(pairs[base], pairs[experiment], strict=True)
            for first in pair.prediction_sets
            for task in [task_of(first, other.prediction_sets[0], measure=pair.measure)]
        ]

    means = [each.comparison for each in results.means if each.comparison.base.name not in lacking]
    try:
        if len(means) < 2:
            raise DataError("fewer than two arms have every task")
        need_partners = settings.laid_out == "paired" and (
            settings.design or settings.drawn != "examples"
        )
        if need_partners and len({mean.base.seeds for mean in means}) > 1:
            raise DataError("the arms have different seeds; give --design=unpaired")
        ranking = rank_means(means, cells, settings)
    except DataError as error:
        results.unranked.append(f"No ranking by the mean over tasks: {in_flags(str(error))}.")
        return
    if lacking:
        results.unranked.append(f"Left out of the ranking by the mean: {', '.join(lacking)}.")
    results.rankings.insert(0, (request.file("ranking-mean"), ranking))


def _shown(
    results: _Results,
    notes: Sequence[str],
    truth_of: Callable[[PredictionSet, str], float | None] | None,
    name_of: Callable[[str], str],
    for_page: bool,
) -> ComparedArms:
    """Returns the comparisons of a request with readable names."""
    request, numbers = results.request, sorted(results.comparisons)
    rows = [results.comparisons[number] for number in numbers]
    as_made = [row.comparison for row in (*rows, *results.means)]
    named = [row.named(name_of) for row in rows]
    means = [row.named(name_of) for row in results.means]
    items = [row.comparison for row in named]
    of_rows: list[list[ReportSection]] = []
    of_means: list[list[ReportSection]] = []
    overview: list[ReportSection] = []
    if for_page:
        of_rows = [
            list(pictures_of(row.comparison, request.pairs[number], row.answers, truth_of))
            for row, number in zip(named, numbers, strict=True)
        ]
        of_means = [list(_pictures_of_mean(request, row)) for row in means]
        overview = list(forests_of(request, items))
        overview += [
            ReportSection(
                name, ranking_words.ranking_caption(ranking), partial(figures.draw_ranking, ranking)
            )
            for name, ranking in results.rankings
        ]
    grids = {
        (item.name, name_of(item.evaluation_set)): results.grids[key]
        for item in as_made
        if (key := (item.name, item.evaluation_set)) in results.grids
    }
    # The mean is a separate question: its p is not corrected for the number of tasks.
    judged_means = judged(
        [row.comparison for row in means], [row.answers for row in means], of_means
    )
    reported = [*judged(items, [row.answers for row in named], of_rows), *judged_means]
    primary = numbers.index(request.primary) if request.primary in numbers else None
    is_of_means = all(pair.counts or may_be_averaged(pair.measure) for pair in request.pairs)
    if request.primary is None and means and is_of_means:
        primary = reported.index(clearest(judged_means))
    return ComparedArms(
        request.name, request.settings.laid_out, reported, overview,
        [ranking for _, ranking in results.rankings], [*notes, *results.unranked], grids,
        primary, as_made,
    )  # fmt: skip


def _named(item: Comparison, name_of: Callable[[str], str]) -> Comparison:
    names = [name_of(arm.name) for arm in arms_of(item)]
    return item.named(*names, evaluation_set=name_of(item.evaluation_set))


def _rank_families(
    pairs: Sequence[tuple[_Results, int]], shared: SharedArms, name_of: Callable[[str], str]
) -> None:
    """Ranks each family of three or more arms with one base, among pairs on the same data.

    The ranking, or the reason for none, is stored with the last request of the family.
    """
    families: dict[tuple, list[tuple[_Results, Pair]]] = {}
    for results, number in pairs:
        pair, settings = results.request.pairs[number], results.request.settings
        if len(pair.prediction_sets) > 1 or results.request.ranked:
            base = "" if results.request.ranked else next(iter(pair.by_arm()))
            key = base, settings.design, settings.resample
            families.setdefault(key, []).append((results, pair))
    for family in families.values():
        arms = {
            name_of(name): predictions
            for _, pair in family
            for name, predictions in pair.by_arm().items()
        }
        results, last = family[-1]
        if len(arms) < (2 if results.request.ranked else 3):
            continue
        request, set_name = results.request, last.prediction_sets[0].set_name
        why = why_unranked(request.questions)
        settings = request.of_ranking
        try:
            ranking = None if why else _rank(arms, last.measure, settings, shared)
        except UndefinedScore as error:  # with the common seeds of all arms
            results.unranked.append(f"{error}.")
            continue
        if ranking is None:
            where = f"{name_of(set_name)}, {metric_name(last.measure)}"
            reason = f"{where}: no ranking of all arms: {why or NO_RANKING}."
            results.unranked.append(reason)
            continue
        figure = request.file(f"ranking-{slug(set_name)}-{slug(last.measure)}")
        results.rankings.append((figure, replace(ranking, name=name_of(set_name))))


def _rank(
    arms: Mapping[str, PredictionSet],
    measure: str,
    settings: ComparisonSettings,
    shared: SharedArms,
) -> ArmComparisons | None:
    """Ranks three or more arms; None if the design has no ranking or there are too few seeds."""
    seeds = [set(predictions.seeds) for predictions in arms.values()]
    few = settings.resample != "examples" and len(set.union(*seeds)) > 1
    too_few = few and settings.laid_out == "paired" and len(set.intersection(*seeds)) < 2
    if settings.laid_out not in get_args(ManyDesign) or too_few:
        return None
    first = next(iter(arms.values()))
    data = {name: predictions.measured(measure)[0] for name, predictions in arms.items()}
    clusters = next((arm.clusters for arm in arms.values() if arm.clusters), None)
    metric = first.measured(measure)[1]
    task = TaskData(None, None, metric, clusters=clusters, missing=first.missing)
    with as_data_errors(f"ranking {first.set_name}"):
        ranking = compare_named_arms(data, task, settings, None, shared)
    return replace(ranking, name=first.set_name)


def forests_of(request: Request, items: Sequence[Comparison]) -> Iterator[ReportSection]:
    """Yields a figure of all differences for each metric; metrics have different scales."""
    called = {id(item): name for item, name in zip(items, names_of_rows(items), strict=True)}
    for metric in dict.fromkeys(item.metric for item in items if item.experiment is not None):
        rows = {called[id(item)]: item for item in items if item.metric == metric}
        if len(rows) > 1:
            name = metric_name(metric)
            are_sets = len({item.name for item in items}) == 1
            scope = "on all evaluation sets: " if are_sets else "of all arms: "
            yield ReportSection(
                request.file(f"all-{slug(name)}"),
                f"Differences of {name} {scope}{request.name}",
                partial(figures.forest_figure, rows, f"{request.name}: {name}"),
            )


def compared_of(items: Sequence[Comparison], settings: ComparisonSettings) -> ComparedArms:
    """Returns finished comparisons (and possibly a mean over tasks) as the answer to a request."""
    rows = [item for item in items if not item.tasks]
    pairs = [
        Pair((), item.metric, (item.base.name, ""), item.name, str(number), counts=True)
        for number, item in enumerate(rows, start=1)
    ]
    results = _Results(
        Request(rows[0].name, settings, pairs),
        {number: _Answered(item, []) for number, item in enumerate(rows)},
        means=[_Answered(item, [], rows) for item in items if item.tasks],
    )
    return _shown(results, [], None, str, True)


def names_of_rows(items: Sequence[Comparison]) -> list[str]:
    """Returns the names of the rows of a list: arms, evaluation sets, or both if both differ."""
    names, sets = {item.name for item in items}, {item.evaluation_set for item in items}
    parts = (
        [item.name] * (len(names) > 1) + [item.evaluation_set] * (len(sets) > 1 or len(names) == 1)
        for item in items
    )
    return [*map(": ".join, parts)]


def _pictures_of_mean(request: Request, row: _Answered) -> Iterator[ReportSection]:
    """Yields the figures of a mean over tasks, starting with the tasks."""
    mean = row.comparison
    stem = f"{request.prefix}-{slug(mean.name)}-mean".strip("-")
    if mean.experiment is not None:
        metrics = {item.metric for item in row.counted}
        rows = {
            item.evaluation_set + f", {metric_name(item.metric)}" * (len(metrics) > 1): item
            for item in row.counted
        }
        yield ReportSection(
            f"{stem}-tasks",
            f"Differences of each task and their mean: {mean.name}",
            partial(figures.forest_figure, rows, mean.name, last=mean),
        )
    yield from _seeds_and_difference(mean, stem, row.answers)


def pictures_of(
    item: Comparison,
    pair: Pair,
    answers: Sequence[FurtherAnswer],
    truth_of: Callable[[PredictionSet, str], float | None] | None = None,
) -> Iterator[ReportSection]:
    """Yields the figures of one comparison."""
    yield from _bias_picture(item, pair, truth_of)
    yield from _seeds_and_difference(item, pair.file_stem, answers)


def _seeds_and_difference(
    item: Comparison, stem: str, answers: Sequence[FurtherAnswer]
) -> Iterator[ReportSection]:
    unit = words.drawn_unit(arms_of(item)) if item.base.num_runs > 1 else "run"
    yield ReportSection(
        f"{stem}-seeds",
        f"{metric_label(item.metric)} of every {unit} on {item.evaluation_set}",
        partial(figures.seed_figure, item),
    )
    if "percentile" in item.intervals:
        yield ReportSection(
            f"{stem}-difference",
            f"Bootstrap distribution and {item.confidence_level:.0%} intervals of {metric_name(item.metric)} "
            f"on {item.evaluation_set}: {item.ci.method} {words.estimate_text(item, item.ci)}, "
            f"percentile {words.estimate_text(item, item.intervals['percentile'])}",
            partial(figures.sources_figure, [item]),
            is_detail=True,
        )
    for figure in filter(None, (each.figure() for each in answers)):
        yield replace(figure, name=f"{stem}-{figure.name}")


def _bias_picture(
    item: Comparison, pair: Pair, truth_of: Callable[[PredictionSet, str], float | None] | None
) -> Iterator[ReportSection]:
    # A correlation would repeat the dots of the slope.
    measure = pair.measure
    slope = measure.replace("correlation", "slope")
    if measure not in OCCUPATION_MEASURES or (
        slope != measure and slope in pair.prediction_sets[0].measures
    ):
        return
    arms = []
    for predictions, arm in zip(pair.prediction_sets, (item.base, item.experiment), strict=False):
        assert arm is not None
        truth = truth_of(predictions, measure) if truth_of and measure.endswith("slope") else None
        interval = arm.ci if measure.endswith("slope") else None
        arms.append(predictions.occupation_scores(measure, arm.name, arm.seeds, truth, interval))
    bias = OCCUPATION_MEASURES[measure].averaged == "bias"
    label = "bias score of the occupation" if bias else "P(feminine pronoun)"
    names = " and ".join(arm.name for arm in arms)
    known = [f"{arm.truth:z.2f}" for arm in arms if arm.truth is not None]
    truths = f", dotted the true slopes ({' and '.join(known)})" if known else ""
    yield ReportSection(
        f"{pair.file_stem}-occupations",
        f"{label} against the share of women in the occupation, for {names}; thin: seeds{truths}",
        partial(figures.bias_figure, arms, label, item.evaluation_set),
    )
