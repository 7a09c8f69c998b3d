"""Gin scopes as names of things: what holds for one task stands in its scope, as `RTE/finetune.data_dir`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import gin

from multiberts.runs.errors import UserError

_BINDING = re.compile(r"^(?:(?P<scope>[\w/]+)/)?(?P<stage>\w+)\.(?P<parameter>\w+) =")


def scope_of(name: str) -> str:
    """The scope of a name: Gin has no `SST-2`, so there it is `SST_2`."""
    return re.sub(r"\W", "_", name)


def scoped_bindings(stage: str, name: str) -> dict[str, Any]:
    """What Gin binds to a stage within a name's scope, the bindings without scope included."""
    with gin.config_scope(scope_of(name)):
        return dict(gin.get_bindings(stage))


def refuse_unknown_scopes(known: Mapping[str, Iterable[str]], where: str) -> None:
    """Refuses bindings that nothing would read.

    Args:
      known: the names of each stage.
      where: the function whose arguments name the scopes, for the message.

    Raises:
      UserError: a binding stands in another scope.
    """
    for line in gin.config_str(max_line_length=10**6).splitlines():
        match = _BINDING.match(line)
        if match is None or match["stage"] not in known or match["scope"] is None:
            continue
        names = sorted(known[match["stage"]])
        if match["scope"] not in map(scope_of, names):
            raise UserError(
                f"{match['scope']}/{match['stage']}.{match['parameter']} is set, but the names there are "
                f"{', '.join(names) or 'none'}; correct it or add it to {where}"
            )
