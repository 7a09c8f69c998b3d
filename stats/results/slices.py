"""A comparison by slices of the examples, as data."""

from __future__ import annotations

from dataclasses import dataclass

from multiberts.stats.intervals import ConfidenceInterval
from multiberts.stats.results.content import EqualByContent


@dataclass(frozen=True)
class Slice:
    """One slice of the examples: its scores, its difference, and how that differs from the rest's.

    Attributes:
      base, experiment: scores on it, None where the score is 0/0 in every run; no experiment in a
        `single` design.
      estimate: the difference of the two; the base's score in a `single` design.
      ci: its recommended interval, with the comparison's seeds and clusters; None below `Slices.least`,
        and where an arm has no score.
      p_value: two-sided, of this slice alone; None without an interval, and in a `single` design.
      p_holm: corrected for the number of slices with an interval.
      against_rest: estimate minus that of all other examples (the interaction); None without an
        interval here or there, or where clusters lie in both.
      against_rest_p, against_rest_p_holm: whether it is 0, alone and corrected.
      undefined: of the base and the experiment, why it has no score here; empty where it has one.
      undefined_seeds: of the base and the experiment, seeds whose score here is 0/0 and counts with the
        value defined for that.
      rest_undefined: whether an arm has no score on all other examples.
    """

    name: str
    num_examples: int
    base: float | None
    experiment: float | None
    estimate: float | None
    ci: ConfidenceInterval | None = None
    p_value: float | None = None
    p_holm: float | None = None
    against_rest: float | None = None
    against_rest_ci: ConfidenceInterval | None = None
    against_rest_p: float | None = None
    against_rest_p_holm: float | None = None
    undefined: tuple[str, ...] = ()
    undefined_seeds: tuple[tuple, ...] = ()
    rest_undefined: bool = False


@dataclass(frozen=True, eq=False)
class Slices(EqualByContent):
    """Slices of the examples by one column.

    Attributes:
      least: examples (clusters, where these are drawn) below which a slice has no interval.
      slices: in the order of their names, or of their numbers.
      clusters_cross: whether some cluster lies in several slices, so that none can be set against the
        rest.
      made_from: `base` or `experiment` where the slices go with that arm's answers and not with the other's,
        so that they may have been made from them; else empty.
    """

    by: str
    least: int
    slices: tuple[Slice, ...]
    level: float
    clusters_cross: bool = False
    made_from: str = ""
