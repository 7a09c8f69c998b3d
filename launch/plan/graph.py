"""The graph of runs: completes a run's parameters, finds its parents and names its directory.

The name of a run's directory ends in a short hash of its identity: the stage, the parameters that the
stage declares (`runs.identity`), the content of input files, and the identities of the parents. So two runs
share a directory exactly if they give the same numbers, wherever the experiment's root is, and a changed
parameter makes new runs beside the old ones.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from multiberts.launch.plan.planned_run import (
    Output,
    PlannedRun,
    fitting_name,
    stage_function,
    stage_identity,
)
from multiberts.runs.errors import UserError
from multiberts.runs.identity import opened_code, promises
from multiberts.runs.parameters import check_arguments, leaves, typed_arguments, with_leaves

# `<name>:<inside>` is a path in the data folder, the world, or the corpus of that name.
DATA = "data"
WORLD = "world"
_PLACED_PATH = re.compile(r"(?P<place>\w+):(?P<inside>.*)")

# Paths in a plan: the output of another run, or a path on this machine.
_PATHS = (Output, Path)


class Graph:
    """Distinct runs in the order in which they were added, each after its parents."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], PlannedRun] = {}
        self._opened: dict[Any, Any] = {}

    @property
    def runs(self) -> list[PlannedRun]:
        return list(self._runs.values())

    def add(
        self,
        stage: str,
        name: str,
        path: str,
        arguments: Mapping[str, Any],
        folders: Mapping[str, PlannedRun | Path] = MappingProxyType({}),
        facts: Mapping[str, Any] = MappingProxyType({}),
    ) -> PlannedRun:
        """Adds a run unless an equal one exists; returns it.

        Args:
          arguments: the stage's arguments; missing ones get their defaults.
          folders: runs and folders that paths `<name>:<inside>` may refer to, by name.
        """
        arguments = complete(stage, name, arguments)
        declared = stage_identity(stage)
        for parameter in declared.of(arguments)[1]:
            locate = functools.partial(located, folders=folders, name=f"{stage}.{parameter}")
            arguments[parameter] = with_leaves(locate, arguments[parameter])
        parameters, inputs = declared.on_disk(arguments, self._opened)
        # The run gets the inputs as found now: the files that match a pattern, the commit of a name on the
        # Hub. An argument of another form (a folder, sets by name) has its files found again by its stage.
        for each in inputs.keys() & arguments.keys():
            if isinstance(arguments[each], (list, tuple)) == isinstance(inputs[each], list):
                arguments[each] = with_leaves(_argument, inputs[each])
        if module := stage.rpartition(":")[0]:
            inputs["code"] = opened_code(module)
        identity = identity_of(stage, parameters, inputs)
        path = "/".join(map(fitting_name, f"{path}-{identity[:8]}".split("/")))
        outputs = (leaf for leaf in leaves(arguments) if isinstance(leaf, Output))
        parents = tuple(dict.fromkeys(output.run for output in outputs))
        there = promises(leaf for leaf in leaves(inputs) if not isinstance(leaf, Output))
        run = PlannedRun(stage, name, arguments, parents, identity, path, facts, there)
        return self._runs.setdefault((run.path, identity), run)


def _argument(leaf: Any) -> Any:
    return leaf if isinstance(leaf, Output) else str(leaf.where)


def identity_of(
    stage: str, parameters: Mapping[str, Any], inputs: Mapping[str, Any] = MappingProxyType({})
) -> str:
    """Returns the SHA-256 in hexadecimal of everything that decides a run's numbers.

    Args:
      inputs: opened inputs, or outputs of other runs (which need not be done yet), by their identities.
    """
    parts = [f"{name} = {_canonical(parameters[name])}" for name in sorted(parameters)]
    parts += [f"{name}: {_canonical(inputs[name])}" for name in sorted(inputs)]
    return hashlib.sha256("\n".join([stage, *parts]).encode()).hexdigest()


def _canonical(value: Any) -> str:
    """Returns a value's canonical text: equal exactly for equal values."""
    if isinstance(value, Mapping):
        items = (f"{key!r}: {_canonical(value[key])}" for key in sorted(value))
        return f"{{{', '.join(items)}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_canonical, value))}]"
    if hasattr(value, "identity"):
        return f"<{value.identity}>"
    if isinstance(value, float) and value.is_integer():
        return repr(int(value))
    return repr(value)


def complete(stage: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Completes a stage's arguments with defaults, without `run_dir`; errors name the run."""
    defaults, required = _signature(stage_function(stage))
    unknown = sorted(arguments.keys() - defaults.keys() - required)
    if unknown:
        raise UserError(
            f"{name}: {stage} has no parameter {unknown[0]!r} that a plan can set, expected one of "
            f"{', '.join(sorted(defaults.keys() | required))}; correct the name"
        )
    missing = sorted(required - arguments.keys())
    if missing:
        raise UserError(
            f"{name} lacks {', '.join(f'{stage}.{parameter}' for parameter in missing)}; give it in "
            f"a --gin_file or as --gin_param='{stage}.{missing[0]} = ...'"
        )
    written = with_leaves(lambda leaf: str(leaf) if isinstance(leaf, _PATHS) else leaf, arguments)
    check_arguments(stage_function(stage), written)
    return {**defaults, **typed_arguments(stage_function(stage), arguments)}


@functools.cache
def _signature(function: Callable[..., None]) -> tuple[dict[str, Any], frozenset[str]]:
    """Returns a stage's defaults by parameter, and its required parameters but `run_dir`."""
    parameters = dict(inspect.signature(function).parameters)
    parameters.pop("run_dir")
    empty = inspect.Parameter.empty
    defaults = {
        name: each.default for name, each in parameters.items() if each.default is not empty
    }
    return defaults, frozenset(parameters.keys() - defaults.keys())


def placed_in(value: Any) -> set[str]:
    """Returns the names before the colon of paths `<name>:<inside>` in a value."""
    texts = (leaf for leaf in leaves(value) if isinstance(leaf, str))
    return {match["place"] for text in texts if (match := _PLACED_PATH.fullmatch(text))}


def located(path: Any, folders: Mapping[str, PlannedRun | Path], name: str) -> Any:
    """Turns a path `<name>:<inside>` into the output of that run, or into a path in that folder."""
    match = _PLACED_PATH.fullmatch(path) if isinstance(path, str) else None
    if match is None:
        return path
    parent = folders.get(match["place"])
    if isinstance(parent, PlannedRun):
        return Output(parent, match["inside"])
    if parent is not None:
        return str(parent / match["inside"])
    cures = {
        WORLD: "no world is made; give make_world.world_seed",
        DATA: "launch.data is not set; set it",
    }
    if match["place"] in cures:
        raise UserError(f"{name} is {path!r} but {cures[match['place']]}, or give a path")
    return path
