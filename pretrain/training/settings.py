"""Parameters of a pre-training run: their checks, those that identify the run, the learning rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from multiberts.bert.checkpoint.checkpoint import Checkpoint
from multiberts.bert.model.configuration import own_fields
from multiberts.pretrain.batches.masking import Masking
from multiberts.runs.errors import check_values
from multiberts.runs.identity import Identity, Values, opened
from multiberts.runs.parameters import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Range,
    Seed,
)

RESTART, CONSTANT, CONTINUE = "restart", "constant", "continue"
Treatment = Literal["restart", "constant", "continue"]


@dataclass(frozen=True, kw_only=True)
class PretrainingSettings:
    """Settings of `pretrain`.

    Attributes:
      run_dir: the run's directory.
      corpus: the directory that `multiberts prepare` made.
      model: fields of `bert_config.json` except `vocab_size`, which the corpus's vocabulary sets.
      pretrain_seed: seed of everything that has no seed of its own below.
      num_steps: number of updates.
      checkpoint_steps: steps (finished updates) at which to save a checkpoint; 0 is the initialisation. The
        last step is always saved.
      procedure: name of this way of pre-training, recorded in checkpoints (`base`, `cda_incr`).
      data_seed: seed of the order of instances; None: pretrain_seed, as in the release.
      initialisation_seed: seed of the initial weights; None: pretrain_seed.
      mask_seed: seed of the masked positions; None: the corpus's masks, or, for a corpus with fresh masks,
        data_seed.
      dropout_seed: seed of dropout; None: pretrain_seed.
      initial_checkpoint: checkpoint directory (or `hub:<repository>`) with the initial weights; Adam's
        moments start at zero. None: draw weights from initialisation_seed.
      batch_size: sequences per step.
      sequence_length: number of pieces per sequence; at least that of the corpus's instances.
      max_predictions_per_sequence: maximum number of masked pieces in a sequence.
      masked_lm_probability: share of masked pieces.
      whole_word_masks: whether to mask the pieces of a word together.
      learning_rate: peak learning rate of the schedule.
      warmup_steps: number of updates of linear warm-up.
      weight_decay_rate: weight decay of everything but layer normalisation and biases.
      gradient_shards: number of parts of a batch whose gradients are clipped separately and then summed. The
        paper's 32 TPU cores; part of the recipe on any machine.
      save_state_every_steps: maximum number of steps that a kill can lose.
      save_state_every_seconds: also save a state at the first step this long after the last one; None: by
        steps only.
      max_seconds_without_step: kill the process as hung (status 137) if no step ends for this long, with
        evaluation and checkpoints between steps; the same command resumes. Counts from before devices are
        opened, so compilation counts, too. Accelerators run ahead of Python, which waits for them at lines of
        the log: give more than `log_every_steps` steps take. None: no limit.
      log_every_steps: number of steps between lines of `metrics.jsonl`.
      learning_rate_treatment: schedule with an initial checkpoint: `restart` (as from scratch), `constant`
        (after the warm-up) or `continue` (the decay of a single run of the checkpoint's step + num_steps
        updates); see `learning_rates`.
      evaluation_corpus: corpus of held-out text, prepared with this corpus's vocabulary, on which masked
        words and next sentences are evaluated at every saved checkpoint and every evaluate_every_steps;
        results go to `metrics.jsonl` and the checkpoint's `checkpoint.json`.
      evaluate_every_steps: number of steps between further evaluations; None: at saved checkpoints only.
      evaluation_batches: number of batches of an evaluation, the same ones every time and for all seeds.
      tensorboard: whether to also write the log to `run_dir/tensorboard`.
      compile_step: whether XLA compiles the step.
      compute_dtype: `float32` or `bfloat16` for matrix products in training; weights, optimiser, losses and
        held-out evaluation are always float32.
      devices: number of devices that share a step, or `auto` for all accelerators. TensorFlow trains on one.
        With JAX, any number gives the same bytes on CPUs; on accelerators the last bits change.
      steps_per_dispatch: maximum number of updates without Python between them: with JAX on accelerators, and
        with TensorFlow on a processor if an update is short (at most 10 GFLOP). A notice to stop waits for
        their end.
      batch_threads: number of threads that make batches ahead of the device.
    """

    run_dir: str
    corpus: str
    model: Mapping[str, Any]
    pretrain_seed: Seed
    num_steps: PositiveInt
    checkpoint_steps: Sequence[NonNegativeInt] = ()
    procedure: str = "base"
    data_seed: Seed | None = None
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
    initialisation_seed: Seed | None = None
    mask_seed: Seed | None = None
    dropout_seed: Seed | None = None

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
    """Gives equal runs equal parameters."""
    if parameters["data_seed"] is None:
        parameters["data_seed"] = parameters["pretrain_seed"]
    parameters["model"] = own_fields(parameters["model"], "pretrain.model")
    parameters["checkpoint_steps"] = sorted(
        {*parameters["checkpoint_steps"], parameters["num_steps"]}
    )
    if inputs["evaluation_corpus"] is None:
        del parameters["evaluation_batches"]


IDENTITY = Identity(
    inputs={
        "corpus": opened, "initial_checkpoint": Checkpoint.open, "evaluation_corpus": opened,
    },
    settings=PretrainingSettings,
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

    * `restart`: linear warm-up, linear decay to 0 at `num_steps`. The schedule of training from scratch, and
      of the original code with an initial checkpoint, whose step count it ignores.
    * `constant`: linear warm-up, then `learning_rate` to the end.
    * `continue`: the linear decay of a single run of `steps_before + num_steps` updates, from the
      checkpoint's step; no warm-up.

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
