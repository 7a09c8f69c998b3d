"""The tables and figures of the MultiBERTs paper from finished fine-tuning runs or from dumps.

    multiberts paper --gin_param='paper.run_dir = "results/paper"'
        --gin_param='paper.predictions = "results"'

What the runs do not allow is left out, and the report says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from multiberts.runs import console
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.identity import Identity, Values
from multiberts.runs.parameters import takes_fields_of
from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.conclusion import Comparison, DrawOrder
from multiberts.stats.paper import bootstrap_figures, design_figures
from multiberts.stats.paper import figures as paper_figures
from multiberts.stats.paper import tables as paper_tables
from multiberts.stats.paper.catalogue import Catalogue, Key, Roles, group_panels, group_scores
from multiberts.stats.paper.comparisons import BIAS, Bootstrap
from multiberts.stats.planning.power import Study
from multiberts.stats.presentation.comparison_tables import full_table
from multiberts.stats.presentation.figures import training_figure
from multiberts.stats.presentation.sections import (
    ReportSection,
    WrittenReport,
    slug,
    write_report,
)
from multiberts.stats.report.dumps import Dump, curve_of_dumps
from multiberts.stats.report.learning_rate_choice import (
    LearningRateChoice,
    dumps_of_runs,
    learning_rate_table,
)
from multiberts.stats.report.selection import finished_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REPORT = "report"


def _settle(parameters: Values, _: Values) -> None:
    parameters["parts"] = dict(parameters["parts"] or {})


IDENTITY = Identity(inputs=("predictions",), settle=_settle)


@dataclass(frozen=True, kw_only=True)
class PaperSettings:
    """Arguments of `paper`.

    Attributes:
      run_dir: of this report.
      predictions: folder (or folders) with finished fine-tuning runs, at any depth.
      base: which procedure is the base (see `stats.paper.catalogue.Roles`).
      incremental: which one is incremental CDA.
      full: which one is full CDA.
      original: which one is the published checkpoint.
      extra: which one has many fine-tuning runs per seed.
      early_step: the earlier step that the base's last is compared with; None: half of the last.
      parts: by evaluation set, the coordinate of its examples (or `label`) by which scores are
        drawn separately, such as {"hans": "label"}.
      num_bootstrap: bootstrap replicates of every comparison.
      bootstrap_seed: seed of their draws.
      confidence: level of all intervals.
      draws: `published`: those of the published library; or `keyed` (see `stats.compare`).
    """

    run_dir: str
    predictions: str | Sequence[str]
    base: str = "base"
    incremental: str = "cda_incr"
    full: str = "cda_full"
    original: str = "original"
    extra: str = "base_extra_seeds"
    early_step: int | None = None
    parts: Mapping[str, str] | None = None
    num_bootstrap: int = 1000
    bootstrap_seed: int = 42
    confidence: float = 0.95
    draws: DrawOrder = "published"


@takes_fields_of(PaperSettings)
def paper(settings: PaperSettings) -> None:
    """Writes `run_dir/report/` with `index.md`, `tables/`, `figures/` and `comparisons.csv`.

    What cannot be made from these runs is left out, and `index.md` gives the reason.

    Args:
      settings: the fields of `PaperSettings`.

    Raises:
      UserError: there are no runs, none of the base, or a file is damaged.

    Reference: Sellam et al., "The MultiBERTs" (ICLR 2022).
    """
    told = vars(settings)
    parameters, _ = IDENTITY.of(told)
    bootstrap = Bootstrap(**{field.name: told[field.name] for field in fields(Bootstrap)})
    roles = Roles(**{field.name: told[field.name] for field in fields(Roles)})
    if not 0 < bootstrap.confidence < 1 or bootstrap.num_bootstrap < 1:
        raise UserError(
            f"found confidence {bootstrap.confidence} and num_bootstrap {bootstrap.num_bootstrap}, "
            "expected a number between 0 and 1, and at least 1"
        )
    if bootstrap.draws not in get_args(DrawOrder):
        raise UserError(f"paper.draws is {bootstrap.draws!r}, expected keyed or published")
    runs = finished_runs(settings.predictions)
    directory = RunDirectory(
        settings.run_dir,
        stage="paper",
        parameters=parameters,
        inputs={"predictions": [str(run.directory) for run in runs]},
    )
    if directory.done:
        return
    _check_base([str(run.facts["procedure"]) for run in runs], roles)
    dumps, choices = dumps_of_runs(runs)
    with directory:
        target = directory.path / REPORT
        made = paper_report(
            dumps,
            target,
            roles=roles,
            bootstrap=bootstrap,
            early_step=settings.early_step,
            parts=settings.parts,
            choices=choices,
        )
        files = sorted(path for path in target.rglob("*") if path.is_file())
        directory.finish([str(path.relative_to(directory.path)) for path in files])
    console.report(f"{target / 'index.md'}: {len(made.written)} tables and figures")
    for name, reason in made.left_out.items():
        console.report(f"  left out {name}: {reason}")


def _check_base(procedures: Iterable[str], roles: Roles) -> None:
    """Raises DataError where none of the procedures is the base, to which all are compared."""
    if roles.base not in (distinct := set(procedures)):
        found = ", ".join(sorted(distinct)) or "none at all"
        raise DataError(
            f"found no dumps of the base procedure {roles.base!r}, only {found}; name the base "
            "procedure in roles"
        )


def paper_report(
    dumps: Sequence[Dump],
    directory: Path,
    *,
    roles: Roles | None = None,
    bootstrap: Bootstrap | None = None,
    early_step: int | None = None,
    parts: Mapping[str, str] | None = None,
    choices: Sequence[LearningRateChoice] = (),
) -> WrittenReport:
    """Writes all tables (.md, .tex, .csv) and figures (.png, .svg) that can be made.

    Args:
      dumps: predictions of all procedures (see `stats.report.dumps`); the last step of each is used.
      directory: gets `tables/`, `figures/`, `index.md` and `comparisons.csv`, or is replaced
        where it is such a folder already.
      roles: which procedure is which.
      bootstrap: how comparisons are made.
      early_step: the earlier step of the base that its last is compared with; by default half the
        last one.
      parts: by name of an evaluation set, the coordinate of its examples (or `label`) by which
        its scores are drawn separately, such as {"hans": "label"}.
      choices: how learning rates were chosen, for a table.

    Raises:
      DataError: there are no dumps, or none of the base procedure.
      UserError: the folder holds something else.
    """
    roles = roles or Roles()
    _check_base([dump.procedure for dump in dumps], roles)
    made = Catalogue(dumps, roles, bootstrap or Bootstrap(), early_step, dict(parts or {}), choices)
    return write_report(
        directory,
        "Tables and figures",
        (*_tables(made), *_figures(made)),
        {"comparisons.csv": lambda: full_table(made.made_comparisons).csv()},
    )


def _tables(made: Catalogue) -> Iterator[ReportSection]:
    comparison_table, score_table = paper_tables.comparison_table, paper_tables.score_table
    for name, caption, make in (
        (
            "scores", "Scores over pre-training seeds (the paper's figures of GLUE and SQuAD).",
            lambda: score_table(made.scores),
        ),
        (
            "winogender_paired", "Incremental CDA against base, paired (the paper's table 1).",
            lambda: comparison_table(made.paired, "Paired", "less"),
        ),
        (
            "winogender_unpaired",
            "Full against incremental CDA, unpaired, and with seeds or examples alone resampled "
            "(the paper's table 2).",
            lambda: comparison_table([made.unpaired[0], *made.sources], "Unpaired", "less"),
        ),
        (
            "winogender_checkpoints",
            "Two single checkpoints, examples alone (the paper's table 4).",
            lambda: comparison_table([made.checkpoints], "Two checkpoints"),
        ),
        (
            "winogender_groups",
            "Winogender scores of every group of runs (the base's spread: the paper's appendix D).",
            lambda: score_table(group_scores(made.winogender_groups)),
        ),
        (
            "steps", "Early against late checkpoints, paired (the paper's appendix E.1).",
            lambda: comparison_table(made.steps, "Steps"),
        ),
        (
            "original", "Against the original BERT, a fixed baseline (the paper's appendix E.2).",
            lambda: comparison_table(made.original, "Against one checkpoint"),
        ),
        (
            "agreement", "Agreement of two runs (the paper's table of instance-level agreement).",
            lambda: paper_tables.agreement_table(made.agreements),
        ),
        (
            "family_steps", "Early against late checkpoints, corrected for the number of tasks.",
            lambda: paper_tables.family_table(made.family_of_steps),
        ),
        (
            "components", "Where the variance of the base's scores comes from.",
            lambda: paper_tables.component_table(made.components),
        ),
    ):  # fmt: skip
        yield ReportSection(name, caption, make)
    if made.choices:
        yield ReportSection(
            "learning_rates", "Learning rates and the scores they were chosen by.",
            lambda: learning_rate_table(made.choices),
        )  # fmt: skip


def _figures(made: Catalogue) -> Iterator[ReportSection]:
    score_figure, roles = paper_figures.score_figure, made.roles
    parts: dict[str, tuple[str, Callable[[], Figure]]] = {
        f"parts_{slug(name)}": (
            f"Scores over pre-training seeds on the parts of {name} by {by}.",
            partial(lambda *key: score_figure(made.part_panels(*key), key[0], True), name, by),
        )
        for name, by in made.parts.items()
    }
    pairs: dict[str, tuple[str, Callable[[], Comparison]]] = {
        "paired": ("Base and incremental CDA", lambda: made.paired[-1]),
        "unpaired": ("Incremental and full CDA", lambda: made.unpaired[-1]),
        "steps": ("Early and late checkpoints", lambda: made.steps[0]),
        "checkpoints": ("Two single checkpoints", lambda: made.checkpoints),
    }
    biased = (roles.base, roles.incremental, roles.full)
    sections: dict[str, tuple[str, Callable[[], Figure]]] = {
        "scores": (
            "Scores over pre-training seeds, with the original BERT.",
            lambda: score_figure(made.panels),
        ),
        **parts,
        "bias_by_seed": (
            "Bias correlation of every seed before and after incremental CDA.",
            partial(_bias_by_seed, made, roles.base, roles.incremental),
        ),
        "bias_noise": (
            "Bias correlation of seeds with many fine-tuning runs each.",
            partial(_bias_by_seed, made, roles.extra),
        ),
        "winogender_groups": (
            "Winogender scores of every group of runs, a dot per seed.",
            lambda: score_figure(group_panels(made.winogender_groups)),
        ),
        **{
            f"bootstrap_{name}": (
                f"{caption}: bootstrap distributions.",
                partial(lambda find: bootstrap_figures.bootstrap_figure(find()), find),
            )
            for name, (caption, find) in pairs.items()
        },
        "sources": (
            "Bootstrap distributions when seeds, examples or both are resampled.",
            lambda: bootstrap_figures.sources_figure(made.sources),
        ),
        "occupations": (
            "Bias of occupations against their share of women.",
            lambda: paper_figures.occupations_figure(made.biased(*biased)),
        ),
        **_training(made),
        "agreement": (
            "Agreement of two runs with the same and with different pre-training seeds.",
            lambda: paper_figures.agreement_figure(made.agreements),
        ),
        "family_steps": (
            "Early against late checkpoints on all tasks.",
            lambda: design_figures.family_figure(made.family_of_steps),
        ),
        "variance": ("Where the variance comes from.", partial(_variance, made)),
        "power": ("Power of a paired comparison by number of seeds.", partial(_power, made)),
    }
    for name, (caption, make) in sections.items():
        yield ReportSection(f"figure_{name}", caption, make)


def _bias_by_seed(made: Catalogue, *procedures: str) -> Figure:
    arms = [made.biased(name)[0].run_scores(BIAS, name) for name in procedures]
    return paper_figures.seeds_figure(arms, BIAS)


def _training(made: Catalogue) -> dict[str, tuple[str, Callable[[], Figure]]]:
    steps: dict[Key, list[Dump]] = {}
    for dump in made.dumps:
        if dump.procedure == made.roles.base and dump.step is not None:
            steps.setdefault((dump.task, dump.evaluation_set), []).append(dump)
    return {
        f"training_{slug(dumps[0].set_name)}": (
            f"Score on {dumps[0].set_name} during pre-training.",
            partial(_training_figure, made, dumps),
        )
        for dumps in steps.values()
        if len(dumps) > 1
    }


def _training_figure(made: Catalogue, dumps: Sequence[Dump]) -> Figure:
    measure = dumps[0].measures[0]
    curve = curve_of_dumps(dumps, measure)
    level = made.bootstrap.confidence
    return training_figure([curve], dumps[0].set_name, measure.replace("_", " "), level)


def _variance(made: Catalogue) -> Figure:
    components, sizes = {}, {}
    for dump in made.last(made.roles.base).values():
        measure = dump.measures[0]
        name = f"{dump.set_name}, {measure.replace('_', ' ')}"
        components[name] = dump.components(measure)
        scores = dump.run_scores(measure)
        number = len(scores.seeds)
        sizes[name] = (number, scores.num_runs / number, dump.data.sizes["example"])
    return design_figures.variance_figure(components, sizes)


def _power(made: Catalogue) -> Figure:
    try:
        sides = [made.biased(name)[0] for name in (made.roles.base, made.roles.incremental)]
        measure = BIAS
    except DataError:
        sides = list(made.pairs_of_steps[0])
        measure = sides[0].measures[0]
    found = sides[0].difference_components(sides[1], measure)
    size = sides[0].measured(measure)[0].sizes["example"]
    number = len(sides[0].run_scores(measure).seeds)
    study = Study(found, number, num_examples=size)
    least = study.minimum_detectable_effect()
    effects = [float(f"{least * factor:.2g}") for factor in (0.75, 1, 1.25, 1.5)]
    title = f"{sides[1].procedure} against {sides[0].procedure}, {measure.replace('_', ' ')}"
    return design_figures.power_figure(
        effects, range(2, 2 * max(number, 10) + 1), study, title=title
    )
