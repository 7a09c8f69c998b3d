"""An experiment: from its lists of corpora, procedures, seeds, steps, tasks and rates to its runs.

Nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from multiberts.launch.plan.graph import DATA, WORLD, Graph, complete, placed_in
from multiberts.launch.plan.identity import input_parameters
from multiberts.launch.plan.input_digests import InputDigests
from multiberts.launch.plan.planned_run import Output, PlannedRun, apart, last_of_seeds
from multiberts.runs.errors import UserError

# Needs no training: one run a checkpoint, whatever the learning rates and fine-tuning seeds.
UNTRAINED_TASKS = {"pronoun_probe"}


def make_plan(
    *,
    corpora: Mapping[str, Mapping[str, Any]],
    procedures: Mapping[str, Mapping[str, Any]],
    pretrain_seeds: Sequence[int],
    tasks: Mapping[str, Mapping[str, Any]],
    learning_rates: Sequence[float] | Mapping[str, Sequence[float]] = (),
    finetune_seeds: Sequence[int] | Mapping[str, Sequence[int]] = (0,),
    finetune_steps: Sequence[int] | Mapping[str, Any] | None = None,
    world: Mapping[str, Any] | None = None,
    report: Mapping[str, Any] | None = None,
    paper: Mapping[str, Any] | None = None,
    data: str | None = None,
    imported: Sequence[PlannedRun] = (),
    digests: InputDigests | None = None,
) -> list[PlannedRun]:
    """Lists all runs of an experiment, each after its parents.

    Args:
      corpora: for each corpus, arguments of `prepare`.
      procedures: for each way of pre-training, arguments of `pretrain`; `corpus` names one of
        `corpora` (which may be left out if there is only one), `evaluation_corpus` another (or gives
        the directory of a prepared one), `initial_checkpoint` a procedure, whose last checkpoint of
        the same seed training goes on from.
      pretrain_seeds: seeds of every procedure.
      tasks: for each task, arguments of `finetune`; `task` is the entry's name unless given.
      learning_rates: of fine-tuning; for all tasks, or by task. Empty: that of the task's arguments.
      finetune_seeds: likewise.
      finetune_steps: the steps whose checkpoints are fine-tuned, likewise; None: all that are kept. A
        task's may be given by procedure; procedures that are not named do without the task.
      world: arguments of `make_world`, or None. Input paths `world:<file>` of other stages lie in it,
        and `<corpus>:<file>` in that of another corpus.
      report: arguments of `report` but `predictions`, or None for no report.
      paper: arguments of `paper` but `predictions`, or None for none.
      data: folder that input paths `data:<file>` lie in.
      imported: runs that are done (see `launch.imports.register`): checkpoints, which are fine-tuned and
        which procedures may start from as from those of the plan, and predictions. A task that none
        of the checkpoints is meant for is then left out, with a line that says so.
      digests: what is known of the content of input files; None: all are read.

    Returns:
      The runs in an order in which they could be carried out one by one.

    Raises:
      UserError: an unknown or missing parameter, a name that refers to nothing, a circle of
        references, an empty list of seeds, a missing file.
    """
    _check_lists(procedures, pretrain_seeds, tasks, learning_rates, finetune_seeds, imported)
    graph = Graph(digests)
    graph.keep(imported)
    checkpoints, predicted = apart(imported)
    places: dict[str, PlannedRun | Path] = {} if data is None else {DATA: Path(data)}
    if world is not None:
        places[WORLD] = graph.add("make_world", "world", "world", world)
    corpus_runs: dict[str, PlannedRun] = {}
    for name in _corpora_in_order(corpora):
        corpus_runs[name] = graph.add(
            "prepare",
            f"prepare {name}",
            f"corpora/{name}",
            corpora[name],
            {**places, **corpus_runs},
        )
    pretrained = last_of_seeds(checkpoints)
    for procedure in _procedures_in_order(procedures, {name for name, _ in pretrained}):
        for seed in dict.fromkeys(pretrain_seeds):
            pretrained[procedure, seed] = _add_pretraining(
                graph, procedure, procedures[procedure], seed, corpus_runs, pretrained
            )
    made = [run for run in pretrained.values() if run.stage == "pretrain"]
    finetuned = [
        run
        for parent in (*checkpoints, *made)
        for procedure, seed in [_procedure_and_seed(parent)]
        for step in kept_steps(parent)
        for entry, arguments in tasks.items()
        if _is_wanted(procedure, step, _of_task(finetune_steps, entry))
        for run in _add_finetuning(
            graph,
            entry,
            arguments,
            Output(parent, f"checkpoints/step_{step}"),
            f"{procedure}-seed_{seed}-step_{step}",
            _of_task(learning_rates, entry),
            _of_task(finetune_seeds, entry),
            places,
        )
    ]
    _refuse_unused(tasks, finetuned, finetune_steps, bool(imported))
    finetuned += predicted
    if finetuned:
        predictions = {"predictions": [Output(run) for run in dict.fromkeys(finetuned)]}
        graph.add("score", "scores", "scores", predictions)
        if report is not None:
            graph.add("report", "report", "report", {**predictions, **report}, places)
        if paper is not None:
            graph.add("paper", "paper", "paper", {**predictions, **paper})
    return graph.runs


def kept_steps(run: PlannedRun) -> list[int]:
    """The steps of a pre-training run whose checkpoints it keeps."""
    parameters = run.parameters
    return sorted({*parameters["checkpoint_steps"], parameters["num_steps"]})


def _procedure_and_seed(run: PlannedRun) -> tuple[str, int]:
    return run.parameters["procedure"], run.parameters["pretrain_seed"]


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
    if start is not None and (start, seed) not in pretrained:
        raise UserError(
            f"{procedure}/pretrain.initial_checkpoint is {start!r}, of which no seed {seed} was "
            "imported; import it, or leave the seed out of launch.pretrain_seeds"
        )
    if start is not None:
        parent = pretrained[start, seed]
        arguments["initial_checkpoint"] = Output(
            parent, f"checkpoints/step_{parent.parameters['num_steps']}"
        )
    place = f"pretrain/{arguments['procedure']}/seed_{seed}"
    return graph.add("pretrain", f"pretrain {procedure} seed {seed}", place, arguments)


def _add_finetuning(
    graph: Graph,
    entry: str,
    given: Mapping[str, Any],
    checkpoint: Output,
    checkpoint_name: str,
    learning_rates: Sequence[float],
    finetune_seeds: Sequence[int],
    places: Mapping[str, PlannedRun | Path],
) -> Iterator[PlannedRun]:
    """Adds all fine-tuning of one checkpoint on one task."""
    arguments = {"task": entry, **given, "checkpoint": checkpoint}
    task = arguments["task"]
    place = f"finetune/{task}/{checkpoint_name}"
    if task in UNTRAINED_TASKS:
        yield graph.add("finetune", f"{task} {checkpoint_name}", f"{place}/run", arguments, places)
        return
    default_rate = complete("finetune", entry, arguments)["learning_rate"]
    for learning_rate in learning_rates or (default_rate,):
        for seed in finetune_seeds:
            yield graph.add(
                "finetune",
                f"{task} {checkpoint_name} learning rate {learning_rate:g} seed {seed}",
                f"{place}/lr_{learning_rate:g}-ft_seed_{seed}",
                {**arguments, "learning_rate": learning_rate, "finetune_seed": seed},
                places,
            )


def _corpora_in_order(corpora: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The corpora, each after those whose files it uses."""
    uses: dict[str, set[str]] = {}
    for name, arguments in corpora.items():
        parameters = complete("prepare", f"prepare {name}", arguments)
        inputs = input_parameters("prepare", parameters)
        uses[name] = {
            used for parameter in inputs for used in placed_in(parameters[parameter])
        } & corpora.keys()
    return _in_order(uses, "launch.corpora", "{name}/prepare uses files of {used}")


