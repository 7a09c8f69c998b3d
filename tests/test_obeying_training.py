"""Cures that work, before a comparison: texts, labels and models as people have them, and what they then do.

As `tests/test_obeying.py`, for the commands that read text, train and predict.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multiberts.tests.obeying import Attempt, faults_of, obey
from multiberts.tests.test_obeying import shown


def files(**contents: str | bytes) -> Callable[[Path], None]:
    """Writes files, named with `__` for a dot."""

    def write(folder: Path) -> None:
        for name, content in contents.items():
            data = content.encode() if isinstance(content, str) else content
            (folder / name.replace("__", ".")).write_bytes(data)

    return write


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


WORDS = ["the", "guest", "was", "late", "she", "told", "him", "a", "cake", "is", "red"]
SENTENCES = [" ".join(WORDS[number % 7 :][:4]).capitalize() + "." for number in range(60)]
TALKS = [" ".join(SENTENCES[first : first + 3]) for first in range(0, 60, 3)]
PREPARE = "prepare --run_dir=corpus --vocabulary_size=100 --sequence_length=24 --dupe_factor=1"


ATTEMPTS = {
    "texts of one sentence": Attempt(
        files(a__jsonl=lines(*({"text": text} for text in SENTENCES))),
        f"{PREPARE} --sources=a.jsonl --source_format=jsonl", "documents +20$", {},
        {"join short texts": files(a__jsonl=lines(*({"text": text} for text in TALKS)))},
    ),
    "text without ends of sentences": Attempt(
        files(a__jsonl=lines(*({"text": text.replace(".", "")} for text in TALKS))),
        f"{PREPARE} --sources=a.jsonl --source_format=jsonl", "documents +20$", {},
        {"sentences end without marks, write one": lambda folder: files(
            a__txt="\n\n".join(text.replace(". ", "\n") for text in TALKS))(folder)
            or f"{PREPARE} --sources=a.txt --source_format=sentences"},
    ),
    "a blank line after each sentence": Attempt(
        files(a__txt="\n\n".join(SENTENCES)), f"{PREPARE} --sources=a.txt --source_format=sentences",
        "documents +2$", {},
        {"leave blank lines between documents only": files(
            a__txt="\n".join(SENTENCES[:30]) + "\n\n" + "\n".join(SENTENCES[30:]))},
    ),
    "a text that is null": Attempt(
        files(a__jsonl=lines(*({"text": text} for text in TALKS), {"text": None})),
        f"{PREPARE} --sources=a.jsonl --source_format=jsonl", "documents +20$", {},
        {"leave such lines out": files(a__jsonl=lines(*({"text": text} for text in TALKS)))},
    ),
    "a text in another field": Attempt(
        files(a__jsonl=lines(*({"body": text} for text in TALKS))),
        f"{PREPARE} --sources=a.jsonl --source_format=jsonl", "documents +20$", {"text_field": "body"},
    ),
    "a Gin file in Latin-1": Attempt(
        files(a__gin="make_world.run_dir = 'wörld'\nmake_world.num_documents = 40\n".encode("latin-1")),
        "make-world --gin_file=a.gin", "^wörld: 13 files", {},
        {"convert the file": files(a__gin="make_world.run_dir = 'wörld'\nmake_world.num_documents = 40\n")},
    ),
    "a path with a variable that is not set": Attempt(
        files(), "make-world --run_dir='$NO_SUCH/world' --num_documents=40", "^world: 13 files", {},
        {"write the path without it": lambda folder: "make-world --run_dir=world --num_documents=40"},
    ),
    "an include beside its file": Attempt(
        lambda folder: [(folder / "exp").mkdir(), files(
            exp_a__gin="")(folder), (folder / "exp" / "base.gin").write_text("make_world.num_documents = 40"),
            (folder / "exp" / "a.gin").write_text("include 'base.gin'\n")],
        "make-world --gin_file=exp/a.gin --run_dir=world", "^world: 13 files",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTEMPTS)
def test_a_person_who_does_what_is_said_gets_there(tmp_path: Path, name: str) -> None:
    attempt = ATTEMPTS[name]
    chain = obey(attempt, tmp_path / "folder")
    assert chain.outcome == attempt.ends, shown(name, chain)
    assert re.search(attempt.says, chain.text, re.MULTILINE), shown(name, chain)
    command = attempt.command.partition(" --")[0].split()[0]
    faults = [fault for line in chain.refusals for fault in faults_of(line, command)]
    assert not faults, shown(name, chain)
