"""Makes the plan of an experiment: from lists of corpora, procedures, seeds, steps, tasks and rates to runs.

Nothing here carries out a run.
"""

from __future__ import annotations

import dataclasses
import functools
import graphlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from multiberts.bert.checkpoint.hub import is_name
from multiberts.finetune.settings import task_of
from multiberts.finetune.task import registered_tasks
from multiberts.launch.plan.checkpoints import Checkpoints, Start, find_starts, starts_of
from multiberts.launch.plan.graph import DATA, WORLD, Graph, complete, located, placed_in
from multiberts.launch.plan.planned_run import (
    Output,
    PlannedRun,
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
    Seed,
    annotations_of,
    check_types,
    with_leaves,
)

Folds = Sequence[NonNegativeInt | None]
Steps = Literal["last", "all"] | Sequence[NonNegativeInt]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experiment:
    """Settings of an experiment; in Gin each is `launch.<name>`.

    A setting "by task" is one value for all tasks, or a mapping from each task to its value.

    Attributes:
      corpora: for each corpus, arguments of `prepare`.
      procedures: for each way of pre-training, arguments of `pretrain`; `corpus` names one of
        `corpora` (which may be left out if there is only one), `evaluation_corpus` another (or gives
        the directory of a prepared one), `initial_checkpoint` a procedure, here or in `checkpoints`: training
        starts from its last checkpoint of the same seed; or `hub:<repository>`.
      pretrain_seeds: seeds of all procedures, or by procedure. By procedure they also choose among
        `checkpoints`; all seeds of a procedure that is not named are used.
      checkpoints: checkpoints that exist, fine-tuned like those of `procedures`: a list of checkpoints
        and folders of them (the released MultiBERTs in either layout, runs of `pretrain`, `hub:` names) that
        say their procedure, seed and step; or such paths by procedure, e.g.
        {"base": "multiberts", "original": "uncased_L-12_H-768_A-12"}.
      predictions: predictions that others published, scored like those of `tasks`: for each source,
        arguments of `import`, e.g. {"layout": "multiberts", "source": "GLUE"}.
      tasks: for each task, arguments of `finetune`; `task` is the entry's name unless given.
      learning_rates: learning rates of fine-tuning, by task. Empty: the rate in the task's arguments.
      finetune_seeds: seeds of fine-tuning, by task.
      held_out_folds: values of `held_out_fold` in `finetune`, by task; a task that is not named holds out
        nothing. [None, 0] trains on all examples, and also without the first fifth.
      pretrain_sources: sources of randomness that have separate seeds, each from pretrain_seeds; other
        sources have the first of these seeds in every run, and pretrain_seed numbers the runs from 0.
        Empty: pretrain_seed is the seed of every source.
      finetune_sources: the same for fine-tuning, from finetune_seeds.
      seed_design: `crossed`: all combinations of the sources' seeds; `one_at_a_time`: for each seed one run,
        and one more per source that differs only in that source.
      finetune_steps: steps whose checkpoints are fine-tuned, by task: `last`, `all` or a list. A task's
        steps may be given by procedure; procedures that are not named are not fine-tuned on it.
      world: arguments of `make_world`, or None. Input paths of other stages may be `world:<file>`, or
        `<corpus>:<file>` for a file of a corpus (`<corpus>:.` is the corpus itself).
      report: arguments of `report` except `predictions`; None: no report.
      paper: arguments of `paper` except `predictions`; None: no paper tables.
      data: folder of input paths `data:<file>`.
    """

    corpora: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    procedures: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    pretrain_seeds: Sequence[Seed] | Mapping[str, Sequence[Seed]] = ()
    checkpoints: Checkpoints = ()
    predictions: Sequence[Mapping[str, Any]] = ()
    tasks: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    learning_rates: Sequence[PositiveFloat] | Mapping[str, Sequence[PositiveFloat]] = ()
    finetune_seeds: Sequence[Seed] | Mapping[str, Sequence[Seed]] = (0,)
    held_out_folds: Folds | Mapping[str, Folds] = (None,)
    pretrain_sources: Sequence[PretrainSource] = ()
    finetune_sources: Sequence[FinetuneSource] = ()
    seed_design: SeedDesign = "crossed"
    finetune_steps: Steps | Mapping[str, Steps | Mapping[str, Steps]] = "last"
    world: Mapping[str, Any] | None = None
    report: Mapping[str, Any] | None = None
    paper: Mapping[str, Any] | None = None
    data: str | None = None

    def trials(
        self, entry: str
    ) -> Iterator[tuple[float | None, int, int | None, Mapping[str, int]]]:
        """Yields what distinguishes the runs of one checkpoint on one task.

        (learning rate or None for the rate in the task's arguments, fine-tuning seed, held-out fold, separate
        seeds of sources)
        """
        folds = self.held_out_folds
        rates = of_task("launch.learning_rates", self.learning_rates, entry) or (None,)
        seeds = of_task("launch.finetune_seeds", self.finetune_seeds, entry)
        apart = self._seeds_apart(seeds, self.finetune_sources, get_args(FinetuneSource))
        folds = folds.get(entry, (None,)) if isinstance(folds, Mapping) else folds
        for rate, seed, fold in itertools.product(rates, apart or seeds, folds):
            yield rate, seed, fold, apart.get(seed, {})

    def steps(self, entry: str) -> Any:
        """Returns the steps that are fine-tuned on a task, for all procedures or by procedure."""
        return of_task("launch.finetune_steps", self.finetune_steps, entry)

    def pretraining_seeds(self, procedure: str) -> Mapping[int, Mapping[str, int]]:
        """Returns a procedure's pretrain_seeds, each with the separate seeds of sources."""
        seeds = self.pretrain_seeds
        if isinstance(seeds, Mapping):
            seeds = seeds.get(procedure, ())
        # Without a seed for masks, they are those of the corpus.
        fixed_sources = [name for name in get_args(PretrainSource) if name != "mask_seed"]
        apart = self._seeds_apart(seeds, self.pretrain_sources, fixed_sources)
        return apart or {seed: {} for seed in seeds}

    def _seeds_apart(
        self, seeds: Sequence[int], sources: Sequence[str], fixed_sources: Sequence[str]
    ) -> dict[int, dict[str, int]]:
        if not sources or not seeds:
            return {}
        return dict(enumerate(seeds_of_runs(sources, fixed_sources, seeds, self.seed_design)))