def _procedures_in_order(
    procedures: Mapping[str, Mapping[str, Any]], imported: Collection[str]
) -> list[str]:
    """The procedures, each after the one it starts from unless that was imported."""
    uses: dict[str, set[str]] = {}
    for name, arguments in procedures.items():
        start = arguments.get("initial_checkpoint")
        if start is not None and start not in procedures and start in imported:
            start = None
        if start is not None and start not in procedures:
            raise UserError(
                f"{name}/pretrain.initial_checkpoint is {start!r}, expected another of "
                f"launch.procedures ({', '.join(procedures)}); name one of them"
            )
        uses[name] = set() if start is None else {start}
    return _in_order(uses, "launch.procedures", "{name}/pretrain.initial_checkpoint is '{used}'")


def _in_order(uses: Mapping[str, set[str]], setting: str, relation: str) -> list[str]:
    """The names, each after those it uses; a circle is refused.

    Args:
      uses: for each name the names that it uses.
      setting: where the names are listed.
      relation: says of `{name}` that it uses `{used}`.
    """
    ordered: list[str] = []
    while len(ordered) < len(uses):
        ready = [name for name in uses if name not in ordered and uses[name] <= set(ordered)]
        if not ready:
            # Whoever is left uses one that is left: following that comes back at last.
            circle = [next(name for name in uses if name not in ordered)]
            while circle.count(circle[-1]) == 1:
                circle.append(min(uses[circle[-1]] - set(ordered)))
            circle = circle[circle.index(circle[-1]) :]
            said = relation.format(name=circle[0], used=circle[1])
            raise UserError(
                f"{said}, which closes a circle in {setting} ({' -> '.join(circle)}); let one of them "
                "do without the next"
            )
        ordered.extend(ready)
    return ordered


