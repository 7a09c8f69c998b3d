"""Readable names for names in code, on the page of a report."""

from __future__ import annotations

from collections.abc import Mapping

# Separators of procedure and step, and of task and evaluation set, with their readable forms.
_PARTS = ((", step ", ", step "), ("/", ", "))


def readable(name: str, names: Mapping[str, str]) -> str:
    """Returns the readable name: the one in `names`, or that of its parts, without underscores.

    Args:
      name: procedure, task or evaluation set, possibly with a step after or a task before it.
      names: readable name by name in code.

    Example:
      >>> readable("cda_incr, step 250", {"cda_incr": "After CDA"})
      'After CDA, step 250'
      >>> readable("pronoun_probe/dev", {})
      'pronoun probe, dev'
    """
    if name in names:
        return names[name]
    for mark, joint in _PARTS:
        first, separator, ending = name.partition(mark)
        if separator:
            return f"{readable(first, names)}{joint}{readable(ending, names)}"
    return name.replace("_", " ")