def make_plan(experiment: Experiment) -> list[PlannedRun]:
    """Lists all runs of an experiment, each after its parents.

    A task that fits none of the given checkpoints is skipped with a note.

    Returns:
      The runs in an order in which they could be carried out one at a time.
    """
    corpora, procedures, tasks = experiment.corpora, experiment.procedures, experiment.tasks
    _check_lists(experiment)
    graph = Graph()
    folders: dict[str, PlannedRun | Path] = {}
    if experiment.data is not None:
        folders[DATA] = Path(experiment.data)
    if experiment.world is not None:
        folders[WORLD] = graph.add("make_world", "world", "world", experiment.world)
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
            {**folders, **corpus_runs},
        )
    # Checkpoints that exist, and those that procedures will save.
    seeds = experiment.pretrain_seeds
    paths = with_leaves(
        functools.partial(located, folders=folders, name="launch.checkpoints"),
        experiment.checkpoints,
    )
    to_use = seeds if isinstance(seeds, Mapping) else {}
    starts = find_starts(paths, {name: to_use[name] for name in to_use if name not in procedures})
    last = {(start.procedure, start.pretrain_seed): start for start in starts}
    existing = {procedure for procedure, _ in last}
    parents: dict[str, set[str]] = {}
    for name, arguments in procedures.items():
        parent = arguments.get("initial_checkpoint")
        if parent is None or is_name(parent) or parent in existing - {name}:
            parents[name] = set()
        elif parent in procedures:
            parents[name] = {parent}
        else:
            raise UserError(
                f"{name}/pretrain.initial_checkpoint is {parent!r}, expected another of "
                f"launch.procedures ({', '.join(procedures)}) or launch.checkpoints; name one of them"
            )
    relation = "{name}/pretrain.initial_checkpoint is '{used}'"
    for procedure in _in_order(parents, "launch.procedures", relation):
        for seed, apart_seeds in experiment.pretraining_seeds(procedure).items():
            arguments = {**apart_seeds, **procedures[procedure]}
            if "initial_checkpoint" in arguments:  # which has the initial weights
                arguments.pop("initialisation_seed", None)
            run = _add_pretraining(graph, procedure, arguments, seed, corpus_runs, last)
            starts += (saved := starts_of(run))
            last[procedure, seed] = saved[-1]

    # Fine-tuning.
    finetuned: list[PlannedRun] = []
    used: set[str] = set()
    steps_of = _steps_by_procedure(starts)
    for start, (entry, arguments) in itertools.product(starts, tasks.items()):
        if _is_wanted(start, experiment.steps(entry), steps_of):
            used.add(entry)
            finetuned += _finetuning_runs(
                graph,
                start,
                {"task": entry, **arguments},
                experiment.trials(entry),
                {**folders, **corpus_runs},
            )
    _refuse_unused(experiment, used)
    _note_unused_procedures(experiment, steps_of, finetuned)
    _note_missing_steps(experiment, steps_of)

    # Predictions of others, then scores, report and paper from all predictions.
    for arguments in experiment.predictions:
        name = Path(str(arguments.get("source"))).name
        path = f"predictions/{arguments.get('layout')}-{name}"
        finetuned.append(
            graph.add("import_predictions", f"import {name}", path, arguments, folders)
        )
    if finetuned:
        predictions = {"predictions": [Output(run) for run in dict.fromkeys(finetuned)]}
        graph.add("score", "scores", "scores", predictions)
        if experiment.report is not None:
            graph.add("report", "report", "report", {**predictions, **experiment.report}, folders)
        if experiment.paper is not None:
            graph.add("paper", "paper", "paper", {**predictions, **experiment.paper})
    return graph.runs


