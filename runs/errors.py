"""The error for users, the detection of full disks and memory, and numbers with nouns for messages.

A cure names a parameter as a flag (`--design=unpaired`) or as a keyword (`design='unpaired'`); commands and
Python each turn it into their own form (`in_flags`, `in_keywords`).
"""

from __future__ import annotations

import difflib
import errno
import itertools
import os
import re
import shlex
from collections.abc import Iterable
from typing import Any

from multiberts.runs.processes import available_bytes

# Characters quoted from a file. Parts of paths have up to 255 characters and must not be cut.
_MOST_QUOTED = 200
_OVERLONG = re.compile(r"[^\s/]{256,}")
_MOST_CHARACTERS = 4000


class UserError(Exception):
    """Bad input: one line saying what was found, where, what was expected, and the cure.

    Commands print the line on standard error and exit with status 2; nothing has been written. What a file
    holds is cut short in it.

    Examples:
        >>> try:
        ...     raise UserError("text.txt is empty; give a file with text in it")
        ... except UserError as error:
        ...     print(f"error: {error}")
        error: text.txt is empty; give a file with text in it
    """

    def __init__(self, message: str):
        line = " ".join(message.split())
        line = _OVERLONG.sub(lambda match: f"{match[0][:_MOST_QUOTED]}...", line)
        if len(line) > _MOST_CHARACTERS:
            half = _MOST_CHARACTERS // 2  # keep the end of the message, which has the advice
            line = f"{line[:half]} ... {line[-half:]}"
        super().__init__(line)


def in_flags(message: str) -> str:
    """Rewrites a message's keywords as command-line flags."""
    flag = r"(?<![\w.-])([a-z_]+)='([^']*)'"
    return re.sub(flag, lambda match: f"--{match[1]}={shlex.quote(match[2])}", message)


def in_keywords(message: str, which: str = "") -> str:
    """Rewrites a message's command-line flags as Python keywords; adds `which` where these have values."""
    changed, count = re.subn(r"--(\w+)=([^\s;()]*[^\s;(),])", r"\1='\2'", message)
    changed = re.sub(r"(='[^']*') (?=\w+=')", r"\1, ", changed)  # arguments in the form to paste
    return re.sub(r"--(?=[a-z])", "", changed) + which * bool(count)


_MORE_SPACE = "free some space, then run the same command again"
_LESS = "give it less at once or more memory, then run the same command again"
# Full disk, full quota, or file too large.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def disk_full_line(error: BaseException | None) -> str | None:
    """Returns a message for users if an error is caused by a full disk or quota, else None."""
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    full = [each for each in chain if isinstance(each, OSError) and each.errno in _FULL]
    # TensorFlow's writers raise errors of their own, with the reason only in the text.
    is_said = any(os.strerror(code) in str(each) for each in chain for code in _FULL)
    if not full and not is_said:
        return None
    told = [str(each) for each in chain if isinstance(each, UserError)]
    told += [f"cannot write {e.filename or 'a file'}: {e.strerror}; {_MORE_SPACE}" for e in full]
    return told[0] if told else f"{str(chain[0]).splitlines()[0]}; {_MORE_SPACE}"


def memory_error(error: BaseException, where: object = "this command") -> UserError | None:
    """Returns the error for users if memory ran out, in whichever library, else None."""
    kinds = r"\w+: RESOURCE_EXHAUSTED|ResourceExhausted|ParserError: .* out of memory|OSError: .Errno 12\b"
    if isinstance(error, MemoryError) or re.match(kinds, f"{type(error).__name__}: {error}"):
        told = str(error).partition("\n")[0] or f"it could get {available_bytes():,} bytes"
        return UserError(f"{where} needs more memory than there is ({told}); {_LESS}")
    return None


def check_memory(where: object, needed: int) -> None:
    """Refuses to continue if fewer bytes are available; less than 1 MiB is not checked, to save time."""
    if needed >> 20 and needed > (left := available_bytes()):
        raise UserError(f"{where} needs over {needed:,} bytes of memory, found {left:,}; {_LESS}")


def check_values(function: str, rows: Iterable[tuple[str, Any, bool, str]]) -> None:
    """Refuses the first invalid parameter; rows: (name, value, whether it is valid, expected value)."""
    for name, value, is_valid, expected in rows:
        if not is_valid:
            raise UserError(f"{function}.{name} is {value!r}, expected {expected}; change it")


# Names as other libraries have them. Of several meanings (`or`) the first counts whose first word is valid.
GUESSES = {
    "alpha": "confidence_level=1 - alpha", "ci": "confidence_level", "paired": "design='paired'",
    "seed": "rng or finetune_seed or pretrain_seed", "random_state": "rng", "n_boot": "n_resamples",
    "groups": "clusters or cluster", "y_true": "labels", "statistic": "metric", "pvalue": "p_value",
    "confidence_interval": "ci", "conf_int": "ci", "se": "standard_error", "diff": "estimate",
    "difference": "estimate", "effect_size": "hedges_g", "power": "plan().power()", "summary": "table()",
    "to_csv": "table().csv()", "to_latex": "latex()", "to_json": "to_dict()",
    "ttest": "compare(base, experiment)", "lr": "learning_rate or learning_rates",
    "output": "run_dir or html or path", "format": "to or layout or csv, json, latex, html",
}  # fmt: skip


def nearest(name: str, choices: Iterable[str], otherwise: str | None = None) -> str:
    """Returns the cure for an unknown name: what it means elsewhere, or the most similar valid names.

    `otherwise`: the cure without a similar name; None: the list of all choices.
    """
    choices = list(choices)
    for meant in GUESSES.get(name, "").split(" or "):
        if re.split(r"\W", meant)[0] in choices:
            return f"did you mean {meant}?"
    near = difflib.get_close_matches(name, choices, n=2, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return otherwise or f"expected one of {', '.join(choices) or 'none'}; correct the name"


def counted(count: float, noun: str, form: str = "") -> str:
    """Returns a number, formatted by `form`, and its noun, in the plural unless the number is 1."""
    return f"{count:{form}} {noun}{'' if count == 1 else 's'}"


def listed(names: Iterable[Any]) -> str:
    """Quotes names or values of a file for a message: shortened, with a count of the rest."""
    most = _MOST_QUOTED
    texts = [text if len(text) <= most else f"{text[: most - 3]}..." for text in map(str, names)]
    ends = itertools.accumulate(len(text) + 2 for text in texts)
    count = max(1, sum(end - 2 <= most for end in ends))
    num_left = len(texts) - count
    return ", ".join([*texts[:count], *([f"{num_left:,} more"] * (num_left > 0))])
