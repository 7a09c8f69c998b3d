"""Training options beyond the published recipe: trained variables, learning rates and training data."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated, Literal

from multiberts.runs.errors import UserError, counted
from multiberts.runs.parameters import NonNegativeInt, PositiveFloat, PositiveInt, Range

if TYPE_CHECKING:
    from multiberts.bert.model.configuration import BertConfig
    from multiberts.bert.training.engine import CompileChoice, Loss, Trainer

# Roles of settings, as metadata of their fields, by which a run is identified: a setting names files, selects
# data, names the checkpoint, or only changes speed; one without a role affects training.
FILES, DATA, NAMES, SPEED = ({"role": role} for role in ("files", "data", "names", "speed"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of training, as `FinetuningSettings` describes them; the defaults are the published recipe's.

    Examples:
      >>> TrainingOptions(frozen_layers=6) == TrainingOptions()
      False
    """

    gradient_shards: PositiveInt = 1
    bias_correction: bool = False
    adam_beta_1: Annotated[float, Range(least=0, below=1)] = 0.9
    adam_beta_2: Annotated[float, Range(least=0, below=1)] = 0.999
    adam_epsilon: PositiveFloat = 1e-6
    frozen_layers: NonNegativeInt | None = None
    layer_decay: Annotated[float, Range(above=0, most=1)] = 1.0
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    devices: PositiveInt | Literal["auto"] = dataclasses.field(default=1, metadata=SPEED)

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


def fields_with_role(settings: type, role: str | None) -> tuple[str, ...]:
    """Returns the names of the fields; None: those without a role."""
    fields = dataclasses.fields(settings)
    return tuple(field.name for field in fields if field.metadata.get("role") == role)
