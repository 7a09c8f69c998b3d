"""Words that readers of the field would not expect: `make lint` names them and a better one.

python tests/lint/prose.py             # every tracked file of text
python tests/lint/prose.py stats docs  # some folders or files
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_UNITS = (
    "second|minute|hour|day|step|seed|run|sample|example|task|task's|token|word|row|line|core|node|slice|"
    "shard|worker|process|device|cluster|batch|epoch|experiment|checkpoint|machine|question|pair|file"
)
_COUNTED = (
    "steps|seconds|minutes|hours|times|bytes|runs|tokens|sequences|words|examples|rows|lines|samples|"
    "dollars|GB|MB|TB|files|seeds|batches|shards|workers|processes|operations|threads"
)
# What is found, and what to write instead.
RULES = {
    rf"\bone (a|an) ({_UNITS})\b": "'one per ...' or 'one for each ...'",
    rf"\b\d[\d,.]* ({_COUNTED}) an? ({_UNITS})\b": "'per' for rates",
    rf"\b({_COUNTED}) an? (second|minute|hour|day|step|seed|sample|core|node|worker|batch|epoch)\b": (
        "'per' for rates"
    ),
    r"\b(go|goes|went|going) on (from|where|at the missing|with the next|afterwards)\b": (
        "'resume' or 'continue'"
    ),
    # "There is no ..." is fine.
    r"(?<!there )\b(is|are|was|were) no (?!longer|more|less|need|one|other|better|worse|different|larger|"
    r"smaller|faster|slower|nearer|reason|way)[a-z]+": "'is not a ...'",
    r"\b(lies|lie|stands|stand|live|lives) beside\b": "'alongside' or 'next to'",
    r"\b(what is )?amiss\b": "'wrong' or 'inconsistent'",
    r"\bin vain\b": "'without success' or 'failed'",
    r"\bas (it|they) (has|have) it\b": "'in ... layout'",
    r"\bof (one's|ones|a user's) own\b": "'your own' or 'custom'",
    r"\bmade anew\b": "'made again' or 'rebuilt'",
    r"\btime of birth\b": "'creation time'",
    r"\bmust be (told|said)\b": "'must be given'",
    r"\b(is|are) (told|said) to (?!have|be)": "'is asked to' or 'reports'",
}
# Found outside the tests alone.
DIALECT = {
    r'"""(What|How|Which|Whether|Of) ': "a noun or a verb, such as 'Settings of ...'",
    r"^\s*# (What|Which|Whether|Of) (?!.*\?$)": "a noun, such as 'Names of ...'",
    r"\bso many\b": "the number: 'that number of ...', 'enough ...'",
    r"\bcannot tell\b|\b(told|tells?) (\w+ )*apart\b|\b(and|is|are|was) told\b": "'distinguish', 'is given'",
    r"\b(not|nothing|none|names?|flags?) tells?\b|\btell(s|ing)? (it|nothing|which|that|whether|name)\b": (
        "'show', 'decide', 'set' or 'unknown'"
    ),
    r"\b(less|more) of the \w+ is better|\bof wh(ich|ose) (\w+ )?(less|more)\b": "'lower scores are better'",
}
_PATTERNS = {re.compile(pattern, re.IGNORECASE): better for pattern, better in RULES.items()}
_DIALECT = {re.compile(pattern): better for pattern, better in DIALECT.items()}
_SUFFIXES = {".py", ".md", ".gin", ".j2", ".toml", ".yml", ".cff", ".html"}
# Quotes or generates other texts.
_EXEMPT = {"tests/lint/prose.py"}


def findings(path: Path) -> Iterator[str]:
    """Yields `file:line: phrase: write ...` for each phrase of a file."""
    is_program = path.suffix == ".py" and ROOT / "tests" not in path.parents
    patterns = _PATTERNS | (_DIALECT if is_program else {})
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for pattern, better in patterns.items():
            for match in pattern.finditer(line):
                yield f"{path.relative_to(ROOT)}:{number}: {match[0]!r}: write {better}"


def files(arguments: list[str]) -> Iterator[Path]:
    """Yields the tracked files of text below the arguments, or all of them."""
    listing = ["git", "ls-files", "--", *arguments]
    output = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in output.splitlines():
        path = ROOT / name
        if (
            name not in _EXEMPT
            and path.is_file()
            and (path.suffix in _SUFFIXES or name == "Makefile")
        ):
            yield path


def main(arguments: list[str]) -> None:
    """Prints what is found, and exits with 1 where it is anything."""
    found = [finding for path in files(arguments) for finding in findings(path)]
    if found:
        sys.exit("\n".join([*found, f"{len(found)} phrases; tests/lint/prose.py has the list."]))


if __name__ == "__main__":
    main(sys.argv[1:])
