"""Reads and checks `prices.toml`: speed, price and power of devices."""

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
VERSION = 1

_CORES_PER_CHIP = 2
# Up to this number of chips a slice is one host's; above, slices are parts of a pod.
_CHIPS_OF_A_HOST = 4

_SLICE = re.compile(r"(?P<chip>[a-z]\w*)-(?P<count>\d+)")
_SEVERAL = re.compile(r"(?P<count>\d+)x(?P<chip>\w+)")
_FIELDS = ("peak_flops_per_second", "utilisation", "dollars_per_hour", "watts")
# The shape whose share stands for a chip where a run's own is not known.
_USUAL = (768, 512)


@dataclass(frozen=True)
class Figure:
    """A number with where and when it was found.

    Attributes:
      value: in the units of `prices.toml`.
      source: a page, a paper, or a reason.
      date: of the source, year or day.
      assumed: whether it was not looked up.
    """

    value: float
    source: str
    date: str
    assumed: bool = False


@dataclass(frozen=True)
class CompiledShare:
    """The share of the peak that a compiler's cycles grant a training step of one model.

    Attributes:
      model: its name in docs/compile_table.md.
      hidden_size, length: its shape.
      share: of the peak.
    """

    model: str
    hidden_size: int
    length: int
    share: float

    def distance(self, hidden_size: int, length: int) -> float:
        """Returns how far another shape is, by the ratios of sizes."""
        return abs(math.log(hidden_size / self.hidden_size)) + abs(math.log(length / self.length))


@dataclass(frozen=True)
class Device:
    """One or several chips of a kind, which carry out a run.

    Attributes:
      name: as in `v4-8`, `H100`, `8xA100`, `cpu`.
      title: the chip's full name.
      chips: how many.
      peak: FLOP/s of all chips in products of bfloat16; of float32 if there is no other.
      peak_float32: the same in products of float32.
      utilisation: the share of the peak that BERT's own products reach.
      compiled: that share by the compiler, for models of some shapes; empty where runs were measured.
      dollars: per hour of all chips, on demand.
      spot_dollars: per hour of all chips of spot capacity.
      watts: of all chips.
      figures: the sources of the values, by name.
    """

    name: str
    title: str
    chips: int
    peak: float
    peak_float32: float
    utilisation: float
    compiled: tuple[CompiledShare, ...]
    dollars: float
    spot_dollars: float
    watts: float
    figures: Mapping[str, Figure]

    def compiled_for(self, hidden_size: int, length: int) -> CompiledShare | None:
        """Returns the compiler's share for the model of the nearest shape; None where it has none."""
        shares = self.compiled
        return min(shares, key=lambda one: one.distance(hidden_size, length)) if shares else None

    def flops_per_second(
        self, compute_dtype: str = "bfloat16", hidden_size: int = _USUAL[0], length: int = _USUAL[1]
    ) -> float:
        """Returns the FLOP/s that a model's products of `bfloat16` or `float32` reach."""
        peak = self.peak if compute_dtype == "bfloat16" else self.peak_float32
        compiled = self.compiled_for(hidden_size, length)
        return peak * (self.utilisation if compiled is None else compiled.share)

    @property
    def is_processor(self) -> bool:
        """Returns whether its chips are cores of the machine itself."""
        return self.name.rpartition("x")[2] in ("cpu", "n2")

    def dollars_per_hour(self, spot: bool = False) -> float:
        """Returns the price per hour, on demand or as spot capacity."""
        return self.spot_dollars if spot else self.dollars

    def assumptions(self, spot: bool = False) -> list[str]:
        """Returns the assumed figures in words."""
        words = {
            "peak_flops_per_second": f"a peak of {self.peak / 1e12:,.4g} TFLOP/s",
            "utilisation": f"{self.utilisation:.0%} of the peak",
            "dollars_per_hour": f"{self.dollars:,.2f} dollars per hour",
            "watts": f"{self.watts:,.0f} W",
        }
        if self.compiled:
            del words["utilisation"]  # each run says it for its own shape
        if spot:
            dated = self.figures.get("dollars_per_hour_spot")
            words["dollars_per_hour"] = (
                f"spot capacity at {self.spot_dollars / self.dollars:.0%} of the price"
                if dated is None
                else f"{dated.value:g} dollars per chip-hour of spot capacity ({dated.date})"
            )
        return [text for name, text in words.items() if self.figures[name].assumed]


