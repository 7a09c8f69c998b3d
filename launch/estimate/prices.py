"""Reads `prices.toml`: speed and price of devices."""

from __future__ import annotations

import difflib
import functools
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from multiberts.bert.model.operations import device_peaks
from multiberts.runs.errors import UserError

FILE = Path(__file__).with_name("prices.toml")

_CORES_PER_CHIP = 2
# Slices up to this number (of chips or cores) are one machine.
_LARGEST_SLICE = 8

_SLICE = re.compile(r"(?P<chip>[a-z]\w*)-(?P<count>\d+)")
_SEVERAL = re.compile(r"(?P<count>\d+)x(?P<chip>\w+)")


@dataclass(frozen=True)
class Figure:
    """A number with its source and date.

    Attributes:
      value: the number, in the units of `prices.toml`.
      source: a page, a paper, or a reason.
      date: year or day of the source.
      assumed: whether it is a guess, not looked up.
    """

    value: float
    source: str
    date: str
    assumed: bool = False


@dataclass(frozen=True)
class CompiledShare:
    """Share of the peak that one model's training step can reach, by the compiler's cycle count."""

    model: str
    hidden_size: int
    length: int
    share: float

    def distance(self, hidden_size: int, length: int) -> float:
        """Distance to another shape, by the ratios of sizes."""
        return abs(math.log(hidden_size / self.hidden_size)) + abs(math.log(length / self.length))


@dataclass(frozen=True)
class Chip:
    """A kind of devices.

    Attributes:
      suffix_counts: whether the number in a slice's name counts `cores` or `chips`; `none`: it has no number.
      figures: figures by their names in `prices.toml`.
      compiled: shares of the peak by the compiler, for some shapes of models; empty where runs were
        measured.
    """

    title: str
    suffix_counts: str
    figures: Mapping[str, Figure]
    compiled: tuple[CompiledShare, ...]


@dataclass(frozen=True)
class Device:
    """One or several chips of a kind that carry out a run.

    Attributes:
      name: such as `v4-8`, `H100`, `8xA100`, `cpu`.
      spot_share: assumed ratio of spot to on-demand price where no spot price is known.
    """

    name: str
    chip: Chip
    chips: int
    spot_share: float

    def compiled_for(self, hidden_size: int, length: int) -> CompiledShare | None:
        """Returns the compiler's share of the peak for the nearest shape; None if there is none."""
        shares = self.chip.compiled
        return (
            min(shares, key=lambda share: share.distance(hidden_size, length)) if shares else None
        )

    def peak(self, compute_dtype: str = "bfloat16") -> float:
        """Returns the peak FLOP/s of all chips; the float32 peak if it is the only one."""
        figures = self.chip.figures
        figure = figures["peak_flops_per_second"]
        if compute_dtype == "float32":
            figure = figures.get("peak_flops_per_second_float32", figure)
        return figure.value * self.chips

    def flops_per_second(
        self, compute_dtype: str = "bfloat16", hidden_size: int = 768, length: int = 512
    ) -> float:
        """Returns the FLOP/s that a model's matrix products reach in `bfloat16` or `float32`."""
        compiled = self.compiled_for(hidden_size, length)
        share = self.chip.figures["utilisation"].value if compiled is None else compiled.share
        return self.peak(compute_dtype) * share

    @property
    def is_processor(self) -> bool:
        """Returns whether its chips are processor cores."""
        return self.name.rpartition("x")[2] in ("cpu", "n2")

    def dollars_per_hour(self, spot: bool = False) -> float:
        price = self.chip.figures["dollars_per_hour"].value
        if spot:
            dated = self.chip.figures.get("dollars_per_hour_spot")
            price = price * self.spot_share if dated is None else dated.value
        return price * self.chips

    def assumptions(self, spot: bool = False) -> list[str]:
        """Returns the assumed figures in words."""
        words = {"peak_flops_per_second": f"a peak of {self.peak() / 1e12:,.4g} TFLOP/s"}
        if not self.chip.compiled:  # otherwise each run states it for its shape
            words["utilisation"] = f"{self.chip.figures['utilisation'].value:.0%} of the peak"
        dated = self.chip.figures.get("dollars_per_hour_spot")
        if not spot:
            price = f"{self.dollars_per_hour():,.2f} dollars per hour"
        elif dated is None:
            price = f"spot capacity at {self.spot_share:.0%} of the price"
        else:
            price = f"{dated.value:g} dollars per chip-hour of spot capacity ({dated.date})"
        words["dollars_per_hour"] = price
        return [text for name, text in words.items() if self.chip.figures[name].assumed]


