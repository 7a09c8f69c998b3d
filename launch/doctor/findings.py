"""Results of the doctor's checks: ok, warning or problem, with a cure."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

OK = "ok"
WARNING = "warning"
PROBLEM = "problem"


@dataclass(frozen=True)
class CheckResult:
    """One line of the doctor's.

    Attributes:
      level: `OK`, `WARNING` or `PROBLEM`.
      subject: of the check, in a word or two.
      found: by the check.
      cure: empty if nothing is wrong.
    """

    level: str
    subject: str
    found: str
    cure: str = ""


def in_words(findings: Sequence[CheckResult], width: int | None = None) -> str:
    """Returns findings as lines for a terminal of `width` characters (None: this one), cures below."""
    width = max(60, min(width or shutil.get_terminal_size().columns, 110))
    levels = max(len(level) for level in (OK, WARNING, PROBLEM))
    subjects = max((len(finding.subject) for finding in findings), default=0)
    indent = " " * (levels + subjects + 4)
    lines = []
    for finding in findings:
        start = f"{finding.level:{levels}}  {finding.subject:{subjects}}  "
        for first, text in ((start, finding.found), (indent + "-> ", finding.cure)):
            if text:
                lines += textwrap.wrap(
                    text,
                    width,
                    initial_indent=first,
                    subsequent_indent=indent + ("   " if first.endswith("-> ") else ""),
                    break_long_words=False,
                    break_on_hyphens=False,
                )
    return "\n".join(lines)