def _check_lists(
    procedures: Mapping[str, Mapping[str, Any]],
    pretrain_seeds: Any,
    tasks: Mapping[str, Mapping[str, Any]],
    learning_rates: Any,
    finetune_seeds: Any,
    imported: Sequence[PlannedRun],
) -> None:
    """Refuses lists that are none, hold no numbers, or leave a procedure or a task without runs."""
    _check_numbers("launch.pretrain_seeds", pretrain_seeds, are_seeds=True)
    if procedures and not pretrain_seeds:
        raise UserError(
            f"launch.pretrain_seeds is empty, so {', '.join(procedures)} would have no runs; give at "
            "least one seed, such as [0]"
        )
    if tasks and not procedures and not imported:
        raise UserError(
            f"launch.procedures is empty, so {', '.join(tasks)} would have no checkpoint to start "
            "from; name a procedure, import checkpoints (`python -m launch import`), or empty "
            "launch.tasks"
        )
    for entry, arguments in tasks.items():
        seeds = _of_task(finetune_seeds, entry)
        _check_numbers("launch.finetune_seeds", seeds, are_seeds=True)
        _check_numbers("launch.learning_rates", _of_task(learning_rates, entry), are_seeds=False)
        if not seeds and arguments.get("task", entry) not in UNTRAINED_TASKS:
            raise UserError(
                f"launch.finetune_seeds is empty for {entry}, which would have no runs; give at least "
                "one seed, such as [0]"
            )


def _check_numbers(setting: str, values: Any, are_seeds: bool) -> None:
    """Refuses what is no list of seeds, or of positive numbers."""
    expected = "a list of whole numbers" if are_seeds else "a list of positive numbers"
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise UserError(f"{setting} is {values!r}, expected {expected}; write it in brackets")
    for value in values:
        is_number = isinstance(value, int if are_seeds else (int, float))
        if not is_number or isinstance(value, bool) or (not are_seeds and value <= 0):
            raise UserError(f"{setting} holds {value!r}, expected {expected}; correct it")


def _of_task(values: Any, entry: str) -> Any:
    """A setting for one task: the value by task, or the one for all."""
    if isinstance(values, Mapping):
        if entry not in values:
            raise UserError(
                f"a setting of launch is given by task ({', '.join(values)}) but not for {entry!r}; "
                "add that task"
            )
        return values[entry]
    return values


def _is_wanted(procedure: str, step: int, wanted: Any) -> bool:
    """Whether a checkpoint is fine-tuned: by steps, or by procedure and steps."""
    if isinstance(wanted, Mapping):
        if procedure not in wanted:
            return False
        wanted = wanted[procedure]
    return wanted is None or step in wanted


def _refuse_unused(
    tasks: Mapping[str, Mapping[str, Any]],
    finetuned: Sequence[PlannedRun],
    finetune_steps: Any,
    may_lack: bool,
) -> None:
    """Refuses a task of which nothing would run; of imported checkpoints some may not be there."""
    present = {run.parameters["task"] for run in finetuned}
    for entry, arguments in tasks.items():
        if arguments.get("task", entry) in present:
            continue
        steps = _of_task(finetune_steps, entry)
        if not may_lack:
            raise UserError(
                f"launch.finetune_steps {steps} holds no step that pre-training keeps, so {entry} would "
                "have no runs; correct it or pretrain.checkpoint_steps"
            )
        print(f"note: {entry} is left out: no checkpoint that was imported is of {steps}")
