"""Options of training beside the published recipe: which variables are trained, how fast, and on what."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Literal

from multiberts.runs.errors import UserError, counted

if TYPE_CHECKING:
    from multiberts.bert.model.configuration import BertConfig
    from multiberts.bert.training.engine import CompileChoice, Loss, Trainer


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of training; the defaults are the published recipe's.

    Attributes:
      gradient_shards: parts of a batch, one after the other in the memory of one, whose gradients are
        clipped apart and then summed.
      bias_correction: whether Adam's moments are corrected for their start at zero.
      adam_beta_1, adam_beta_2, adam_epsilon: as `bert.model.optimization.AdamSettings` has them.
      frozen_layers: freeze the embeddings and the first N layers; None: train everything.
      layer_decay: the learning rate of a layer is that of the layer above it times this.
      compute_dtype: `float32` or `bfloat16`, of the products in training and prediction.
      devices: how many share a step; `auto`: all accelerators. TensorFlow trains on one.

    Example:
      >>> TrainingOptions(frozen_layers=6) == TrainingOptions()
      False
    """

    gradient_shards: int = 1
    bias_correction: bool = False
    adam_beta_1: float = 0.9
    adam_beta_2: float = 0.999
    adam_epsilon: float = 1e-6
    frozen_layers: int | None = None
    layer_decay: float = 1.0
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    devices: int | Literal["auto"] = 1

    def trainer(self, loss: Loss, config: BertConfig, compile_step: CompileChoice) -> Trainer:
        """Returns a trainer of an encoder with a head.

        Args:
          loss: as `bert.training.engine.new_trainer` takes it.
          compile_step: whether XLA compiles the step; `auto` is true.
        """
        from multiberts.bert.model.optimization import learning_rate_factor
        from multiberts.bert.training.engine import TrainerSettings, new_trainer

        layers, frozen = config.num_hidden_layers, self.frozen_layers
        if frozen is not None and frozen > layers:
            raise UserError(
                f"finetune.frozen_layers is {frozen}, but the checkpoint has "
                f"{counted(layers, 'layer')}; give {layers} or less"
            )
        is_plain = frozen is None and self.layer_decay == 1
        factor_of = functools.partial(
            learning_rate_factor,
            num_layers=layers,
            layer_decay=self.layer_decay,
            frozen_layers=frozen,
        )
        settings = TrainerSettings(
            gradient_shards=self.gradient_shards,
            compile_step=bool(compile_step),
            devices=self.devices,
            bias_correction=self.bias_correction,
            beta_1=self.adam_beta_1,
            beta_2=self.adam_beta_2,
            epsilon=self.adam_epsilon,
            factor_of=None if is_plain else factor_of,
        )
        return new_trainer(loss, settings)


# The published recipe's.
RECIPE = TrainingOptions()
