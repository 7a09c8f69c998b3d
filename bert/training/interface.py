"""What an engine is: the two things that TensorFlow and JAX each do in a way of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from multiberts.bert.training.devices import Devices
from multiberts.bert.training.state import Arrays

Array = Any
Batch = Mapping[str, np.ndarray]
Loss = Callable[[Mapping[str, Array], Mapping[str, Array], Array], tuple[Array, dict[str, Array]]]
# Several updates in one program; see `Step.several`.
Several = Callable[[Batch, np.ndarray, int], dict[str, Array]]
Function = Callable[[Mapping[str, Array], Mapping[str, Array]], dict[str, Array]]

# Names among a batch's arrays while they are dealt to devices: the dropout keys, and, of several
# processes, whether each was asked to stop.
DROPOUT_KEYS = "dropout_keys"
NOTICES = "notices"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """What an update does; see `engine.Trainer`.

    Attributes:
      loss: (parameters, batch, dropout key uint32 [2]) -> (scalar, scalars by name), pure.
      gradient_shards: parts of a batch clipped apart.
      weight_decay_rate: for all but layer normalisation and biases.
      compile_step: whether XLA compiles the update.
      factor_of: name -> by what the learning rate of a variable is multiplied; None: one.
    """

    loss: Loss
    gradient_shards: int
    weight_decay_rate: float
    compile_step: bool
    factor_of: Callable[[str], float] | None = None


class Step(Protocol):
    """One update of the weights and moments that it holds on its devices; made of (recipe, devices)."""

    def __init__(self, recipe: Recipe, devices: Devices): ...

    @property
    def machine(self) -> Mapping[str, object]:
        """Returns what changes the last bits of training besides the recipe: settings and versions."""

    def place(self, parameters: Arrays, m: Arrays, v: Arrays) -> None:
        """Takes float32 arrays by name. Of the same names and shapes, nothing recompiles."""

    def parameters(self) -> Arrays:
        """Returns a copy of the weights."""

    def moments(self) -> tuple[Arrays, Arrays]:
        """Returns copies of m and v."""

    def has_equal_copies(self) -> bool:
        """Returns whether the devices of this process hold the same bits."""

    def __call__(self, arrays: Batch, learning_rate: float | np.ndarray) -> dict[str, Array]:
        """Makes one update.

        Args:
          arrays: the batch by name, each [batch, ...]; `DROPOUT_KEYS` uint32 [gradient_shards, 2]; of
            several processes `NOTICES` float32 [devices]. Each device takes an equal part of all.
          learning_rate: of this update; [3] with the corrections of Adam's bias.

        Returns:
          Scalars by name, perhaps still being computed: means over shards, and the sum of `NOTICES`.
        """

    @property
    def several(self) -> Several | None:
        """Returns what makes several updates in one program; None where there is nothing to gain.

        Its arguments:
          arrays: as a single update takes them, of each step: [steps, ...].
          learning_rates: float32 [steps].
          num_steps: how many are made, from the first; the other arrays are not looked at.

        It returns what a single update does, [steps] by name, of which the first `num_steps` count.
        """


class Forward(Protocol):
    """A compiled forward pass; made of (function, compile_step)."""

    def __init__(self, function: Function, compile_step: bool): ...

    def placed(self, parameters: Mapping[str, np.ndarray]) -> Mapping[str, Array]:
        """Returns the weights on the device."""

    def __call__(self, parameters: Mapping[str, Array], batch: Batch) -> Arrays:
        """Returns the outputs by name, from weights as `placed`."""
