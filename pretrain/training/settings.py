"""Parameters of a pre-training run: their checks, those that identify the run, the learning rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from multiberts.bert.checkpoint.hub import checkpoint_directory, is_name
from multiberts.pretrain.batches.masking import Masking
from multiberts.runs.errors import check_values
from multiberts.runs.identity import Identity, Values, without_later_defaults
from multiberts.runs.parameters import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Range,
)

RESTART, CONSTANT, CONTINUE = "restart", "constant", "continue"
Treatment = Literal["restart", "constant", "continue"]


@dataclass(frozen=True, kw_only=True)
class PretrainingSettings:
    """Settings of `pretrain`.

    Attributes:
      run_dir: the run's directory.
      corpus: the directory that `multiberts prepare` made.
      model: fields of `bert_config.json` except `vocab_size`, which the corpus's vocabulary gives.
      pretrain_seed: of all that has no seed of its own below.
      num_steps: updates in all.
      checkpoint_steps: numbers of finished updates at which a checkpoint is kept; 0 is the
        initialisation. The last step is always kept.
      procedure: the name of this way of training, recorded in checkpoints (`base`, `cda_incr`).
      data_seed: of the order of the instances; None: the same as pretrain_seed, as in the release.
      initialisation_seed: of the initial weights; None: the same as pretrain_seed.
      mask_seed: of the masked positions; None: as the corpus has them, or, of a corpus with fresh masks, the
        same as data_seed.
      dropout_seed: of dropout; None: the same as pretrain_seed.
      initial_checkpoint: a checkpoint directory (or `hub:<repository>`) whose weights training starts
        from, with moments at zero; None: draw them from initialisation_seed.
      batch_size: sequences per step.
      sequence_length: pieces per sequence; at least that of the corpus's instances.
      max_predictions_per_sequence: most masked pieces in a sequence.
      masked_lm_probability: share of pieces masked.
      whole_word_masks: whether the pieces of a word are masked together.
      learning_rate: peak of the schedule.
      warmup_steps: updates of linear warm-up.
      weight_decay_rate: for all but layer normalisation and biases.
      gradient_shards: parts of a batch whose gradients are clipped apart and then summed. The
        paper's 32 TPU cores; part of the recipe, whatever the machine.
      save_state_every_steps: how much work a kill may cost.
      save_state_every_seconds: how much time a kill may cost: a state is saved, too, at the first step
        this long after the last one.
      max_seconds_without_step: if no step ends for so long, evaluation and checkpoints between steps
        included, the process hangs and is killed (status 137); the same command resumes. Counted from before
        devices are opened, so compiling counts, too. Accelerators compute behind Python, which waits for them
        at lines of the log: give more than `log_every_steps` steps take. None: nothing watches.
      log_every_steps: between lines of `metrics.jsonl`.
      learning_rate_treatment: with an initial checkpoint: `restart` (a schedule of its own, as from
        scratch), `constant` (after the warm-up) or `continue` (the decay of one run of the
        checkpoint's step + num_steps updates); see `learning_rates`.
      evaluation_corpus: a corpus of held-out text, prepared with this corpus's vocabulary, on which
        masked words and next sentences are measured at every kept checkpoint and every
        evaluate_every_steps; into `metrics.jsonl` and the kept checkpoint's `checkpoint.json`.
      evaluate_every_steps: between further evaluations; None: at kept checkpoints only.
      evaluation_batches: batches of an evaluation, the same every time and for all seeds.
      tensorboard: whether to write the log to `run_dir/tensorboard` too.
      compile_step: whether XLA compiles the step.
      compute_dtype: `float32` or `bfloat16`, of the products in training; weights, optimiser and
        losses are float32 with both, and so is held-out evaluation.
      devices: how many share a step: a number, or `auto` for all accelerators. TensorFlow trains on one. With
        JAX, the bytes stay the same on CPUs; on accelerators the last bits change.
      steps_per_dispatch: the most updates made at once, without Python between them: by JAX on
        accelerators, and by TensorFlow on a processor where an update is short (at most 10 GFLOP). A
        notice to stop waits for their end.
      batch_threads: that make batches ahead of the device.
    """

    run_dir: str
    corpus: str
    model: Mapping[str, Any]
    pretrain_seed: NonNegativeInt
    num_steps: PositiveInt
    checkpoint_steps: Sequence[NonNegativeInt] = ()
    procedure: str = "base"
    data_seed: NonNegativeInt | None = None
    initial_checkpoint: str | None = None
    batch_size: PositiveInt = 256
    sequence_length: PositiveInt = 512
    max_predictions_per_sequence: PositiveInt = 80
    masked_lm_probability: Annotated[float, Range(above=0, below=1)] = 0.15
    whole_word_masks: bool = False
    learning_rate: PositiveFloat = 1e-4
    warmup_steps: NonNegativeInt = 10_000
    weight_decay_rate: NonNegativeFloat = 0.01
    gradient_shards: PositiveInt = 32
    save_state_every_steps: PositiveInt = 1000
    save_state_every_seconds: PositiveFloat | None = None
    max_seconds_without_step: PositiveFloat | None = None
    log_every_steps: PositiveInt = 100
    learning_rate_treatment: Treatment = "restart"
    evaluation_corpus: str | None = None
    evaluate_every_steps: PositiveInt | None = None
    evaluation_batches: PositiveInt = 16
    tensorboard: bool = True
    compile_step: bool = True
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    devices: int | Literal["auto"] = 1
    steps_per_dispatch: PositiveInt = 8
    batch_threads: PositiveInt = 1
    initialisation_seed: NonNegativeInt | None = None
    mask_seed: NonNegativeInt | None = None
    dropout_seed: NonNegativeInt | None = None

    def seed_of(self, source: str) -> int:
        """Returns the seed of a source of randomness: `initialisation`, `data` or `dropout`."""
        seed: int | None = getattr(self, f"{source}_seed")
        return self.pretrain_seed if seed is None else seed

    @property
    def kept_steps(self) -> list[int]:
        return sorted({*self.checkpoint_steps, self.num_steps})

    @property
    def evaluated_steps(self) -> set[int]:
        """Steps at which held-out text is evaluated or a checkpoint is kept."""
        if self.evaluation_corpus is None or self.evaluate_every_steps is None:
            return set(self.kept_steps)
        return {*self.kept_steps, *range(0, self.num_steps, self.evaluate_every_steps)}

    @property
    def masking(self) -> Masking:
        return Masking.of(vars(self))


def _settle(parameters: Values, inputs: Values) -> None:
    """Gives equal runs equal parameters; a checkpoint that is given by name is fetched."""
    for name in parameters.keys() - without_later_defaults(parameters, PretrainingSettings).keys():
        del parameters[name]
    if parameters["data_seed"] is None:
        parameters["data_seed"] = parameters["pretrain_seed"]
    parameters["model"] = dict(parameters["model"])
    parameters["checkpoint_steps"] = sorted(
        {*parameters["checkpoint_steps"], parameters["num_steps"]}
    )
    if is_name(inputs["initial_checkpoint"]):
        inputs["initial_checkpoint"] = str(checkpoint_directory(inputs["initial_checkpoint"]))
    if inputs["evaluation_corpus"] is None:
        del parameters["evaluation_batches"]


IDENTITY = Identity(
    inputs=("corpus", "initial_checkpoint", "evaluation_corpus"),
    speed=(
        "compile_step", "save_state_every_steps", "save_state_every_seconds", "max_seconds_without_step",
        "log_every_steps", "evaluate_every_steps", "steps_per_dispatch", "tensorboard", "devices",
        "batch_threads",
    ),
    settle=_settle,
)  # fmt: skip


def check_settings(settings: PretrainingSettings) -> None:
    """Refuses values that do not go together."""
    num_steps, shards = settings.num_steps, settings.gradient_shards
    treatment = settings.learning_rate_treatment
    late = [step for step in settings.checkpoint_steps if step > num_steps]
    seed, is_new = settings.initialisation_seed, settings.initial_checkpoint is None
    batch_size, warmup_steps = settings.batch_size, settings.warmup_steps
    check_values("pretrain", (
        ("checkpoint_steps", late[:1], not late, f"steps in 0..{num_steps}"),
        ("batch_size", batch_size, batch_size % shards == 0,
         f"a multiple of pretrain.gradient_shards {shards} (the paper: 256 and 32)"),
        ("warmup_steps", warmup_steps, warmup_steps <= num_steps, f"0 to num_steps, {num_steps}"),
        ("initialisation_seed", seed, seed is None or is_new,
         "None with pretrain.initial_checkpoint, whose weights training starts from"),
        ("learning_rate_treatment", treatment, treatment != CONTINUE or not is_new,
         "'restart' without pretrain.initial_checkpoint"),
    ))  # fmt: skip


def learning_rates(
    *,
    treatment: Treatment,
    learning_rate: float,
    warmup_steps: int,
    num_steps: int,
    steps_before: int = 0,
) -> Callable[[int], float]:
    """Returns the learning rate as a function of this run's finished updates.

    * `restart`: a schedule of its own: linear warm-up, linear decay to 0 at `num_steps`. The only
      schedule of training from scratch, and what the original code does with an initial checkpoint,
      whose step count it does not take over.
    * `constant`: linear warm-up, then `learning_rate` to the end.
    * `continue`: the linear decay of one run of `steps_before + num_steps` updates, from where the
      checkpoint stands in it; no warm-up.

    Args:
      learning_rate: the nominal peak.
      warmup_steps: updates of warm-up.
      steps_before: updates that the checkpoint has had, for `continue`.

    Reference: google-research/bert, `optimization.create_optimizer`; the MultiBERTs paper does not
    say which treatment its CDA-incr models had.
    """
    from multiberts.bert.model.optimization import learning_rate_schedule

    def at(step: int) -> float:
        if treatment == CONTINUE:
            total = steps_before + num_steps
            return learning_rate_schedule(steps_before + step, learning_rate, 0, total)
        if treatment == CONSTANT and step >= warmup_steps:
            return learning_rate
        return learning_rate_schedule(step, learning_rate, warmup_steps, num_steps)

    return at
