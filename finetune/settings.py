"""Parameters of a fine-tuning run: the settings, their checks, and which of them identify the run."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.checkpoint.hub import check_name
from multiberts.evaluate.prediction_files.run_file import check_set_names, set_at
from multiberts.finetune.data_files import DATASET_PREFIX
from multiberts.finetune.model import HELD_OUT
from multiberts.finetune.task import DataArguments, FinetuningData, Task, task_named
from multiberts.finetune.training_options import (
    FILES,
    NAMES,
    RECIPE,
    SPEED,
    TrainingOptions,
    fields_with_role,
)
from multiberts.runs.errors import UserError
from multiberts.runs.identity import Identity, Values, opened, opened_code, without_later_defaults
from multiberts.runs.parameters import (
    PositiveFloat,
    PositiveInt,
    Range,
    Seed,
    leaves,
    ordered_fields,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuningSettings(TrainingOptions, DataArguments):
    """Settings of a fine-tuning run.

    Attributes:
      run_dir: the run's directory.
      checkpoint: a checkpoint directory, of this project or a released one; or its name on the Hugging Face
        Hub, such as `hub:google/multiberts-seed_0`, with `@<revision>` for any but the newest revision.
      task: a registered task (`multiberts list tasks`), or any name with `labels` or an option `kind`.
      data_dir: a folder with the task's files: tables such as `train.tsv` and `dev.tsv` (or `.tsv.gz`),
        `train.conll` and `dev.conll` (or `.conll.gz`) of coreference, the Winogender files of the probe.
        With `dataset`: the folder of TensorFlow Datasets.
      dataset: a name in TensorFlow Datasets, such as `glue/rte`, in place of files.
      train_files: training files in place of data_dir: several for coreference (GAP if the name ends in
        `.tsv` or `.tsv.gz`, else CoNLL-2012), one for other tasks.
      dev_files: evaluation files in place of data_dir; texts and pairs do not need them with a held_out_fold.
      evaluation_files: further evaluation sets by name, such as {"hans": "path"}.
      winogender_dir: folder with the Winogender files, or a list of the three files, for coreference and the
        probe.
      labels: label names of a task that is not registered.
      options: options of the task, such as {"num_hidden_units": 64} for coreference;
        `multiberts finetune --helpfull` describes them.
      task_modules: Python modules that register further tasks, such as ["my_tasks.reviews"], found by
        PYTHONPATH; see docs/tasks.md.
      procedure: name of the checkpoint's pre-training procedure in this run's records; None: the name that
        the checkpoint records.
      pretrain_seed: the checkpoint's pre-training seed in this run's records; None: the seed that it records.
      learning_rate: peak learning rate of the schedule.
      finetune_seed: seed of the order of examples, the head's initial weights and dropout, unless they have
        their own.
      batch_size: examples (coreference: pairs, SQuAD: windows) per step.
      num_epochs: passes over the training examples; may be a fraction.
      warmup_proportion: share of the steps in which the learning rate rises.
      sequence_length: maximum number of tokens in a sequence; longer texts are truncated, longer documents
        split.
      max_train_examples: number of training examples, the same ones for every seed; None: all.
      held_out_fold: 0 to 4: train on the other four fifths of the training examples, and predict this fifth
        too, as evaluation set `held_out`; the fifths are the same for every seed. None: train on all.
      prediction_epochs: epochs (may be fractions) after which to predict early, as `dev@2.5`; training then
        continues unchanged.
      evaluate_every_steps: number of steps between early predictions, which are named after their epochs;
        None: no such predictions.
      keep: the fine-tuned model to save as a checkpoint in `model/`: `none`; `last`; or `best` of those with
        early predictions and the last, whose predictions are then the run's.
      keep_set: evaluation set that `best` is chosen by; None: the first.
      keep_metric: metric that `best` is chosen by; None: the set's first.
      patience: for `best`: stop after this number of predictions in a row without an improvement; None: do
        not stop early.
      max_steps: maximum number of steps, at which the learning rate has fallen to 0; None: the epochs decide.
      gradient_shards: number of parts of a batch that are computed in turn, to save memory; their gradients
        are clipped separately and then summed.
      bias_correction: whether to correct Adam's moments for their start at zero, which the recipe does not.
      frozen_layers: freeze the embeddings and the first N layers of the encoder; None: train everything.
      layer_decay: ratio of a layer's learning rate to that of the layer above; the pooler and the head have
        learning_rate.
      learning_rate_decay: schedule after the warm-up: `linear` to 0, the recipe's (by the global step, so
        that the rate drops by the warm-up's share when that ends); `cosine`, half a period from the peak to
        0; `constant`.
      adam_beta_1: decay of Adam's mean gradient per update.
      adam_beta_2: decay of Adam's mean squared gradient per update.
      adam_epsilon: added to the root of the mean squared gradient.
      compute_dtype: `float32` or `bfloat16` for matrix products; weights and optimiser are float32.
      devices: number of devices that share a step, or `auto` for all accelerators. TensorFlow trains on one;
        with JAX on CPUs, any number gives the bytes of one.
      tensorboard: whether to also write the log to `run_dir/tensorboard`.
      save_state_every_steps: maximum number of steps that a kill can lose.
      log_every_steps: number of steps between lines of `metrics.jsonl`.
      compile_step: whether XLA compiles the step: some seconds per process, then faster steps.
      head_seed: seed of the head's initial weights; None: finetune_seed.
      order_seed: seed of the order of the examples; None: finetune_seed.
      dropout_seed: seed of dropout; None: finetune_seed.
    """

    run_dir: str
    checkpoint: str = dataclasses.field(metadata=FILES)
    procedure: str | None = dataclasses.field(default=None, metadata=NAMES)
    pretrain_seed: Seed | None = dataclasses.field(default=None, metadata=NAMES)
    learning_rate: PositiveFloat = 5e-5
    finetune_seed: Seed = 0
    head_seed: Seed | None = None
    order_seed: Seed | None = None
    dropout_seed: Seed | None = None
    batch_size: PositiveInt = 32
    num_epochs: PositiveFloat = 3
    warmup_proportion: Annotated[float, Range(least=0, most=1)] = 0.1
    max_train_examples: PositiveInt | None = None
    prediction_epochs: Sequence[PositiveFloat] = ()
    evaluate_every_steps: PositiveInt | None = None
    keep: Literal["none", "last", "best"] = "none"
    keep_set: str | None = None
    keep_metric: str | None = None
    patience: PositiveInt | None = None
    max_steps: PositiveInt | None = None
    learning_rate_decay: Literal["linear", "cosine", "constant"] = "linear"
    tensorboard: bool = dataclasses.field(default=False, metadata=SPEED)
    save_state_every_steps: PositiveInt = dataclasses.field(default=500, metadata=SPEED)
    log_every_steps: PositiveInt = dataclasses.field(default=50, metadata=SPEED)
    compile_step: bool = dataclasses.field(default=True, metadata=SPEED)

    def __post_init__(self) -> None:
        """Refuses early predictions that are not before the end, or repeated, and a choice of none."""
        check_name(self.checkpoint)
        for epochs in self.prediction_epochs:
            if epochs >= self.num_epochs:
                raise UserError(
                    f"finetune.prediction_epochs holds {epochs:g}, expected numbers above 0 and below "
                    f"num_epochs, {self.num_epochs}: at the end predictions are made anyway; correct the "
                    "list"
                )
        names = [set_at("dev", epochs) for epochs in self.prediction_epochs]
        if len(set(names)) < len(names):
            raise UserError(
                f"finetune.prediction_epochs is {self.prediction_epochs}, expected each number once (to "
                "four digits); remove the repeated one"
            )
        if self.keep == "best" and not (self.prediction_epochs or self.evaluate_every_steps):
            raise UserError(
                "finetune.keep is 'best', but there are no finetune.prediction_epochs after which models "
                "are compared; give some, such as [1, 2], or finetune.evaluate_every_steps, or keep = 'last'"
            )
        for name in ("keep_set", "keep_metric", "patience"):
            if self.keep != "best" and getattr(self, name) is not None:
                raise UserError(
                    f"finetune.{name} is {getattr(self, name)!r}, which counts with keep = 'best' only, "
                    f"and keep is {self.keep!r}; leave it out, or keep the best"
                )
        if self.batch_size % self.gradient_shards:
            raise UserError(
                f"finetune.batch_size is {self.batch_size}, expected a multiple of finetune.gradient_shards, "
                f"{self.gradient_shards}; correct either"
            )

    def seed_of(self, source: str) -> int:
        """Returns the seed of a source of randomness: `head`, `order` or `dropout`."""
        own: int | None = getattr(self, f"{source}_seed")
        return self.finetune_seed if own is None else own

    def call(self) -> dict[str, Any]:
        """Returns the arguments that make the run again, as values that Gin can spell."""
        names = [name for name in ordered_fields(type(self)) if name != "run_dir"]
        call = {name: getattr(self, name) for name in names}
        if not self.task_modules:  # a file that names modules is refused, as their code would run
            del call["task_modules"]
        return without_later_defaults(call, type(self))

    def check_task(self, task: Task) -> None:
        if self.keep != "none" and not task.trains:
            raise UserError(
                f"finetune.keep is {self.keep!r}, but task {self.task} trains nothing that could be "
                "kept; leave it out"
            )
        if task.frozen_encoder and task.trains and self.training_options() != RECIPE:
            names = ", ".join(field.name for field in dataclasses.fields(TrainingOptions))
            raise UserError(
                f"task {self.task} trains a head on the states of a frozen encoder, which takes none of the "
                f"options {names}; leave them out"
            )

    def training_options(self) -> TrainingOptions:
        names = [field.name for field in dataclasses.fields(TrainingOptions)]
        return TrainingOptions(**{name: getattr(self, name) for name in names})


_TRAINING = fields_with_role(FinetuningSettings, None)
_FILES_OF_DATA = fields_with_role(DataArguments, "files")
_OPENERS = dict.fromkeys(_FILES_OF_DATA, opened)
_OF_DATA = [field.name for field in dataclasses.fields(DataArguments)]
# Facts of the checkpoint that a run may record under another name.
NAMED = fields_with_role(FinetuningSettings, "names")


def _settle(parameters: Values, inputs: Values) -> None:
    """Leaves out what has no effect, and takes names in TensorFlow Datasets for names."""
    chosen = task_of({**parameters, **inputs})
    parameters["options"] = chosen.decisive(parameters["options"] or {})
    for name in _TRAINING if not chosen.trains else ():
        parameters.pop(name, None)
    if parameters["dataset"] is not None:
        del inputs["data_dir"]  # where TensorFlow Datasets keeps its data sets
    further = inputs["evaluation_files"] or {}
    names = {name: path for name, path in further.items() if str(path).startswith(DATASET_PREFIX)}
    if names:
        parameters["evaluation_sets"] = names
        inputs["evaluation_files"] = {n: path for n, path in further.items() if n not in names}


def _find_files(
    arguments: Mapping[str, Any], parameters: Values, inputs: Values, memory: dict[Any, Any]
) -> tuple[Values, Values]:
    """Takes what the data say, where they are all on this machine, as the run itself does."""
    data = {name: inputs[name] for name in _FILES_OF_DATA if name in inputs}
    named = (
        arguments["dataset"] is not None
        or data.get("evaluation_files") != arguments["evaluation_files"]
    )
    if named or not all(isinstance(leaf, str) for leaf in leaves([*data.values()])):
        return parameters, inputs
    given = json.dumps({name: arguments.get(name) for name in _OF_DATA})
    if given not in memory:
        memory[given] = data_of(arguments)
    return with_data(parameters, inputs, memory[given])


def task_of(arguments: Mapping[str, Any]) -> Task:
    """Returns the task of a call of `finetune`."""
    names = ("labels", "task_modules", "options")
    given = {name: arguments[name] for name in names if arguments.get(name) is not None}
    return task_named(arguments["task"], **given)


def data_of(arguments: Mapping[str, Any]) -> FinetuningData:
    """Finds the data of a call of `finetune`."""
    task = task_of(arguments)
    given = {name: arguments[name] for name in _OF_DATA if arguments.get(name) is not None}
    given |= {name: tuple(value) for name, value in given.items() if isinstance(value, list)}
    data = task.data(
        DataArguments(**{**given, "options": task.completed(given.get("options") or {})})
    )
    # Now, as `write_sets` would refuse them after a long training.
    names = [*(data.set_names() or given.get("evaluation_files", ()))]
    check_set_names(names + [HELD_OUT] * ("held_out_fold" in given))
    return data


IDENTITY = Identity(
    inputs={"checkpoint": Checkpoint.open, "task_modules": opened_code, **_OPENERS},
    speed=fields_with_role(FinetuningSettings, "speed"),
    settings=FinetuningSettings,
    settle=_settle,
    find_files=_find_files,
)


def with_data(counted: Values, inputs: Values, data: FinetuningData) -> tuple[Values, Values]:
    """Returns the parameters of a run, which its directory and its run.json record, and its inputs."""
    of_task = data.parameters()
    # Options that a task does not name among its parameters count, too.
    defaults = task_of({**counted, **inputs}).options
    options = {
        name: value
        for name, value in counted["options"].items()
        if name not in of_task and value != defaults[name]
    }
    parameters = {
        "task": counted["task"],
        **({"options": options} if options else {}),
        **of_task,
        **{name: value for name, value in counted.items() if name in _TRAINING},
        **{name: counted[name] for name in NAMED if counted[name] is not None},
    }
    others = {name: inputs[name] for name in inputs.keys() - {*_FILES_OF_DATA}}
    return parameters, {**others, **data.inputs()}
