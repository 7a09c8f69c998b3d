"""The one fine-tuning routine: from a checkpoint and a task's data to per-example predictions."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from multiberts.bert.randomness import hash_bits
from multiberts.evaluate.dumps.run_file import RUN_FILE, set_at, write_run
from multiberts.finetune.classification.challenge_sets import DATASET_PREFIX
from multiberts.finetune.content import FileContent
from multiberts.finetune.family import EvaluationSet, Family, Learner
from multiberts.finetune.run_outputs import (
    STATE,
    Entries,
    note_early,
    provenance,
    write_sets,
    written_early,
)
from multiberts.finetune.tasks import DataArguments, Task, task_named
from multiberts.finetune.training_rows import NUM_FOLDS, TrainingRows
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.files import remove
from multiberts.runs.identity import Identity, Values
from multiberts.runs.preemption import preemption_notice

if TYPE_CHECKING:
    from multiberts.bert.checkpoint.checkpoint import Checkpoint
    from multiberts.bert.training.engine import Trainer


# Arguments that train something: they do not count where a task trains nothing.
_OF_TRAINING = (
    "learning_rate", "finetune_seed", "batch_size", "num_epochs", "warmup_proportion",
    "sequence_length", "max_train_examples", "held_out_fold", "prediction_epochs",
)  # fmt: skip
_OF_DATA = ("data_dir", "train_files", "dev_files", "evaluation_files", "winogender_dir")


def _settle(parameters: Values, inputs: Values) -> None:
    """Leaves out what has no effect, and takes names in TensorFlow Datasets for names."""
    chosen = _task(parameters)
    options = chosen.completed(parameters["options"] or {})
    parameters["options"] = {
        name: value for name, value in options.items() if name not in chosen.place_options
    }
    # Stated where given, so that directories made before they existed stay valid.
    for name in ("held_out_fold", "prediction_epochs", "task_modules"):
        if not parameters.get(name) and parameters.get(name) != 0:
            parameters.pop(name, None)
    if not chosen.trains:
        for name in _OF_TRAINING:
            parameters.pop(name, None)
    if parameters["dataset"] is not None:
        del inputs["data_dir"]  # where TensorFlow Datasets keeps its data sets
    further = inputs["evaluation_files"] or {}
    names = {name: path for name, path in further.items() if str(path).startswith(DATASET_PREFIX)}
    if names:
        parameters["evaluation_sets"] = names
        inputs["evaluation_files"] = {
            name: path for name, path in further.items() if name not in names
        }


def _find_files(arguments: Mapping[str, Any], inputs: Values) -> None:
    """Replaces folders of data by the files that the task reads, where all data are on this machine."""
    data = {name: inputs[name] for name in _OF_DATA if name in inputs}
    named = (
        arguments["dataset"] is not None
        or data.get("evaluation_files") != arguments["evaluation_files"]
    )
    if named or not all(map(_is_path, data.values())):
        return
    decisive = {name: arguments.get(name) for name in (*_OF_DATA, *_OF_TASK)}
    for name in data:
        del inputs[name]
    inputs["files"] = _files_of(json.dumps(decisive))


def _is_path(value: Any) -> bool:
    """Whether all of a value are paths, rather than something that another run will make."""
    if isinstance(value, Mapping):
        return all(map(_is_path, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_path, value))
    return value is None or isinstance(value, str)


# So that a plan of thousands of runs looks once.
@functools.lru_cache(maxsize=64)
def _files_of(arguments: str) -> dict[str, Path | list[Path]]:
    return _family(json.loads(arguments)).inputs()


def _task(arguments: Mapping[str, Any]) -> Task:
    return task_named(arguments["task"], arguments["labels"], arguments.get("task_modules") or ())


def _family(arguments: Mapping[str, Any]) -> Family:
    """Finds the files of a call of `finetune`."""
    chosen = _task(arguments)
    labels = arguments["labels"]
    return chosen.family(
        DataArguments(
            task=arguments["task"],
            data_dir=arguments["data_dir"],
            dataset=arguments["dataset"],
            train_files=tuple(arguments["train_files"] or ()),
            dev_files=tuple(arguments["dev_files"] or ()),
            evaluation_files=dict(arguments["evaluation_files"] or {}),
            winogender_dir=arguments["winogender_dir"],
            labels=None if labels is None else tuple(labels),
            sequence_length=arguments["sequence_length"],
            options=chosen.completed(arguments["options"] or {}),
            holds_out=arguments["held_out_fold"] is not None,
        )
    )


# Besides the data: what decides which of them are read.
_OF_TASK = (
    "task", "dataset", "labels", "options", "task_modules", "sequence_length", "held_out_fold",
)  # fmt: skip

IDENTITY = Identity(
    inputs=("checkpoint", *_OF_DATA),
    speed=("save_state_every_steps", "log_every_steps", "compile_step"),
    settle=_settle,
    find_files=_find_files,
)


def finetune(
    *,
    run_dir: str,
    checkpoint: str,
    task: str,
    data_dir: str | None = None,
    dataset: str | None = None,
    train_files: Sequence[str] | None = None,
    dev_files: Sequence[str] | None = None,
    evaluation_files: Mapping[str, str] | None = None,
    winogender_dir: str | Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    task_modules: Sequence[str] = (),
    learning_rate: float = 5e-5,
    finetune_seed: int = 0,
    batch_size: int = 32,
    num_epochs: float = 3,
    warmup_proportion: float = 0.1,
    sequence_length: int = 128,
    max_train_examples: int | None = None,
    held_out_fold: int | None = None,
    prediction_epochs: Sequence[float] = (),
    save_state_every_steps: int = 500,
    log_every_steps: int = 50,
    compile_step: bool = True,
) -> None:
    """Fine-tunes a checkpoint on a task and writes its predictions on the evaluation sets.

    The same call continues a run that was killed and does nothing to one that has finished. Order,
    head and dropout are functions of finetune_seed and the step, so the predictions do not depend on
    where the run was interrupted. On SIGTERM it saves and leaves.

    Outputs in run_dir: `predictions/<evaluation set>.tfrecord`, `run.json`, `metrics.jsonl`.

    Args:
      run_dir: the run's directory.
      checkpoint: a checkpoint directory, ours or a released one.
      task: a name of `finetune.tasks`, or any other one together with `labels`.
      data_dir: a folder with the task's files: `train.tsv` and `dev.tsv` (or `.tsv.gz`) of a GLUE task,
        `train.conll` and `dev.conll` (or `.conll.gz`) of coreference, the Winogender files of the probe.
        With `dataset`: where TensorFlow Datasets keeps its data sets.
      dataset: a name in TensorFlow Datasets, such as `glue/rte`, in place of files.
      train_files: in place of data_dir; coreference takes several (GAP where the name ends in `.tsv` or
        `.tsv.gz`, else CoNLL-2012), other tasks one.
      dev_files: likewise, for evaluation; texts and pairs may do without if there is a held_out_fold.
      evaluation_files: further evaluation sets by name, such as {"hans": "path"}.
      winogender_dir: for coreference and the probe, a folder with the Winogender files, or the list of
        the three.
      labels: label names of a task of one's own.
      options: of the task's own, such as {"num_hidden_units": 64} of coreference; see its file.
      task_modules: names of modules outside the tree that register further tasks, such as
        ["my_tasks.reviews"]; Python must find them (PYTHONPATH). See docs/tasks.md.
      learning_rate: peak of the schedule.
      finetune_seed: of the order of the examples, the head's initial weights and dropout.
      batch_size: examples (coreference: pairs, SQuAD: windows) a step.
      num_epochs: passes over the training examples; may be a fraction.
      warmup_proportion: share of the steps with rising learning rate.
      sequence_length: the most tokens of a sequence; longer texts are cut, longer documents split.
      max_train_examples: trains on so many examples only, the same for every seed; None: all.
      held_out_fold: 0 to 4: trains on the other four fifths of the training examples and predicts this
        one too, as evaluation set `held_out`; the fifths are the same for every seed. None: trains on all.
      prediction_epochs: numbers of epochs (may be fractions) after which the same predictions are made
        early, as `dev@2.5`; training goes on as if nothing had been.
      save_state_every_steps: how much work a kill may cost.
      log_every_steps: between lines of `metrics.jsonl`.
      compile_step: whether XLA compiles the step: seconds once a process, then faster steps.

    Raises:
      UserError: bad input, naming file and cure; nothing has been written.
      PreemptedError: SIGTERM came; the state is saved.

    Reference: Sellam et al. 2022, sections 3 and 4; Devlin et al. 2019, appendix A.3; Webster et al.
    2020, section 4 (coreference); Zhong et al. 2021, section 2 (early and held-out predictions).
    """
    # First of all, while there is nothing else: what the frozen configuration calls again.
    call = {name: _literal(value) for name, value in locals().items() if name != "run_dir"}
    if not task_modules:
        del call["task_modules"]
    from multiberts.bert.checkpoint.checkpoint import VOCABULARY, check_checkpoint

    chosen, family = _task(call), _family(call)
    counted, _ = IDENTITY.of(call)
    parameters: dict[str, Any] = {"task": task, **family.parameters()}
    parameters |= {
        name: counted[name] for name in (*_OF_TRAINING, "task_modules") if name in counted
    }
    if chosen.trains:
        _check_training(call)
    config = check_checkpoint(checkpoint)
    inputs = family.inputs()
    run = RunDirectory(
        run_dir,
        stage="finetune",
        parameters=parameters,
        inputs={"checkpoint": Path(checkpoint), **inputs},
        call=call,
    )
    if run.done:
        return
    data = family.read(config, FileContent.of(Path(checkpoint) / VOCABULARY))
    rows = None
    if chosen.trains:
        rows = TrainingRows.of(
            data.train_groups,
            task=task,
            finetune_seed=finetune_seed,
            max_train_examples=max_train_examples,
            held_out_fold=held_out_fold,
        )

    start = FileContent.of(checkpoint)
    read = _checkpoint(start)
    learner = data.learner(
        read,
        fingerprint=start.checksum,
        finetune_seed=finetune_seed if chosen.trains else 0,
        compile_step=compile_step,
    )
    evaluated = _Evaluated.of(learner, rows, task)
    with preemption_notice() as should_stop, run:
        if run.done:  # by another process, since we looked
            return
        entries: Entries = {}
        weights: Mapping[str, np.ndarray]
        if rows is None:
            weights = learner.initial_parameters()
        else:
            weights, entries = _train(
                learner,
                run.path,
                rows=rows,
                evaluated=evaluated,
                parameters=parameters,
                save_state_every_steps=save_state_every_steps,
                log_every_steps=log_every_steps,
                should_stop=should_stop,
            )
        entries |= write_sets(run.path, evaluated(weights))
        content = {
            "task": task,
            "evaluation_sets": entries,
            "learning_rate": learning_rate if rows is not None else 0.0,
            "finetune_seed": finetune_seed if rows is not None else 0,
            "num_train_examples": 0 if rows is None else rows.used,
            **provenance(Path(checkpoint), read.provenance, parameters, inputs),
        }
        write_run(run.path, content)
        run.finish([RUN_FILE, *(entry["file"] for entry in entries.values())])
        remove(run.path / STATE)


def _literal(value: Any) -> Any:
    """An argument as the plain Python value that Gin can spell."""
    if isinstance(value, Mapping):
        return {key: _literal(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_literal(item) for item in value]
    return value


@functools.lru_cache(maxsize=1)
def _checkpoint(content: FileContent) -> Checkpoint:
    """The weights, read once for all runs in a row that start from them."""
    from multiberts.bert.checkpoint.checkpoint import read_checkpoint

    return read_checkpoint(content.path)


@dataclasses.dataclass(frozen=True)
class _Evaluated:
    """Weights -> predictions on all sets of a run, the held-out examples among them."""

    learner: Learner
    held_out: np.ndarray

    @classmethod
    def of(cls, learner: Learner, rows: TrainingRows | None, task: str) -> _Evaluated:
        """Raises: UserError: examples are held out that the task cannot predict."""
        held_out = np.zeros(0, np.int64) if rows is None else rows.held_out
        if len(held_out) and learner.evaluate_rows is None:
            raise UserError(
                f"task {task} cannot predict training examples; leave finetune.held_out_fold out"
            )
        return cls(learner, held_out)

    def __call__(self, weights: Mapping[str, np.ndarray]) -> Iterator[EvaluationSet]:
        yield from self.learner.evaluate(weights)
        if len(self.held_out) and self.learner.evaluate_rows is not None:
            yield self.learner.evaluate_rows(weights, self.held_out)


def _check_training(parameters: Mapping[str, Any]) -> None:
    """Refuses numbers that have no meaning."""
    for name in ("learning_rate", "num_epochs", "batch_size"):
        value = parameters[name]
        if not (math.isfinite(value) and value > 0):
            raise UserError(f"finetune.{name} is {value}; give a positive number")
    if not 0 <= parameters["warmup_proportion"] <= 1:
        raise UserError(
            f"finetune.warmup_proportion is {parameters['warmup_proportion']}; give 0 to 1"
        )
    most = parameters["max_train_examples"]
    if most is not None and most < 1:
        raise UserError(f"finetune.max_train_examples is {most}; give 1 or more, or None for all")
    fold = parameters["held_out_fold"]
    if fold is not None and fold not in range(NUM_FOLDS):
        raise UserError(
            f"finetune.held_out_fold is {fold}; give 0 to {NUM_FOLDS - 1}, or None to train on all"
        )
    _check_prediction_epochs(parameters["prediction_epochs"], parameters["num_epochs"])


def _check_prediction_epochs(prediction_epochs: Sequence[float], num_epochs: float) -> None:
    for epochs in prediction_epochs:
        if not 0 < epochs < num_epochs:
            raise UserError(
                f"finetune.prediction_epochs holds {epochs}, expected numbers above 0 and below "
                f"num_epochs, {num_epochs}: at the end predictions are made anyway; correct the list"
            )
    names = [set_at("dev", epochs) for epochs in prediction_epochs]
    if len(set(names)) < len(names):
        raise UserError(
            f"finetune.prediction_epochs is {list(prediction_epochs)}, expected each number once (to "
            "four digits); remove the repeated one"
        )


def _train(
    learner: Learner,
    run_dir: Path,
    *,
    rows: TrainingRows,
    evaluated: _Evaluated,
    parameters: Mapping[str, Any],
    save_state_every_steps: int,
    log_every_steps: int,
    should_stop: Callable[[], bool],
) -> tuple[Mapping[str, np.ndarray], Entries]:
    """Trains to the last step; gives the weights, and the entries of early predictions."""
    from multiberts.bert.model.optimization import learning_rate_schedule
    from multiberts.bert.training.loop import Callbacks, Saving, Schedule, train
    from multiberts.bert.training.state import save_state, saved_step

    assert learner.trainer is not None
    task, finetune_seed = parameters["task"], parameters["finetune_seed"]
    batch_size = parameters["batch_size"]
    num_steps = rows.num_steps(parameters["num_epochs"], batch_size)
    warmup_steps = int(num_steps * parameters["warmup_proportion"])
    early = _EarlyPredictions(
        run_dir,
        evaluated,
        [(rows.num_steps(n, batch_size), n) for n in parameters.get("prediction_epochs", ())],
    )
    schedule = Schedule(
        num_steps=num_steps,
        initial_parameters=learner.initial_parameters,
        batch_at=lambda step: learner.batch(rows.batch(step, batch_size)),
        learning_rate_at=lambda step: learning_rate_schedule(
            step, parameters["learning_rate"], warmup_steps, num_steps
        ),
        # Its own address, so that it shares no dropout with the pre-training seed of that number.
        dropout_seed=int(hash_bits("finetune dropout", finetune_seed)),
    )
    train(
        learner.trainer,
        schedule,
        Saving(
            directory=run_dir,
            save_state_every_steps=save_state_every_steps,
            log_every_steps=log_every_steps,
        ),
        Callbacks(at_steps=early.steps, on_step=early.predict, should_stop=should_stop),
        description=f"{task} seed {finetune_seed}",
    )
    # A long training is not lost where the run is stopped among its predictions.
    if num_steps >= save_state_every_steps and saved_step(run_dir) < num_steps:
        save_state(learner.trainer.state(), run_dir, keep_last=1)
    return learner.trainer.parameters(), early.entries()


@dataclasses.dataclass(frozen=True)
class _EarlyPredictions:
    """Predictions of a model that goes on training.

    Attributes:
      run_dir: the run's directory.
      evaluated: weights -> predictions.
      points: (number of updates, number of epochs) of each.
    """

    run_dir: Path
    evaluated: _Evaluated
    points: Sequence[tuple[int, float]]

    @property
    def steps(self) -> set[int]:
        return {step for step, _ in self.points}

    def predict(self, step: int, trainer: Trainer) -> None:
        """Writes all that is due after so many updates, unless an earlier start of the run has."""
        weights = trainer.parameters()
        for due, epochs in self.points:
            if due == step and written_early(self.run_dir, epochs) is None:
                entries = write_sets(self.run_dir, self.evaluated(weights), epochs=epochs)
                note_early(self.run_dir, epochs, entries)

    def entries(self) -> Entries:
        """The entries in run.json, by name."""
        found: Entries = {}
        for _, epochs in self.points:
            found |= written_early(self.run_dir, epochs) or {}
        return found