def _add_pretraining(
    graph: Graph,
    procedure: str,
    arguments: Mapping[str, Any],
    seed: int,
    corpus_runs: Mapping[str, PlannedRun],
    last: Mapping[tuple[str | None, int | None], Start],
) -> PlannedRun:
    """Adds the pre-training of one seed of one procedure."""
    arguments = {"procedure": procedure, **arguments, "pretrain_seed": seed}
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
    if (procedure, seed) in last:
        raise UserError(
            f"seed {seed} of {procedure} is among launch.checkpoints and is to be pre-trained, too; give the "
            "procedure another name, or leave the seed out of launch.pretrain_seeds"
        )
    parent = arguments.get("initial_checkpoint")
    if parent is not None and not is_name(parent):
        if (parent, seed) not in last:
            raise UserError(
                f"{procedure}/pretrain.initial_checkpoint is {parent!r}, but launch.checkpoints has no seed "
                f"{seed} of it; add it there, or leave the seed out of launch.pretrain_seeds"
            )
        arguments["initial_checkpoint"] = last[parent, seed].checkpoint
    directory = f"pretrain/{arguments['procedure']}/seed_{seed}"
    return graph.add("pretrain", f"pretrain {procedure} seed {seed}", directory, arguments)


def _finetuning_runs(
    graph: Graph,
    start: Start,
    arguments: Mapping[str, Any],
    trials: Iterable[tuple[float | None, int, int | None, Mapping[str, int]]],
    folders: Mapping[str, PlannedRun | Path],
) -> Iterator[PlannedRun]:
    """Adds all fine-tuning runs of one checkpoint on one task to a graph, and yields them."""
    name = f"{arguments['task']} {start.name}"
    folder = f"finetune/{arguments['task']}/{start.name}"
    arguments = {**arguments, **start.renamed, "checkpoint": start.checkpoint}
    if not task_of(arguments).trains:  # then one run per checkpoint is enough
        yield graph.add("finetune", name, f"{folder}/run", arguments, folders, start.facts)
        return
    for rate, seed, fold, apart in trials:
        trial = {**apart, **arguments, "finetune_seed": seed}
        if rate is None:
            rate = complete("finetune", name, arguments)["learning_rate"]
        if fold is not None:
            trial["held_out_fold"] = fold
        yield graph.add(
            "finetune",
            f"{name} learning rate {rate:g} seed {seed}"
            + ("" if fold is None else f" fold {fold}"),
            f"{folder}/lr_{rate:g}-ft_seed_{seed}" + ("" if fold is None else f"-fold_{fold}"),
            {**trial, "learning_rate": rate},
            folders,
            start.facts,
        )


