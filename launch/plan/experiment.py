"""An experiment: from its lists of corpora, procedures, seeds, steps, tasks and rates to its runs.

Nothing here runs anything.
"""

from __future__ import annotations

import dataclasses
import graphlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from multiberts.bert.checkpoint.hub import is_name
from multiberts.finetune.task import task_named
from multiberts.launch.plan.graph import DATA, WORLD, Graph, complete, placed_in
from multiberts.launch.plan.input_digests import InputDigests
from multiberts.launch.plan.planned_run import (
    CHECKPOINT_STAGE,
    PREDICTIONS_STAGE,
    Output,
    PlannedRun,
    kept_steps,
    last_of_seeds,
    stage_identity,
    vocabulary_size,
)
from multiberts.launch.plan.seed_design import (
    FinetuneSource,
    PretrainSource,
    SeedDesign,
    seeds_of_runs,
)
from multiberts.runs import console
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import (
    NonNegativeInt,
    PositiveFloat,
    annotations_of,
    check_types,
)

Folds = Sequence[NonNegativeInt | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Settings of an experiment; in Gin each is `launch.<name>`.

    A setting "by task" is one value for all tasks, or a mapping from each task to its value.

    Attributes:
      corpora: for each corpus, arguments of `prepare`.
      procedures: for each way of pre-training, arguments of `pretrain`; `corpus` names one of
        `corpora` (which may be left out if there is only one), `evaluation_corpus` another (or gives
        the directory of a prepared one), `initial_checkpoint` a procedure: training starts from its
        last checkpoint of the same seed; or `hub:<repository>`.
      pretrain_seeds: seeds of every procedure.
      tasks: for each task, arguments of `finetune`; `task` is the entry's name unless given.
      learning_rates: of fine-tuning, by task. Empty: that of the task's arguments.
      finetune_seeds: by task.
      held_out_folds: see `finetune`, by task; tasks that are not named hold out nothing. [None, 0]
        makes the runs on all training examples and those that leave out the first fifth.
      pretrain_sources: sources of randomness whose seeds are varied apart, each over pretrain_seeds; the
        others have the first of them in every run, and pretrain_seed only numbers the runs, from 0. Empty:
        pretrain_seed is the seed of all.
      finetune_sources: the same of fine-tuning, over finetune_seeds.
      seed_design: `crossed`: every seed of each source with every seed of the others; `one_at_a_time`: for
        each seed one run, and per source one more that differs in this source alone.
      finetune_steps: the steps whose checkpoints are fine-tuned, by task; None: all that are kept. A
        task's steps may be given by procedure; procedures that are not named do without the task.
      world: arguments of `make_world`, or None. Input paths `world:<file>` of other stages lie in it,
        and `<corpus>:<file>` in that of another corpus (`<corpus>:.` is the corpus itself).
      report: arguments of `report` but `predictions`, or None for no report.
      paper: arguments of `paper` but `predictions`, or None for none.
      data: folder that input paths `data:<file>` lie in.
    """

    corpora: Mapping[str, Mapping[str, Any]]
    procedures: Mapping[str, Mapping[str, Any]]
    pretrain_seeds: Sequence[NonNegativeInt]
    tasks: Mapping[str, Mapping[str, Any]]
    learning_rates: Sequence[PositiveFloat] | Mapping[str, Sequence[PositiveFloat]] = ()
    finetune_seeds: Sequence[NonNegativeInt] | Mapping[str, Sequence[NonNegativeInt]] = (0,)
    held_out_folds: Folds | Mapping[str, Folds] = (None,)
    pretrain_sources: Sequence[PretrainSource] = ()
    finetune_sources: Sequence[FinetuneSource] = ()
    seed_design: SeedDesign = "crossed"
    finetune_steps: Sequence[NonNegativeInt] | Mapping[str, Any] | None = None
    world: Mapping[str, Any] | None = None
    report: Mapping[str, Any] | None = None
    paper: Mapping[str, Any] | None = None
    data: str | None = None

    def axes(self, entry: str) -> Axes:
        """Returns what the fine-tuning runs of a checkpoint on a task differ in."""
        folds = self.held_out_folds
        seeds = of_task("launch.finetune_seeds", self.finetune_seeds, entry)
        apart = self._seeds_apart(seeds, self.finetune_sources, get_args(FinetuneSource))
        return Axes(
            of_task("launch.learning_rates", self.learning_rates, entry),
            list(apart) if apart else seeds,
            folds.get(entry, (None,)) if isinstance(folds, Mapping) else folds,
            apart,
        )

    def steps(self, entry: str) -> Any:
        """Returns which checkpoints are fine-tuned on a task: steps, or steps by procedure, or None."""
        return of_task("launch.finetune_steps", self.finetune_steps, entry)

    @property
    def pretraining_seeds(self) -> dict[int, dict[str, int]]:
        """Returns the seeds of single sources by pretrain_seed; none where none are varied apart."""
        # Masks stay as the corpus has them unless they are varied.
        held = [name for name in get_args(PretrainSource) if name != "mask_seed"]
        apart = self._seeds_apart(self.pretrain_seeds, self.pretrain_sources, held)
        return apart or {seed: {} for seed in self.pretrain_seeds}

    def _seeds_apart(
        self, seeds: Sequence[int], sources: Sequence[str], held: Sequence[str]
    ) -> dict[int, dict[str, int]]:
        if not sources or not seeds:
            return {}
        return dict(enumerate(seeds_of_runs(sources, held, seeds, self.seed_design)))


@dataclasses.dataclass(frozen=True)
class Axes:
    """Axes along which fine-tuning runs of one checkpoint on one task differ; without learning rates that of
    the task's arguments is taken.
    """

    learning_rates: Sequence[float]
    finetune_seeds: Sequence[int]
    held_out_folds: Sequence[int | None] = (None,)
    apart: Mapping[int, Mapping[str, int]] = dataclasses.field(default_factory=dict)


def make_plan(
    experiment: Experiment,
    *,
    imported: Sequence[PlannedRun] = (),
    digests: InputDigests | None = None,
) -> list[PlannedRun]:
    """Lists all runs of an experiment, each after its parents.

    Args:
      imported: runs that are done (see `launch.imports.register`): checkpoints, which are fine-tuned and
        which procedures may start from as from those of the plan, and predictions. A task that none
        of the checkpoints is meant for is then left out, and a line reports it.
      digests: what is known of the content of input files; None: all are read.

    Returns:
      The runs in an order in which they could be carried out one by one.
    """
    corpora, procedures, tasks = experiment.corpora, experiment.procedures, experiment.tasks
    _check_lists(experiment, bool(imported))
    graph = Graph(digests)
    graph.keep(imported)
    checkpoints = [run for run in imported if run.stage == CHECKPOINT_STAGE]
    predicted = [run for run in imported if run.stage == PREDICTIONS_STAGE]
    places: dict[str, PlannedRun | Path] = {}
    if experiment.data is not None:
        places[DATA] = Path(experiment.data)
    if experiment.world is not None:
        places[WORLD] = graph.add("make_world", "world", "world", experiment.world)
    corpus_runs: dict[str, PlannedRun] = {}
    uses: dict[str, set[str]] = {}
    for name, arguments in corpora.items():
        parameters = complete("prepare", f"prepare {name}", arguments)
        _, inputs = stage_identity("prepare").of(parameters)
        uses[name] = placed_in(inputs) & corpora.keys()
    for name in _in_order(uses, "launch.corpora", "{name}/prepare uses files of {used}"):
        corpus_runs[name] = graph.add(
            "prepare",
            f"prepare {name}",
            f"corpora/{name}",
            corpora[name],
            {**places, **corpus_runs},
        )
    pretrained = last_of_seeds(checkpoints)
    starts: dict[str, set[str]] = {}
    for name, arguments in procedures.items():
        start = arguments.get("initial_checkpoint")
        is_imported = start not in procedures and any(start == known for known, _ in pretrained)
        if start is None or is_name(start) or is_imported:
            starts[name] = set()
        elif start in procedures:
            starts[name] = {start}
        else:
            raise UserError(
                f"{name}/pretrain.initial_checkpoint is {start!r}, expected another of "
                f"launch.procedures ({', '.join(procedures)}); name one of them"
            )
    relation = "{name}/pretrain.initial_checkpoint is '{used}'"
    for procedure in _in_order(starts, "launch.procedures", relation):
        for seed, apart_seeds in experiment.pretraining_seeds.items():
            given = {**apart_seeds, **procedures[procedure]}
            if "initial_checkpoint" in given:  # whose weights it starts from
                given.pop("initialisation_seed", None)
            pretrained[procedure, seed] = _add_pretraining(
                graph, procedure, given, seed, corpus_runs, pretrained
            )
    parents = (*checkpoints, *(run for run in pretrained.values() if run.stage == "pretrain"))
    finetuned: list[PlannedRun] = []
    for parent in parents:
        procedure, seed = parent.parameters["procedure"], parent.parameters["pretrain_seed"]
        for step, (entry, arguments) in itertools.product(kept_steps(parent), tasks.items()):
            steps = experiment.steps(entry)
            if isinstance(steps, Mapping):
                steps = steps.get(procedure, ())
            if steps is None or step in steps:
                checkpoint = Output(parent, f"checkpoints/step_{step}")
                finetuned += finetuning_runs(
                    graph,
                    {"task": entry, **arguments, "checkpoint": checkpoint},
                    f"finetune/{arguments.get('task', entry)}/{procedure}-seed_{seed}-step_{step}",
                    experiment.axes(entry),
                    {**places, **corpus_runs},
                )
    _refuse_unused(experiment, finetuned, bool(imported))
    _note_missing_steps(experiment, parents)
    finetuned += predicted
    if finetuned:
        predictions = {"predictions": [Output(run) for run in dict.fromkeys(finetuned)]}
        graph.add("score", "scores", "scores", predictions)
        if experiment.report is not None:
            graph.add("report", "report", "report", {**predictions, **experiment.report}, places)
        if experiment.paper is not None:
            graph.add("paper", "paper", "paper", {**predictions, **experiment.paper})
    return graph.runs


def _add_pretraining(
    graph: Graph,
    procedure: str,
    given: Mapping[str, Any],
    seed: int,
    corpus_runs: Mapping[str, PlannedRun],
    pretrained: Mapping[tuple[str, int], PlannedRun],
) -> PlannedRun:
    """Adds the pre-training of one seed of one procedure."""
    arguments = {"procedure": procedure, **given, "pretrain_seed": seed}
    corpus = str(arguments.get("corpus", *(corpus_runs if len(corpus_runs) == 1 else [None])))
    if corpus not in corpus_runs:
        raise UserError(
            f"{procedure}/pretrain.corpus is {corpus!r}, expected one of launch.corpora "
            f"({', '.join(corpus_runs) or 'empty'}); name one of them"
        )
    arguments["corpus"] = Output(corpus_runs[corpus])
    size = vocabulary_size(arguments["corpus"])
    model = arguments.get("model")
    given_size = model.get("vocab_size", size) if isinstance(model, Mapping) else size
    if None not in (size, given_size) and given_size != size:
        raise UserError(
            f"{procedure}/pretrain.model['vocab_size'] is {given_size!r}, expected {size}, the size of the "
            f"vocabulary of the corpus {corpus}, or no such field; leave it out"
        )
    held_out: str | None = arguments.get("evaluation_corpus")
    if held_out is not None and held_out in corpus_runs:
        arguments["evaluation_corpus"] = Output(corpus_runs[held_out])
    elif held_out is not None and not Path(held_out).is_dir():
        raise UserError(
            f"{procedure}/pretrain.evaluation_corpus is {held_out!r}, expected one of launch.corpora "
            f"({', '.join(corpus_runs)}) or the directory of a prepared corpus; name one of them"
        )
    if (procedure, seed) in pretrained:
        raise UserError(
            f"seed {seed} of {procedure} was imported and is to be pre-trained, too; give the procedure "
            "another name, or leave it out of launch.procedures"
        )
    start = arguments.get("initial_checkpoint")
    if start is not None and not is_name(start):
        if (start, seed) not in pretrained:
            raise UserError(
                f"{procedure}/pretrain.initial_checkpoint is {start!r}, of which no seed {seed} was "
                "imported; import it, or leave the seed out of launch.pretrain_seeds"
            )
        parent = pretrained[start, seed]
        arguments["initial_checkpoint"] = Output(
            parent, f"checkpoints/step_{parent.parameters['num_steps']}"
        )
    directory = f"pretrain/{arguments['procedure']}/seed_{seed}"
    return graph.add("pretrain", f"pretrain {procedure} seed {seed}", directory, arguments)


def finetuning_runs(
    graph: Graph,
    arguments: Mapping[str, Any],
    folder: str,
    axes: Axes,
    places: Mapping[str, PlannedRun | Path] = MappingProxyType({}),
) -> Iterator[PlannedRun]:
    """Adds all fine-tuning of one checkpoint on one task to a graph, and yields it.

    Args:
      arguments: of `finetune`, the task and the checkpoint among them.
      folder: of the runs' directories; its last part names the checkpoint.
      places: as in `Graph.add`.
    """
    name = f"{arguments['task']} {folder.rpartition('/')[2]}"
    if not is_trained(arguments):
        yield graph.add("finetune", name, f"{folder}/run", arguments, places)
        return
    rates = axes.learning_rates or (complete("finetune", name, arguments)["learning_rate"],)
    for rate, seed, fold in itertools.product(rates, axes.finetune_seeds, axes.held_out_folds):
        given = {**axes.apart.get(seed, {}), **arguments}
        given |= {"learning_rate": rate, "finetune_seed": seed}
        ending = "" if fold is None else f" fold {fold}"
        yield graph.add(
            "finetune",
            f"{name} learning rate {rate:g} seed {seed}{ending}",
            f"{folder}/lr_{rate:g}-ft_seed_{seed}{ending.replace(' fold ', '-fold_')}",
            given if fold is None else {**given, "held_out_fold": fold},
            places,
        )


def is_trained(arguments: Mapping[str, Any]) -> bool:
    """Returns whether fine-tuning trains anything; if not, one run per checkpoint is enough."""
    return task_named(
        arguments["task"],
        arguments.get("labels"),
        arguments.get("task_modules", ()),
        arguments.get("options"),
    ).trains


def _in_order(uses: Mapping[str, set[str]], setting: str, relation: str) -> list[str]:
    """Returns the names, each after those it uses; a circle is refused.

    Args:
      relation: says of `{name}` that it uses `{used}`.
    """
    sorter = graphlib.TopologicalSorter(uses)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        circle = error.args[1][::-1]
        said = relation.format(name=circle[0], used=circle[1])
        raise UserError(
            f"{said}, which closes a circle in {setting} ({' -> '.join(circle)}); let one of them "
            "do without the next"
        ) from error
    ordered: list[str] = []
    while sorter.is_active():
        ready = sorter.get_ready()
        ordered += [name for name in uses if name in ready]
        sorter.done(*ready)
    return ordered


def _refuse_seeds(
    stage: str, entries: Mapping[str, Mapping[str, Any]], sources: Sequence[str]
) -> None:
    """Refuses a stage's own seeds where those of the experiment would overrule them."""
    for entry, arguments in entries.items():
        for name in (f"{stage}_seed", *sources):
            if name in arguments:
                cure = f", or leave {name} out of launch.{stage}_sources" if name in sources else ""
                raise UserError(
                    f"{entry}/{stage}.{name} is set; set launch.{stage}_seeds instead{cure}"
                )


def _check_lists(experiment: Experiment, has_imports: bool) -> None:
    """Refuses values of another type, and lists that leave a procedure or a task without runs."""
    procedures, tasks = experiment.procedures, experiment.tasks
    check_types("launch", vars(experiment), annotations_of(Experiment))
    if procedures and not experiment.pretrain_seeds:
        raise UserError(
            f"launch.pretrain_seeds is empty, so {', '.join(procedures)} would have no runs; give at "
            "least one seed, such as [0]"
        )
    _refuse_seeds("pretrain", procedures, experiment.pretrain_sources)
    _refuse_seeds("finetune", tasks, experiment.finetune_sources)
    if tasks and not procedures and not has_imports:
        raise UserError(
            f"launch.procedures is empty, so {', '.join(tasks)} would have no checkpoint to start "
            "from; name a procedure, import checkpoints (`multiberts launch import`), or empty "
            "launch.tasks"
        )
    for entry, arguments in tasks.items():
        axes = experiment.axes(entry)
        if not axes.held_out_folds:
            raise UserError(
                f"launch.held_out_folds is empty for {entry}, which would have no runs; give [None]"
            )
        if not axes.finetune_seeds and is_trained({"task": entry, **arguments}):
            raise UserError(
                f"launch.finetune_seeds is empty for {entry}, which would have no runs; give at least "
                "one seed, such as [0]"
            )


def of_task(setting: str, values: Any, entry: str) -> Any:
    """Returns a setting of one task: its value by task, or the one for all."""
    if not isinstance(values, Mapping):
        return values
    if entry not in values:
        raise UserError(
            f"{setting} is given by task ({', '.join(values)}) but not for {entry!r}; add that task"
        )
    return values[entry]


def _refuse_unused(experiment: Experiment, finetuned: Sequence[PlannedRun], may_lack: bool) -> None:
    """Refuses a task without a run; some imported checkpoints may be missing."""
    present = {run.parameters["task"] for run in finetuned}
    for entry, arguments in experiment.tasks.items():
        if arguments.get("task", entry) in present:
            continue
        steps = experiment.steps(entry)
        if not may_lack:
            raise UserError(
                f"launch.finetune_steps {steps} holds no step that pre-training keeps, so {entry} would "
                "have no runs; correct it or pretrain.checkpoint_steps"
            )
        console.report(f"note: {entry} is left out: no checkpoint that was imported is of {steps}")


def _note_missing_steps(experiment: Experiment, parents: Sequence[PlannedRun]) -> None:
    """Says which checkpoints tasks ask for that no run keeps: after training they cannot be had."""
    kept: dict[str, set[int]] = {}
    for run in parents:
        kept.setdefault(run.parameters["procedure"], set()).update(kept_steps(run))
    # Steps for all procedures are kept if one of them does.
    every = ", ".join(kept)
    kept[every] = set().union(*kept.values())
    missing: dict[tuple[str, int], list[str]] = {}
    for entry in experiment.tasks:
        wanted = experiment.steps(entry)
        for procedure, steps in (
            wanted if isinstance(wanted, Mapping) else {every: wanted}
        ).items():
            # A procedure that is neither planned nor imported is left out knowingly.
            if kept.get(procedure):
                for step in sorted({*(steps or ())} - kept[procedure]):
                    missing.setdefault((procedure, step), []).append(entry)
    for (procedure, step), entries in missing.items():
        console.report(
            f"note: {', '.join(entries)}: step {step:,} of {procedure} is asked for, and no run keeps it; "
            "add it to pretrain.checkpoint_steps before training"
        )
