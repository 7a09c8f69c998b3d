"""Formats durations, steps and rates for people."""

from __future__ import annotations

import time

ABSENT = "–"

# (largest number of seconds shown in this unit, unit, its seconds)
_UNITS = ((120, "s", 1), (7200, "min", 60), (172800, "h", 3600), (float("inf"), "d", 86400))


def duration(seconds: float | None) -> str:
    """Formats seconds in a readable unit: `45 s`, `12 min`, `3.4 h`, `2.1 d`."""
    if seconds is None:
        return ABSENT
    for limit, unit, size in _UNITS:
        # By the rounded number, so that 119.9 s is shown as 2 min, not 120 s.
        if round(seconds) < limit:
            number = seconds / size
            return f"{number:.1f} {unit}" if unit in ("h", "d") else f"{number:.0f} {unit}"
    raise ValueError(f"{seconds!r} seconds are not a duration")


def speed(per_second: float | None) -> str:
    """Formats a number per second with three significant digits."""
    if per_second is None:
        return ABSENT
    if per_second >= 99.95:
        return f"{per_second:,.0f}"
    return f"{per_second:.1f}" if per_second >= 9.995 else f"{per_second:.2f}"


def compact(number: int | None) -> str:
    """Formats a whole number briefly: `2M`, `1.25M`, `20k`, `600`."""
    if number is None:
        return ABSENT
    for size, suffix in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.4g}{suffix}"
    return str(number)


def percent(share: float) -> str:
    """Formats a share in per cent; 100 % only if everything is done, 0 % only if nothing is."""
    number = round(100 * share)
    if share < 1:
        number = min(number, 99)
    if share > 0:
        number = max(number, 1)
    return f"{number} %"


def moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
