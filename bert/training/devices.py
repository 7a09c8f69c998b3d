"""The devices of one host that train one model, for any engine."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from multiberts.bert.model.operations import peak_flops_per_second
from multiberts.runs.errors import UserError

AUTO: Literal["auto"] = "auto"
DeviceChoice = int | Literal["auto"]

# The value of `Devices.kind` for a processor.
CPU = "CPU"


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices that train together.

    Attributes:
      mesh: JAX's mesh of the devices; None for one device.
      kind: device name reported by the driver of the first device.
    """

    mesh: Any
    count: int
    kind: str

    def check_shards(self, gradient_shards: int) -> None:
        """Refuses shards that cannot be divided evenly among the devices."""
        if gradient_shards % self.count:
            raise UserError(
                f"gradient_shards {gradient_shards} is not a multiple of the {self.count} devices; set "
                "devices to a number that divides it (the shards are part of the recipe)"
            )

    def peak_flops_per_second(self, compute_dtype: str = "float32") -> float | None:
        """Returns the summed peak of all devices from the makers' data sheets; None if unknown."""
        peak = peak_flops_per_second(self.kind, compute_dtype)
        return None if peak is None else peak * self.count
