"""Identity of a run: its stage declares it once, and both the stage and the launcher read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Values = dict[str, Any]


# Metadata that marks a field added later: at its default it is left out of the identity, so that existing
# runs keep theirs. Unused since every field counts; for fields to come.
LATER: Mapping[str, bool] = {"later": True}


def without_later_defaults(values: Mapping[str, Any], settings: type) -> Values:
    """Returns values by name, without those of `LATER` fields that have their default."""
    later = {
        field.name: field.default
        for field in dataclasses.fields(settings)
        if field.metadata.get("later")
    }
    return {
        name: value for name, value in values.items() if name not in later or value != later[name]
    }


def _as_they_are(arguments: Mapping[str, Any], inputs: Values) -> None:
    """Leaves the arguments unchanged."""


@dataclass(frozen=True)
class Identity:
    """Arguments of a stage that identify a run; an argument that is not named counts by its value.

    Each stage has one as `IDENTITY`, in the module of its function.

    Attributes:
      inputs: arguments that name files or directories; what these hold counts, not where they lie.
      places: arguments that say where something lies or is kept; they do not count.
      speed: arguments that change time, memory, safety or logs but no number; they do not count.
      settle: called with the parameters and inputs that count, which it changes in place: it removes
        what has no effect in this call, and gives equal calls equal values. It reads no file.
      find_files: called with all arguments and the inputs, which it changes in place: it replaces
        paths by those of the files that they stand for. Placeholders for outputs of other runs are passed
        through.
    """

    inputs: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    speed: tuple[str, ...] = ()
    settle: Callable[[Values, Values], None] = _as_they_are
    find_files: Callable[[Mapping[str, Any], Values], None] = _as_they_are

    def of(self, arguments: Mapping[str, Any]) -> tuple[Values, Values]:
        """Returns the parameters and the inputs that identify a call.

        Args:
          arguments: all keyword arguments of the stage; `run_dir` does not count.

        Returns:
          Parameters by name and inputs by name, as `runs.directory.RunDirectory` takes them; inputs
          that are None are left out.
        """
        uncounted = {"run_dir", *self.places, *self.speed}
        parameters = {name: arguments[name] for name in arguments if name not in uncounted}
        inputs = {name: parameters.pop(name) for name in self.inputs if name in parameters}
        self.settle(parameters, inputs)
        return parameters, {name: value for name, value in inputs.items() if value is not None}

    def on_disk(self, arguments: Mapping[str, Any]) -> tuple[Values, Values]:
        """Returns the result of `of`, with inputs resolved to current files."""
        parameters, inputs = self.of(arguments)
        self.find_files(arguments, inputs)
        return parameters, inputs