@dataclass(frozen=True)
class Prices:
    """All figures.

    Attributes:
      everywhere: `spot_share`, `power_usage_effectiveness`, `kg_co2e_per_kwh`.
      stages: times and bytes of runs besides their products.
      chips: figures by name.
      compiled: shares of the peak by the compiler, by chip.
      titles, suffix_counts: by name; the number in a slice's name counts cores, chips, or none.
    """

    everywhere: Mapping[str, Figure]
    stages: Mapping[str, Figure]
    chips: Mapping[str, Mapping[str, Figure]]
    compiled: Mapping[str, tuple[CompiledShare, ...]]
    titles: Mapping[str, str]
    suffix_counts: Mapping[str, str]

    def device(self, name: str) -> Device:
        """Returns the device of a name: `v4-8`, `v5litepod-8`, `H100`, `8xH100`, `cpu`.

        Raises:
          UserError: an unknown name, or a slice of no chips.
        """
        chip, chips = self._parsed(name)
        figures = dict(self.chips[chip])
        in_pods = figures.pop("dollars_per_hour_in_pods", None)
        if in_pods is not None and chips > _CHIPS_OF_A_HOST:
            figures["dollars_per_hour"] = in_pods
        peak, dollars = figures["peak_flops_per_second"], figures["dollars_per_hour"].value
        share = self.everywhere["spot_share"].value * dollars
        spot = figures.get("dollars_per_hour_spot")
        return Device(
            name=name,
            title=self.titles[chip],
            chips=chips,
            peak=peak.value * chips,
            peak_float32=figures.get("peak_flops_per_second_float32", peak).value * chips,
            utilisation=figures["utilisation"].value,
            compiled=self.compiled.get(chip, ()),
            dollars=dollars * chips,
            spot_dollars=(share if spot is None else spot.value) * chips,
            watts=figures["watts"].value * chips,
            figures=figures,
        )

    def _parsed(self, name: str) -> tuple[str, int]:
        """Returns the chip and the number of chips in a device's name."""
        counts = self.suffix_counts
        slice_name = _SLICE.fullmatch(name)
        if slice_name and counts.get(slice_name["chip"]) in ("cores", "chips"):
            count = int(slice_name["count"])
            each = _CORES_PER_CHIP if counts[slice_name["chip"]] == "cores" else 1
            if count < each or count % each:
                raise UserError(
                    f"device {name!r} has {count} {counts[slice_name['chip']]}, expected a multiple of "
                    f"{each}; correct the number"
                )
            return slice_name["chip"], count // each
        several = _SEVERAL.fullmatch(name)
        chip = several["chip"] if several else name
        count = int(several["count"]) if several else 1
        if counts.get(chip) == "none" and count:
            return chip, count
        known = [found if kind == "none" else f"{found}-<{kind}>" for found, kind in counts.items()]
        spellings = {chip.lower(): chip for chip in counts}
        near = difflib.get_close_matches(name.partition("-")[0].lower(), spellings, n=1)
        cure = f"did you mean {spellings[near[0]]}?" if near else f"or add it to {FILE.name}"
        raise UserError(f"unknown device {name!r}, expected one of {', '.join(known)}; {cure}")

    def kilograms_co2e(self, device: Device, hours: float) -> float:
        """Returns the emissions of hours of a device, the data centre's share included."""
        share = self.everywhere["power_usage_effectiveness"].value
        return device.watts / 1000 * hours * share * self.everywhere["kg_co2e_per_kwh"].value


@functools.cache
def load_prices(path: Path = FILE) -> Prices:
    """Reads and checks the file of prices.

    Raises:
      UserError: it is missing or damaged, or a figure lacks its source or date.
    """
    try:
        content = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}; restore the file") from error
    if content.get("version") != VERSION:
        raise UserError(
            f"{path} has version {content.get('version')}, expected {VERSION}; restore the file"
        )
    compiled = {
        name: tuple(CompiledShare(**row) for row in rows)
        for name, rows in content["by_compiler"].items()
        if not isinstance(rows, str)
    }
    chips = {
        name: _peaks_of(name)
        | _shares_of(content["by_compiler"], compiled.get(name, ()))
        | _figures(path, f"chips.{name}", found)
        for name, found in content["chips"].items()
    }
    for name, figures in chips.items():
        for field in _FIELDS:
            if field not in figures:
                raise UserError(f"{path}: chips.{name} lacks {field}; add it with source and date")
    return Prices(
        everywhere=_figures(path, "everywhere", content["everywhere"]),
        stages=_figures(path, "stages", content["stages"]),
        chips=chips,
        compiled=compiled,
        titles={name: found["title"] for name, found in content["chips"].items()},
        suffix_counts={name: found["suffix_counts"] for name, found in content["chips"].items()},
    )


def _peaks_of(chip: str) -> dict[str, Figure]:
    """Returns the peaks that `bert/model/peaks.toml` has of a chip, if any."""
    peaks = device_peaks().get(chip, {})
    fields = {"bfloat16": _FIELDS[0], "float32": f"{_FIELDS[0]}_float32"}
    return {
        field: Figure(peaks[name], peaks["source"], peaks["date"], assumed=True)
        for name, field in fields.items()
        if name in peaks
    }


def _shares_of(table: Mapping[str, Any], rows: tuple[CompiledShare, ...]) -> dict[str, Figure]:
    """Returns the share of the peak by the compiler that stands for a chip, if there is one."""
    usual = [row.share for row in rows if (row.hidden_size, row.length) == _USUAL]
    if not usual:
        return {}
    return {"utilisation": Figure(usual[0], table["source"], table["date"], assumed=True)}


def _figures(path: Path, where: str, table: Mapping[str, Any]) -> dict[str, Figure]:
    """Returns the figures of a table, each checked; words are passed over."""
    figures = {}
    for name, value in table.items():
        if isinstance(value, str):
            continue
        try:
            figure = Figure(**value)
        except TypeError as error:
            raise UserError(
                f"{path}: {where}.{name} is {value!r}, expected value, source and date; complete it"
            ) from error
        is_number = isinstance(figure.value, (int, float)) and figure.value >= 0
        if not (is_number and figure.source and figure.date):
            raise UserError(
                f"{path}: {where}.{name} lacks a number from 0, a source or a date; complete it"
            )
        figures[name] = figure
    return figures
