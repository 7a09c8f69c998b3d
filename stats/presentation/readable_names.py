"""Names for people in place of those of code, on the page of a report."""

from __future__ import annotations

from collections.abc import Mapping

# Marks between a procedure and its step, and a task and its evaluation set, and how they are shown.
_PARTS = ((", step ", ", step "), ("/", ", "))


def readable(name: str, names: Mapping[str, str]) -> str:
    """Returns the name that people read: the given one, or that of its parts, without underscores.

    Args:
      name: a procedure, a task or an evaluation set; with a step, or a task before a set.
      names: by name in code, the one for people.

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
