"""Every table and figure of the MultiBERTs paper that some dumps allow, written into one folder.

`paper_report` takes dumps (see `stats.report.dumps`) and says which procedure plays which part. What
cannot be made is left out and named, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from multiberts.runs.errors import UserError
from multiberts.runs.figure_style import save_figure
from multiberts.runs.files import replaced
from multiberts.stats.bootstrap.arms import DataError
from multiberts.stats.bootstrap.conclusion import Comparison
from multiberts.stats.paper import (
    bootstrap_figures,
    design_figures,
)
from multiberts.stats.paper import (
    figures as paper_figures,
)
from multiberts.stats.paper import (
    tables as paper_tables,
)
from multiberts.stats.paper.catalogue import Catalogue, Key, Roles
from multiberts.stats.paper.comparisons import BIAS, Bootstrap
from multiberts.stats.paper.winogender_groups import group_panels, group_scores
from multiberts.stats.planning.power import Study
from multiberts.stats.presentation import tables
from multiberts.stats.presentation.figures import training_figure
from multiberts.stats.presentation.table_writer import Table
from multiberts.stats.report.dumps import Dump
from multiberts.stats.report.selection import Choice

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PaperReport:
    """What a report consists of.

    Attributes:
      written: by name of a table or figure, its files relative to the folder.
      left_out: by name, why it could not be made.
    """

    written: dict[str, tuple[str, ...]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def check_base(procedures: Iterable[str], roles: Roles) -> None:
    """Refuses dumps without the base procedure, to which all others are held.

    Raises:
      DataError: none of the procedures is the base.
    """
    if roles.base not in (distinct := set(procedures)):
        found = ", ".join(sorted(distinct)) or "none at all"
        raise DataError(
            f"found no dumps of the base procedure {roles.base!r}, only {found}; say in roles "
            "which procedure is the base"
        )


def paper_report(
    dumps: Sequence[Dump],
    directory: Path,
    *,
    roles: Roles | None = None,
    bootstrap: Bootstrap | None = None,
    early_step: int | None = None,
    parts: Mapping[str, str] | None = None,
    choices: Sequence[Choice] = (),
) -> PaperReport:
    """Writes all tables (.md, .tex, .csv) and figures (.png, .svg) that can be made.

    Args:
      dumps: predictions of all procedures (see `stats.report.dumps`). Of each, the last step counts.
      directory: gets `tables/`, `figures/`, `index.md` and `comparisons.csv`, or is replaced
        where it is such a folder already.
      roles: which procedure is which.
      bootstrap: how comparisons are made.
      early_step: the earlier step of the base that its last is compared with; half the last one
        unless said.
      parts: by name of an evaluation set, the coordinate of its examples (or `label`) by which
        its scores are drawn apart, such as {"hans": "label"}.
      choices: how learning rates were chosen, for a table.

    Raises:
      DataError: no dumps, or none of the base procedure.
      UserError: the folder holds something else.
    """
    roles = roles or Roles()
    check_base([dump.procedure for dump in dumps], roles)
    if directory.exists() and not (directory / "index.md").is_file():
        raise UserError(f"{directory} exists and is no report of this kind; give another folder")
    paper = Catalogue(
        dumps, roles, bootstrap or Bootstrap(), early_step, dict(parts or {}), choices
    )
    report = PaperReport()
    lines = ["# Tables and figures", ""]
    with replaced(directory) as folder:
        (folder / "tables").mkdir(parents=True)
        (folder / "figures").mkdir()
        for name, caption, make in (*_tables(paper), *_figures(paper)):
            try:
                made = make()
            except UserError as error:
                report.left_out[name] = str(error)
                continue
            report.written[name] = _write(folder, name, made)
            lines += [f"## {name}", "", caption, "", *_shown(name, made), ""]
        if report.left_out:
            lines += ["## Left out", ""]
            lines += [f"- {name}: {reason}" for name, reason in report.left_out.items()]
        items = paper.made_comparisons
        (folder / "comparisons.csv").write_text(tables.csv_table(items), encoding="utf-8")
        (folder / "index.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return report


def _write(folder: Path, name: str, made: Table | Figure) -> tuple[str, ...]:
    if isinstance(made, Table):
        texts = {"md": made.markdown(), "tex": made.latex(), "csv": made.csv()}
        for ending, text in texts.items():
            (folder / "tables" / f"{name}.{ending}").write_text(text, encoding="utf-8")
        return tuple(f"tables/{name}.{ending}" for ending in texts)
    return tuple(f"figures/{file.name}" for file in save_figure(made, folder / "figures" / name))


def _shown(name: str, made: Table | Figure) -> list[str]:
    if isinstance(made, Table):
        return made.markdown().splitlines()
    return [f"![{name}](figures/{name}.png)"]


Item = tuple[str, str, Callable[[], "Table | Figure"]]


def _tables(paper: Catalogue) -> Iterator[Item]:
    """Name, caption and maker of every table."""
    write = paper_tables.comparison_table
    yield (
        "scores", "Scores over pre-training seeds (the paper's figures of GLUE and SQuAD).",
        lambda: paper_tables.score_table(paper.scores),
    )  # fmt: skip
    yield (
        "winogender_paired", "Incremental CDA against base, paired (the paper's table 1).",
        lambda: write(paper.paired, "Paired", "less"),
    )  # fmt: skip
    yield (
        "winogender_unpaired",
        "Full against incremental CDA, unpaired, and with seeds or examples alone resampled "
        "(the paper's table 2).",
        lambda: write([paper.unpaired[0], *paper.sources], "Unpaired", "less"),
    )
    yield (
        "winogender_checkpoints", "Two single checkpoints, examples alone (the paper's table 4).",
        lambda: write([paper.checkpoints], "Two checkpoints"),
    )  # fmt: skip
    yield (
        "winogender_groups",
        "Winogender scores of every group of runs (the base's spread: the paper's appendix D).",
        lambda: paper_tables.score_table(group_scores(paper.winogender_groups)),
    )  # fmt: skip
    yield (
        "steps", "Early against late checkpoints, paired (the paper's appendix E.1).",
        lambda: write(paper.steps, "Steps"),
    )  # fmt: skip
    yield (
        "original", "Against the original BERT, a fixed baseline (the paper's appendix E.2).",
        lambda: write(paper.original, "Against one checkpoint"),
    )  # fmt: skip
    yield (
        "agreement", "Agreement of two runs (the paper's table of instance-level agreement).",
        lambda: paper_tables.agreement_table(paper.agreements),
    )  # fmt: skip
    yield (
        "family_steps", "Early against late checkpoints, corrected for the number of tasks.",
        lambda: paper_tables.family_table(paper.family_of_steps),
    )  # fmt: skip
    yield (
        "components", "Where the variance of the base's scores comes from.",
        lambda: paper_tables.component_table(paper.components),
    )  # fmt: skip
    if paper.choices:
        yield (
            "learning_rates", "Learning rates and the scores they were chosen by.",
            lambda: paper_tables.learning_rate_table(paper.choices),
        )  # fmt: skip


def _figures(paper: Catalogue) -> Iterator[Item]:
    """Name, caption and maker of every figure."""
    yield (
        "figure_scores", "Scores over pre-training seeds beside the original BERT.",
        lambda: paper_figures.score_figure(paper.panels),
    )  # fmt: skip
    for evaluation_set, by in paper.parts.items():
        yield (
            f"figure_parts_{_slug(evaluation_set)}",
            f"Scores over pre-training seeds on the parts of {evaluation_set} by {by}.",
            partial(_parts, paper, evaluation_set, by),
        )
    yield (
        "figure_bias_by_seed", "Bias correlation of every seed before and after incremental CDA.",
        lambda: _bias_by_seed(paper, [paper.roles.base, paper.roles.incremental]),
    )  # fmt: skip
    yield (
        "figure_bias_noise", "Bias correlation of seeds with many fine-tuning runs each.",
        lambda: _bias_by_seed(paper, [paper.roles.extra]),
    )  # fmt: skip
    yield (
        "figure_winogender_groups", "Winogender scores of every group of runs, a dot a seed.",
        lambda: paper_figures.score_figure(group_panels(paper.winogender_groups)),
    )  # fmt: skip
    pairs: tuple[tuple[str, str, Callable[[], Comparison]], ...] = (
        ("paired", "Base and incremental CDA", lambda: paper.paired[-1]),
        ("unpaired", "Incremental and full CDA", lambda: paper.unpaired[-1]),
        ("steps", "Early and late checkpoints", lambda: paper.steps[0]),
        ("checkpoints", "Two single checkpoints", lambda: paper.checkpoints),
    )
    for name, caption, find in pairs:
        yield (
            f"figure_bootstrap_{name}", f"{caption}: bootstrap distributions.",
            partial(_distributions, find),
        )  # fmt: skip
    yield (
        "figure_sources", "What resampling seeds, examples or both leaves in.",
        lambda: bootstrap_figures.sources_figure(paper.sources),
    )  # fmt: skip
    yield (
        "figure_occupations", "Bias of occupations against their share of women.",
        partial(_occupations, paper),
    )  # fmt: skip
    yield from _training(paper)
    yield (
        "figure_agreement", "Agreement of two runs, of one pre-training seed and of two.",
        lambda: paper_figures.agreement_figure(paper.agreements),
    )  # fmt: skip
    yield (
        "figure_family_steps", "Early against late checkpoints on all tasks.",
        lambda: design_figures.family_figure(paper.family_of_steps),
    )  # fmt: skip
    yield "figure_variance", "Where the variance comes from.", partial(_variance, paper)
    yield "figure_power", "Power of a paired comparison by number of seeds.", partial(_power, paper)


def _parts(paper: Catalogue, evaluation_set: str, by: str) -> Figure:
    panels = paper.part_panels(evaluation_set, by)
    return paper_figures.score_figure(panels, evaluation_set, one_scale=True)


def _distributions(find: Callable[[], Comparison]) -> Figure:
    return bootstrap_figures.bootstrap_figure(find())


def _bias_by_seed(paper: Catalogue, procedures: Sequence[str]) -> Figure:
    arms = [paper.biased(name).run_scores(BIAS, name) for name in procedures]
    return paper_figures.seeds_figure(arms, BIAS)


def _occupations(paper: Catalogue) -> Figure:
    names = (paper.roles.base, paper.roles.incremental, paper.roles.full)
    found = [dump for name in names for dump in paper.last(name).values() if BIAS in dump.measures]
    if not found:
        raise DataError(f"found no dump with the measure {BIAS}")
    return paper_figures.occupations_figure(found)


def _training(paper: Catalogue) -> Iterator[Item]:
    steps: dict[Key, list[Dump]] = {}
    for dump in paper.dumps:
        if dump.procedure == paper.roles.base and dump.step is not None:
            steps.setdefault((dump.task, dump.evaluation_set), []).append(dump)
    for dumps in steps.values():
        if len(dumps) > 1:
            yield (
                f"figure_training_{_slug(dumps[0].set_name)}",
                f"Score on {dumps[0].set_name} along pre-training.",
                partial(_training_figure, paper, dumps),
            )


def _training_figure(paper: Catalogue, dumps: Sequence[Dump]) -> Figure:
    measure = dumps[0].measures[0]
    curve = paper_figures.curve_of_dumps(dumps, measure)
    level = paper.bootstrap.confidence
    return training_figure([curve], dumps[0].set_name, measure.replace("_", " "), level)


def _variance(paper: Catalogue) -> Figure:
    components, sizes = {}, {}
    for dump in paper.last(paper.roles.base).values():
        measure = dump.measures[0]
        name = f"{dump.set_name}, {measure.replace('_', ' ')}"
        components[name] = dump.components(measure)
        scores = dump.run_scores(measure)
        number = len(scores.seeds)
        sizes[name] = (number, scores.num_runs / number, dump.data.sizes["example"])
    return design_figures.variance_figure(components, sizes)


def _power(paper: Catalogue) -> Figure:
    try:
        sides = [paper.biased(name) for name in (paper.roles.base, paper.roles.incremental)]
        measure = BIAS
    except DataError:
        sides = list(paper.pairs_of_steps[0])
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


def _slug(text: str) -> str:
    from multiberts.stats.report.analysis import _slug as slug

    return slug(text)
