"""The graph of runs: each added with its parameters completed, its parents found, its place named.

A run's directory is named after what it is and a short hash of its identity: the stage, every
parameter that changes its numbers, what its input files hold, and the identities of the runs before
it. So two runs share a directory exactly if they would give the same numbers, wherever the
experiment's root is, and a changed parameter makes new runs beside the old ones.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from multiberts.launch.plan.identity import files_of, identity_of, input_parameters
from multiberts.launch.plan.input_digests import InputDigests
from multiberts.launch.plan.planned_run import Output, PlannedRun, stage_function
from multiberts.runs.errors import UserError

# A path `<name>:<inside>` lies in the folder of data, or in the directory of the world or of the
# corpus of that name.
DATA = "data"
WORLD = "world"
_PLACED_PATH = re.compile(r"(?P<place>\w+):(?P<inside>.*)")


class Graph:
    """Runs in the order in which they were added, which is after their parents; equal ones once."""

    def __init__(self, digests: InputDigests | None = None) -> None:
        """Starts empty.

        Args:
          digests: gives what input files hold.
        """
        self._runs: dict[tuple[str, str], PlannedRun] = {}
        self._digests = InputDigests() if digests is None else digests

    @property
    def runs(self) -> list[PlannedRun]:
        """All runs."""
        return list(self._runs.values())

    def keep(self, runs: Iterable[PlannedRun]) -> None:
        """Takes runs as they are: done, with an identity of their own."""
        for run in runs:
            self._runs.setdefault((run.path, run.identity), run)

    def add(
        self,
        stage: str,
        name: str,
        place: str,
        given: Mapping[str, Any],
        places: Mapping[str, PlannedRun | Path] = MappingProxyType({}),
    ) -> PlannedRun:
        """Adds a run, unless an equal one is there.

        Args:
          stage: key of `launch.plan.planned_run.STAGES`.
          name: for people.
          place: its directory without the hash.
          given: the stage's arguments; the rest are its defaults.
          places: the runs that paths `<name>:<inside>` of input files may refer to.

        Returns:
          The run in the graph.

        Raises:
          UserError: an unknown or missing parameter, or an input that does not exist.
        """
        parameters = complete(stage, name, given)
        inputs = input_parameters(stage, parameters)
        for parameter in inputs:
            value = parameters[parameter]
            parameters[parameter] = _placed(value, places, f"{stage}.{parameter}")
        if stage == "prepare" and "sources" in inputs:
            parameters["sources"] = files_of(parameters["sources"])
        identity = identity_of(stage, parameters, inputs, self._digests)
        parents = tuple(dict.fromkeys(output.run for output in _outputs(parameters)))
        run = PlannedRun(stage, name, parameters, parents, identity, f"{place}-{identity[:8]}")
        return self._runs.setdefault((run.path, identity), run)


def complete(stage: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A stage's arguments with its defaults, without `run_dir`.

    Args:
      stage: key of `launch.plan.planned_run.STAGES`.
      name: of the run, for errors.
      given: the arguments that are set.

    Raises:
      UserError: an argument is unknown or missing.
    """
    defaults, required = _signature(stage_function(stage))
    unknown = sorted(given.keys() - defaults.keys() - required)
    if unknown:
        raise UserError(
            f"{name}: {stage} has no parameter {unknown[0]!r} that a plan can set, expected one of "
            f"{', '.join(sorted(defaults.keys() | required))}; correct the name"
        )
    missing = sorted(required - given.keys())
    if missing:
        raise UserError(
            f"{name} lacks {', '.join(f'{stage}.{parameter}' for parameter in missing)}; give it in "
            f"a --gin_file or as --gin_param='{stage}.{missing[0]} = ...'"
        )
    return {**defaults, **given}


@functools.cache
def _signature(function: Callable[..., None]) -> tuple[dict[str, Any], frozenset[str]]:
    """A stage's defaults by parameter, and the parameters without any; not `run_dir`."""
    known = dict(inspect.signature(function).parameters)
    known.pop("run_dir")
    empty = inspect.Parameter.empty
    defaults = {name: found.default for name, found in known.items() if found.default is not empty}
    return defaults, frozenset(known.keys() - defaults.keys())


def placed_in(value: Any) -> set[str]:
    """The names that paths `<name>:<inside>` in a value refer to, if these are names at all."""
    if isinstance(value, Mapping):
        return {name for item in value.values() for name in placed_in(item)}
    if isinstance(value, (list, tuple)):
        return {name for item in value for name in placed_in(item)}
    match = _PLACED_PATH.fullmatch(value) if isinstance(value, str) else None
    return set() if match is None else {match["place"]}


def _placed(value: Any, places: Mapping[str, PlannedRun | Path], name: str) -> Any:
    """Turns paths `<name>:<inside>` into outputs of the run of that name."""
    if isinstance(value, Mapping):
        return {key: _placed(item, places, name) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_placed(item, places, name) for item in value]
    match = _PLACED_PATH.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    place = places.get(match["place"])
    if isinstance(place, PlannedRun):
        return Output(place, match["inside"])
    if place is not None:
        return str(place / match["inside"])
    cures = {
        WORLD: "no world is made; give make_world.world_seed",
        DATA: "launch.data is not set; set it",
    }
    if match["place"] in cures:
        raise UserError(f"{name} is {value!r} but {cures[match['place']]}, or give a path")
    return value


def _outputs(value: Any) -> Iterator[Output]:
    """All outputs of other runs in a value."""
    if isinstance(value, Output):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _outputs(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _outputs(item)