@dataclass(frozen=True)
class Prices:
    """All figures.

    Attributes:
      spot_share: assumed ratio of spot to on-demand price where no spot price is known.
      stages: seconds and bytes of runs besides matrix products.
    """

    spot_share: Figure
    stages: Mapping[str, Figure]
    chips: Mapping[str, Chip]

    def device(self, name: str) -> Device:
        """Returns the device with a name such as `v4-8`, `v5litepod-8`, `H100`, `8xH100`, `cpu`."""
        counts = {chip: kind.suffix_counts for chip, kind in self.chips.items()}
        slice_name = _SLICE.fullmatch(name)
        if slice_name and counts.get(slice_name["chip"]) in ("cores", "chips"):
            count, unit = int(slice_name["count"]), counts[slice_name["chip"]]
            each = _CORES_PER_CHIP if unit == "cores" else 1
            if count not in range(each, _LARGEST_SLICE + 1, each):
                raise UserError(
                    f"device {name!r} has {count} {unit}, expected a multiple of {each} up to "
                    f"{_LARGEST_SLICE}, as one machine trains a seed; correct the number"
                )
            chip = self.chips[slice_name["chip"]]
            return Device(name, chip, count // each, self.spot_share.value)
        several = _SEVERAL.fullmatch(name)
        single = several["chip"] if several else name
        count = int(several["count"]) if several else 1
        if counts.get(single) == "none" and count:
            return Device(name, self.chips[single], count, self.spot_share.value)
        names = [one if kind == "none" else f"{one}-<{kind}>" for one, kind in counts.items()]
        spellings = {one.lower(): one for one in counts}
        near = difflib.get_close_matches(name.partition("-")[0].lower(), spellings, n=1)
        cure = f"did you mean {spellings[near[0]]}?" if near else f"or add it to {FILE.name}"
        raise UserError(f"unknown device {name!r}, expected one of {', '.join(names)}; {cure}")


@functools.cache
def load_prices() -> Prices:
    """Reads `prices.toml`, in which every figure has a source and a date."""
    content = tomllib.loads(FILE.read_text())
    return Prices(
        spot_share=Figure(**content["spot_share"]),
        stages=_figures(content["stages"]),
        chips={
            name: Chip(
                title=table["title"],
                suffix_counts=table["suffix_counts"],
                figures=_peaks_of(name) | _figures(table),
                compiled=tuple(
                    CompiledShare(**row) for row in content["by_compiler"].get(name, ())
                ),
            )
            for name, table in content["chips"].items()
        },
    )


def _peaks_of(chip: str) -> dict[str, Figure]:
    """Returns a chip's peaks in `bert/model/peaks.toml`, if any."""
    peaks = device_peaks().get(chip, {})
    fields = {"bfloat16": "peak_flops_per_second", "float32": "peak_flops_per_second_float32"}
    return {
        field: Figure(peaks[name], peaks["source"], peaks["date"], assumed=True)
        for name, field in fields.items()
        if name in peaks
    }


def _figures(table: Mapping[str, Any]) -> dict[str, Figure]:
    """Returns the figures of a table; skips its texts."""
    return {name: Figure(**value) for name, value in table.items() if not isinstance(value, str)}