def _steps_by_procedure(starts: Iterable[Start]) -> dict[str, dict[Any, set[int]]]:
    """Returns the steps of all checkpoints by procedure and seed."""
    steps: dict[str, dict[Any, set[int]]] = {}
    for start in starts:
        of_procedure = steps.setdefault(start.procedure or start.name, {})
        of_procedure.setdefault(start.pretrain_seed, set()).add(start.step or 0)
    return steps


def _is_wanted(start: Start, steps: Any, steps_of: Mapping[str, Mapping[Any, set[int]]]) -> bool:
    """Returns whether a checkpoint is fine-tuned on a task.

    Args:
      steps: the task's steps, see `Experiment.finetune_steps`.
      steps_of: steps of all checkpoints by procedure and seed.
    """
    name = start.procedure or start.name
    if isinstance(steps, Mapping):
        steps = steps.get(name, ())
    if steps != "last":
        return steps == "all" or (start.step or 0) in steps
    last = max(set[int]().union(*steps_of[name].values()))
    for seed, of_seed in steps_of[name].items():
        if last not in of_seed:
            raise UserError(
                f"{name}, seed {seed} has no checkpoint of step {last}, only of "
                f"{', '.join(map(str, sorted(of_seed)))}; finish its pre-training, or choose with "
                "launch.finetune_steps"
            )
    return (start.step or 0) == last


def _in_order(uses: Mapping[str, set[str]], setting: str, relation: str) -> list[str]:
    """Sorts names so that each comes after those it uses; refuses a circle.

    Args:
      relation: text that says that `{name}` uses `{used}`.
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
    """Refuses seeds among a stage's arguments, which the experiment's seeds would override."""
    for entry, arguments in entries.items():
        for name in (f"{stage}_seed", *sources):
            if name in arguments:
                cure = f", or leave {name} out of launch.{stage}_sources" if name in sources else ""
                raise UserError(
                    f"{entry}/{stage}.{name} is set; set launch.{stage}_seeds instead{cure}"
                )


def _check_lists(experiment: Experiment) -> None:
    """Refuses values of another type, and lists that leave a procedure or a task without runs."""
    procedures, tasks, seeds = experiment.procedures, experiment.tasks, experiment.pretrain_seeds
    check_types("launch", vars(experiment), annotations_of(Experiment))
    for procedure in procedures:
        if not (seeds.get(procedure) if isinstance(seeds, Mapping) else seeds):
            raise UserError(
                f"launch.pretrain_seeds is {seeds!r}, so {procedure} would have no runs; give at least one "
                "seed, such as [0]"
            )
    if seeds and experiment.checkpoints and not procedures and not isinstance(seeds, Mapping):
        raise UserError(
            f"launch.pretrain_seeds is {seeds!r}, but launch.procedures is empty; to choose among "
            f"launch.checkpoints, give the seeds by procedure: {{'base': {[*seeds]}}}"
        )
    if experiment.checkpoints and not tasks and not procedures:
        raise UserError(
            "launch.checkpoints is set, but launch.tasks is empty; name a task (`multiberts list tasks`)"
        )
    _refuse_seeds("pretrain", procedures, experiment.pretrain_sources)
    _refuse_seeds("finetune", tasks, experiment.finetune_sources)
    if tasks and not (procedures or experiment.checkpoints or experiment.predictions):
        raise UserError(
            f"{', '.join(tasks)} would have no checkpoint to start from; name a procedure in "
            "launch.procedures or checkpoints in launch.checkpoints, or empty launch.tasks"
        )
    if not (procedures or experiment.checkpoints or experiment.predictions or experiment.corpora):
        raise UserError(
            "launch lists nothing to do; set launch.procedures, launch.checkpoints or launch.predictions in "
            "a --gin_file (configs/demo.gin is one to copy)"
        )
    for setting in ("learning_rates", "finetune_seeds", "held_out_folds", "finetune_steps"):
        values = getattr(experiment, setting)
        for name in values if isinstance(values, Mapping) else ():
            if name not in tasks and name not in registered_tasks():
                raise UserError(
                    f"launch.{setting} names {name}, expected one of {', '.join(tasks)}; correct it"
                )
    for entry, arguments in tasks.items():
        for name in ("checkpoint", "procedure", "pretrain_seed"):
            if name in arguments:
                raise UserError(
                    f"{entry}/finetune.{name} is set; set launch.checkpoints instead, which names "
                    "checkpoints for all runs"
                )
        if task_of({"task": entry, **arguments}).trains and not [*experiment.trials(entry)]:
            raise UserError(
                f"launch.finetune_seeds or launch.held_out_folds is empty for {entry}, which would have no "
                "runs; give at least one seed, such as [0], and [None] for no held-out fold"
            )


def of_task(setting: str, values: Any, entry: str) -> Any:
    """Returns a setting's value for one task."""
    if not isinstance(values, Mapping):
        return values
    if entry not in values:
        raise UserError(
            f"{setting} is given by task ({', '.join(values)}) but not for {entry!r}; add that task"
        )
    return values[entry]


