"""What a run is: its inputs as they were opened, its code, its settings as their types say."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from multiberts.pretrain.training.settings import IDENTITY, PretrainingSettings
from multiberts.runs import identity
from multiberts.runs.directory import RunDirectory
from multiberts.runs.errors import UserError
from multiberts.runs.identity import LATER, check_unchanged, opened, opened_code, promised
from multiberts.runs.parameters import typed


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one")
    before = opened(text)
    check_unchanged(before)
    os.utime(text, (1, 1))
    check_unchanged(before)  # touched, with the same content
    text.write_text("two")
    with pytest.raises(UserError, match=r"text\.txt changed while it was read"):
        check_unchanged(before)
    text.unlink()
    with pytest.raises(UserError, match=r"text\.txt changed while it was read"):
        check_unchanged(before)


def test_a_file_that_is_written_while_it_is_hashed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one")

    def written_meanwhile(path: Path) -> str:
        path.write_text("and more")
        return "half of each"

    monkeypatch.setattr(identity, "sha256_of_file", written_meanwhile)
    with pytest.raises(UserError, match="changed while it was read"):
        opened(text)


@pytest.fixture
def code_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """The identity of a module of the user's, as another process would have it."""
    package = tmp_path / "their_tasks"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "reviews.py").write_text(
        "from . import words\nimport numpy, beside\n\n\ndef f():\n    from .deep import g\n"
    )
    for name in ("words", "deep", "stray"):
        (package / f"{name}.py").write_text("X = 1\n")
    (tmp_path / "beside.py").write_text("X = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    def code() -> str:
        monkeypatch.delitem(sys.modules, "their_tasks", raising=False)
        opened_code.cache_clear()
        return opened_code("their_tasks.reviews").identity

    return code


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        *((f"their_tasks/{name}.py", True) for name in ("reviews", "words", "deep", "__init__")),
        *(("beside.py", True), ("their_tasks/stray.py", False)),
    ],
)
def test_code_counts_with_what_it_imports(
    tmp_path: Path, code_of: Callable[[], str], file: str, counts: bool
) -> None:
    before = code_of()
    with (tmp_path / file).open("a") as stream:
        stream.write("Y = 2\n")
    assert (code_of() != before) == counts


def test_code_stays_what_this_process_imported(tmp_path: Path, code_of: Callable[[], str]) -> None:
    before = code_of()
    (tmp_path / "their_tasks/words.py").write_text("X = 2\n")
    assert opened_code("their_tasks.reviews").identity == before


def test_an_input_that_is_not_the_planned_one_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one")
    planned = {str(text): opened(text).identity}

    def run(name: str) -> RunDirectory:
        return RunDirectory(tmp_path / name, stage="s", parameters={}, inputs={"text": text})

    with promised(planned):
        run("before")
        text.write_text("two")
        with pytest.raises(UserError, match="changed after this run was planned"):
            run("later")
    run("by itself")


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (3, float, 3.0),
        (3, float | None, 3.0),
        (None, float | None, None),
        (3, int, 3),
        (3, int | float, 3),
        (True, bool, True),
        ([1, 2.5], Sequence[float], [1.0, 2.5]),
        ((1, 2), Sequence[float], (1.0, 2.0)),
        ({"a": [1]}, Mapping[str, Sequence[float]], {"a": [1.0]}),
        ([1], Sequence[float] | Mapping[str, Sequence[float]], [1.0]),
        ("all", float | str, "all"),
        (1, Any, 1),
    ],
)
def test_settings_have_the_types_that_are_declared(
    value: Any, annotation: Any, expected: Any
) -> None:
    assert repr(typed(value, annotation)) == repr(expected)


def test_a_run_is_the_same_whether_a_number_is_written_3_or_3_0(tmp_path: Path) -> None:
    for number in (3, 3.0):
        with RunDirectory(tmp_path / "run", stage="s", parameters={"epochs": number}):
            pass
    with pytest.raises(UserError, match=r"epochs \(there 3, now 4\)"):
        RunDirectory(tmp_path / "run", stage="s", parameters={"epochs": 4})


def test_a_parameter_that_came_later_does_not_refuse_a_run_at_its_default() -> None:
    """A training of days goes on after an update that has a new parameter."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Updated(PretrainingSettings):
        new_option: float = dataclasses.field(default=0.5, metadata=LATER)

    given: dict[str, Any] = {"run_dir": "r", "corpus": "c", "model": {}}
    given |= {"pretrain_seed": 0, "num_steps": 10}
    updated = dataclasses.replace(IDENTITY, settings=Updated)
    before = IDENTITY.of(vars(PretrainingSettings(**given)))
    assert updated.of(vars(Updated(**given))) == before
    assert updated.of(vars(Updated(**given, new_option=1.0)))[0]["new_option"] == 1.0
