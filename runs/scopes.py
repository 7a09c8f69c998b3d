"""Gin scopes as names of things: what holds for one task stands in its scope, as `RTE/finetune.data_dir`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import gin

from multiberts.runs.errors import UserError

_BINDING = re.compile(r"^(?:(?P<scope>[\w/]+)/)?(?P<stage>\w+)\.(?P<parameter>\w+) =")


def scope_of(name: str) -> str:
    """Returns the scope of a name: Gin has no `SST-2`, so there it is `SST_2`.

    Args:
      name: such as a task's.

    Example:
      >>> scope_of("SST-2")
      'SST_2'
    """
    return re.sub(r"\W", "_", name)


def scoped_bindings(stage: str, name: str) -> dict[str, Any]:
    """Returns what Gin binds to a stage in a name's scope, with the bindings without scope.

    Args:
      stage: name of the function that Gin binds.
      name: whose scope it is.
    """
    with gin.config_scope(scope_of(name)):
        return dict(gin.get_bindings(stage))


def refuse_unknown_scopes(
    known: Mapping[str, Iterable[str]], where: str, unused: Iterable[str] = ()
) -> None:
    """Refuses bindings that nothing would read.

    Args:
      known: the names of each stage.
      where: the function whose arguments name the scopes, for the message.
      unused: further names that may have bindings although nothing reads them now.

    Raises:
      UserError: a binding stands in another scope.
    """
    tolerated = {scope_of(name) for name in unused}
    for line in gin.config_str(max_line_length=10**6).splitlines():
        match = _BINDING.match(line)
        if match is None or match["stage"] not in known or match["scope"] is None:
            continue
        names = sorted(known[match["stage"]])
        if match["scope"] not in {*map(scope_of, names), *tolerated}:
            raise UserError(
                f"{match['scope']}/{match['stage']}.{match['parameter']} is set, but the names there are "
                f"{', '.join(names) or 'none'}; correct it or add it to {where}"
            )
