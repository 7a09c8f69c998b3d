"""The one fine-tuning routine: from a checkpoint and a task's data to per-example predictions."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evaluate.predictions import RUN_FILE, write_predictions
from finetune.classification import ClassificationFamily
from finetune.content import FileContent
from finetune.coreference import CoreferenceFamily
from finetune.family import EvaluationSet, Family, Learner
from finetune.glue import glue_task, split_file
from finetune.pronoun_probe import PronounProbeFamily
from runs.directory import RunDirectory, fingerprint
from runs.errors import UserError
from runs.files import remove, sha256_of_file, write_atomically

COREFERENCE = "coreference"
PRONOUN_PROBE = "pronoun_probe"
_VERSIONS_OF = ("keras", "numpy", "tensorflow", "tensorflow-cpu", "tokenizers")


def finetune(
    *,
    run_dir: str,
    checkpoint: str,
    task: str,
    data_dir: str | None = None,
    train_files: Sequence[str] | None = None,
    dev_files: Sequence[str] | None = None,
    winogender_dir: str | Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    learning_rate: float = 5e-5,
    finetune_seed: int = 0,
    batch_size: int = 32,
    num_epochs: float = 3,
    warmup_proportion: float = 0.1,
    sequence_length: int = 128,
    max_train_examples: int | None = None,
    max_negatives_per_pronoun: int = 4,
    num_hidden_units: int = 128,
    save_state_every_steps: int = 500,
    log_every_steps: int = 50,
    compile_step: bool = True,
) -> None:
    """Fine-tunes a checkpoint on a task and writes its predictions on the evaluation sets.

    The same call continues a run that was killed and does nothing to one that has finished. Order,
    head and dropout are functions of finetune_seed and the step, so the predictions do not depend on
    where the run was interrupted.

    Three families of tasks:

    * a GLUE task, or sentence pairs of one's own in the layout of RTE: the whole encoder is trained;
      evaluation set `dev`;
    * `coreference`: the encoder is frozen, a feed-forward head is trained on pairs of gold mentions
      from CoNLL-2012 or GAP files; evaluation sets `dev`, `gap` and `winogender`;
    * `pronoun_probe`: nothing is trained; the masked-LM head fills a pronoun into Winogender templates;
      evaluation set `pronoun_probe`, learning_rate and finetune_seed recorded as 0.

    Outputs in run_dir: `predictions/<evaluation set>.tfrecord`, `run.json`, `metrics.jsonl`.

    Args:
      run_dir: the run's directory.
      checkpoint: a checkpoint directory, ours or a released one.
      task: a GLUE task (`SST-2`, ...), `coreference`, `pronoun_probe`, `pair`, or any name together
        with `labels`.
      data_dir: a folder with the task's files: `train.tsv` and `dev.tsv` (or `.tsv.gz`) of a GLUE task,
        `train.conll` and `dev.conll` (or `.conll.gz`) of coreference, the Winogender files of the probe.
      train_files: in place of data_dir; coreference takes several (GAP where the name ends in `.tsv` or
        `.tsv.gz`, else CoNLL-2012), other tasks one.
      dev_files: likewise, for evaluation.
      winogender_dir: for coreference and the probe, a folder with the Winogender files, or the list of
        the three.
      labels: label names of a pair task of one's own.
      learning_rate: peak of the schedule.
      finetune_seed: of the order of the examples, the head's initial weights and dropout.
      batch_size: examples (coreference: pairs) a step.
      num_epochs: passes over the training examples; may be a fraction.
      warmup_proportion: share of the steps with rising learning rate.
      sequence_length: the most tokens of a sequence; longer texts are cut, longer documents split.
      max_train_examples: trains on so many examples only, the same for every seed; None: all.
      max_negatives_per_pronoun: coreference: candidates of another entity kept for each pronoun in
        training.
      num_hidden_units: coreference: width of the head's hidden layer.
      save_state_every_steps: how much work a kill may cost.
      log_every_steps: between lines of `metrics.jsonl`.
      compile_step: whether XLA compiles the step: seconds once a process, then faster steps.

    Raises:
      UserError: bad input, naming file and cure; nothing has been written.

    Reference: Sellam et al. 2022, sections 3 and 4; Devlin et al. 2019, appendix A.3; Webster et al.
    2020, section 4 (coreference).
    """
    from bert.checkpoint import VOCABULARY, check_checkpoint

    trained = task != PRONOUN_PROBE
    family = _family(
        task,
        data_dir=data_dir,
        train_files=train_files,
        dev_files=dev_files,
        winogender_dir=winogender_dir,
        labels=labels,
        sequence_length=sequence_length,
        max_negatives_per_pronoun=max_negatives_per_pronoun,
        num_hidden_units=num_hidden_units,
    )
    parameters: dict[str, Any] = {"task": task, **family.parameters()}
    if trained:
        parameters.update(
            learning_rate=learning_rate,
            finetune_seed=finetune_seed,
            batch_size=batch_size,
            num_epochs=num_epochs,
            warmup_proportion=warmup_proportion,
            sequence_length=sequence_length,
            max_train_examples=max_train_examples,
        )
        _check_arguments(parameters)
    config = check_checkpoint(checkpoint)
    inputs: dict[str, Any] = {"checkpoint": Path(checkpoint), **family.inputs()}
    run = RunDirectory(run_dir, stage="finetune", parameters=parameters, inputs=inputs)
    if run.done:
        return
    data = family.read(config, FileContent.of(Path(checkpoint) / VOCABULARY))

    from bert.checkpoint import read_checkpoint

    read = read_checkpoint(checkpoint)
    learner = data.learner(
        read,
        fingerprint=fingerprint(checkpoint),
        finetune_seed=finetune_seed if trained else 0,
        compile_step=compile_step,
    )
    with run:
        if trained:
            weights = _train(
                learner,
                run.path,
                num_examples=data.num_train_examples,
                parameters=parameters,
                save_state_every_steps=save_state_every_steps,
                log_every_steps=log_every_steps,
            )
        else:
            weights = learner.initial_parameters()
        entries = {}
        for evaluation_set in learner.evaluate(weights):
            entries[evaluation_set.name] = _write(run.path, evaluation_set)
        content = {
            "task": task,
            "evaluation_sets": entries,
            **{name: read.provenance.get(name) for name in ("procedure", "pretrain_seed")},
            **{name: read.provenance.get(name) for name in ("data_seed", "step")},
            "learning_rate": learning_rate if trained else 0.0,
            "finetune_seed": finetune_seed if trained else 0,
            "num_train_examples": _num_used(data.num_train_examples, parameters),
            "parameters": parameters,
            "inputs": {name: _fingerprints(paths) for name, paths in inputs.items()},
            "versions": _versions(),
        }
        write_atomically(run.path / RUN_FILE, json.dumps(content, indent=1) + "\n")
        run.finish([RUN_FILE, *(entry["file"] for entry in entries.values())])
        remove(run.path / "state")


def _family(
    task: str,
    *,
    data_dir: str | None,
    train_files: Sequence[str] | None,
    dev_files: Sequence[str] | None,
    winogender_dir: str | Sequence[str] | None,
    labels: Sequence[str] | None,
    sequence_length: int,
    max_negatives_per_pronoun: int,
    num_hidden_units: int,
) -> Family:
    """The family of a task, with its files found.

    Raises:
      UserError: an unknown task, or missing or superfluous data arguments.
    """
    if data_dir is not None and (train_files is not None or dev_files is not None):
        raise UserError(
            "both data_dir and train_files or dev_files are given; give the folder or the files"
        )
    winogender = _winogender_folder(winogender_dir)
    if task == PRONOUN_PROBE:
        if winogender is None and data_dir is None:
            raise UserError("task pronoun_probe needs finetune.winogender_dir; give the folder")
        return PronounProbeFamily(winogender or Path(str(data_dir)))
    if task == COREFERENCE:
        if data_dir is not None:
            train_files = [str(split_file(data_dir, "train", ".conll"))]
            dev_files = [str(split_file(data_dir, "dev", ".conll"))]
        if not train_files:
            raise UserError("task coreference needs finetune.train_files; give at least one file")
        return CoreferenceFamily(
            train_files=tuple(Path(path) for path in train_files),
            dev_files=tuple(Path(path) for path in dev_files or ()),
            winogender_dir=winogender,
            sequence_length=sequence_length,
            max_negatives_per_pronoun=max_negatives_per_pronoun,
            num_hidden_units=num_hidden_units,
        )
    description = glue_task(task, labels)
    if winogender is not None:
        raise UserError(f"task {task} takes no winogender_dir; leave it out")
    if data_dir is not None:
        train, dev = (split_file(data_dir, split) for split in ("train", description.dev_split))
    elif train_files and dev_files and len(train_files) == len(dev_files) == 1:
        train, dev = Path(train_files[0]), Path(dev_files[0])
    else:
        raise UserError(f"task {task} needs finetune.data_dir, or one train file and one dev file")
    return ClassificationFamily(
        description, train, dev, sequence_length, None if labels is None else list(labels)
    )


def _winogender_folder(winogender_dir: str | Sequence[str] | None) -> Path | None:
    if winogender_dir is None or isinstance(winogender_dir, str):
        return None if winogender_dir is None else Path(winogender_dir)
    folders = {Path(path).parent for path in winogender_dir}
    if len(folders) != 1:
        raise UserError(
            f"winogender_dir lists files of {len(folders)} folders; give the one folder instead"
        )
    return folders.pop()


def _check_arguments(parameters: Mapping[str, Any]) -> None:
    """Refuses numbers that cannot be meant."""
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


def _num_used(num_examples: int, parameters: Mapping[str, Any]) -> int:
    """How many training examples a run uses."""
    most = parameters.get("max_train_examples")
    return num_examples if most is None else min(num_examples, most)


def _train(
    learner: Learner,
    directory: Path,
    *,
    num_examples: int,
    parameters: Mapping[str, Any],
    save_state_every_steps: int,
    log_every_steps: int,
) -> Mapping[str, np.ndarray]:
    """Trains to the last step and gives the weights."""
    from bert.optimization import learning_rate_schedule
    from bert.randomness import hash_bits, permuted_index
    from bert.training_loop import train

    assert learner.trainer is not None
    task, finetune_seed = parameters["task"], parameters["finetune_seed"]
    batch_size, used = parameters["batch_size"], _num_used(num_examples, parameters)
    num_steps = max(1, int(used * parameters["num_epochs"] / batch_size))
    warmup_steps = int(num_steps * parameters["warmup_proportion"])

    def batch_at(step: int) -> dict[str, np.ndarray]:
        # A batch may reach into the next epoch, so every batch has the same size.
        position = step * batch_size + np.arange(batch_size)
        epoch = position // used
        row = permuted_index(position % used, used, "finetune order", task, finetune_seed, epoch)
        if used < num_examples:
            # Which examples are used is the same for every seed.
            row = permuted_index(row, num_examples, "max_train_examples", task)
        return learner.batch(row)

    train(
        learner.trainer,
        directory=directory,
        initial_parameters=learner.initial_parameters,
        batch_at=batch_at,
        learning_rate_at=lambda step: learning_rate_schedule(
            step, parameters["learning_rate"], warmup_steps, num_steps
        ),
        num_steps=num_steps,
        # Its own address, so that it shares no dropout with the pre-training seed of that number.
        dropout_seed=int(hash_bits("finetune dropout", finetune_seed)),
        save_state_every_steps=save_state_every_steps,
        log_every_steps=log_every_steps,
        description=f"{task} seed {finetune_seed}",
    )
    return learner.trainer.parameters()


def _write(directory: Path, evaluation_set: EvaluationSet) -> dict[str, Any]:
    """Writes the predictions on one set; gives its entry in run.json."""
    file = f"predictions/{evaluation_set.name}.tfrecord"
    write_predictions(
        directory / file,
        example_ids=evaluation_set.example_ids,
        labels=evaluation_set.labels,
        predictions=evaluation_set.predictions,
        scores=evaluation_set.scores,
        extras=evaluation_set.extras,
    )
    return {
        "file": file,
        "examples": len(evaluation_set.example_ids),
        "sha256": sha256_of_file(directory / file),
        "metrics": list(evaluation_set.metrics),
    }


def _fingerprints(paths: Path | list[Path]) -> list[dict[str, str]]:
    """Names and checksums of an input's files (or of a checkpoint)."""
    listed = paths if isinstance(paths, list) else [paths]
    return [{"name": path.name, "sha256": fingerprint(path)} for path in listed]


def _versions() -> dict[str, str]:
    """Versions of what computed the numbers."""
    found = {"python": platform.python_version()}
    for distribution in _VERSIONS_OF:
        try:
            found[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