def _refuse_unused(experiment: Experiment, used: Collection[str]) -> None:
    """Refuses a task without runs, or skips it with a note if checkpoints or predictions are given."""
    unused = [entry for entry in experiment.tasks if entry not in used]
    if unused and not experiment.checkpoints and not experiment.predictions:
        raise UserError(
            f"launch.finetune_steps {experiment.steps(unused[0])} holds no step that pre-training keeps, so "
            f"{unused[0]} would have no runs; correct it or pretrain.checkpoint_steps"
        )
    if unused:
        console.report(
            f"note: left out, as no checkpoint fits launch.finetune_steps: {', '.join(unused)}"
        )


def _note_unused_procedures(
    experiment: Experiment, steps_of: Mapping[str, Any], finetuned: Sequence[PlannedRun]
) -> None:
    """Notes procedures that are named without checkpoints, or have checkpoints and no fine-tuning."""
    named = {
        name
        for entry in experiment.tasks
        if isinstance(steps := experiment.steps(entry), Mapping)
        for name in steps
    }
    if isinstance(experiment.pretrain_seeds, Mapping):
        named |= experiment.pretrain_seeds.keys()
    if absent := sorted(named - steps_of.keys()):
        console.report(f"note: no checkpoints of {', '.join(absent)}, which launch.* names")
    tuned = {run.facts.get("procedure") or run.path.split("/")[2] for run in finetuned}
    if experiment.tasks and (idle := sorted(steps_of.keys() - tuned)):
        console.report(f"note: launch.finetune_steps leaves out {', '.join(idle)} in every task")


def _note_missing_steps(
    experiment: Experiment, steps_of: Mapping[str, Mapping[Any, set[int]]]
) -> None:
    """Notes steps that tasks ask for and no checkpoint has: after training it is too late."""
    present = {name: set[int]().union(*seeds.values()) for name, seeds in steps_of.items()}
    # A list for all procedures is satisfied if one of them has the step.
    every = ", ".join(present)
    present[every] = set[int]().union(*present.values())
    missing: dict[tuple[str, int], list[str]] = {}
    for entry in experiment.tasks:
        steps = experiment.steps(entry)
        for procedure, wanted in (steps if isinstance(steps, Mapping) else {every: steps}).items():
            # The user has left out a procedure without checkpoints on purpose.
            if not isinstance(wanted, str) and present.get(procedure):
                for step in sorted({*wanted} - present[procedure]):
                    missing.setdefault((procedure, step), []).append(entry)
    for (procedure, step), entries in missing.items():
        console.report(
            f"note: {', '.join(entries)}: step {step:,} of {procedure} is asked for, and no checkpoint has "
            f"it, only {', '.join(f'{each:,}' for each in sorted(present[procedure]))}; before training, add "
            "it to pretrain.checkpoint_steps"
        )
