"""Parameters at the door: values of the command line and of Gin against annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from multiberts.runs.command_line.command import Arguments
from multiberts.runs.command_line.commands import COMMANDS, Command, load
from multiberts.runs.command_line.gin_files import parse_gin
from multiberts.runs.command_line.help import help_of
from multiberts.runs.errors import UserError
from multiberts.runs.parameters import (
    NonNegativeInt,
    Range,
    annotations_of,
    check_arguments,
    is_boolean,
    shortened,
    takes_fields_of,
    value_of_flag,
)
from multiberts.tests.runs.command_line.test_gin_files import nested


def stage(
    *,
    steps: int = 1,
    rate: float = 1.0,
    files: Sequence[str] = (),
    model: Mapping[str, Any] | None = None,
    name: str = "",
    flag: bool = False,
    devices: int | Literal["auto"] = "auto",
    either: str | Sequence[str] | None = None,
    seeds: Sequence[int] = (),
    epochs: Annotated[float, Range(above=0, most=100)] | None = 3,
    kept: Sequence[NonNegativeInt] = (),
    some: Literal["last", "all"] | Sequence[int] = "all",
    folders: Sequence[str] | Mapping[str, str] = (),
) -> None:
    """Does nothing.

    Args:
      steps: how many.
      rate, name: two that share a line.
    """


EPOCHS = "float above 0 and at most 100 or None"
# What is refused, by parameter, with the type that is said.
REFUSED: dict[str, tuple[str, list[Any]]] = {
    "steps": ("int", ["100", 2.5, 2.0, True, None]),
    "rate": ("float", [True, "1e-4", float("nan"), float("inf"), 10**309]),
    "files": ("list of str", ["/data", ["a", 1], {"a": 1}]),
    "model": ("mapping of str to any or None", [3, {3: 4}]),
    "name": ("str", [None, 3]),
    "flag": ("bool", ["no", 0]),
    "devices": ("int or 'auto'", ["all", True]),
    "either": ("str or list of str or None", [3]),
    "seeds": ("list of int", [[0, "1"], [0, False]]),
    "epochs": (EPOCHS, [0, 100.5, float("nan"), "3"]),
    "kept": ("list of int at least 0", [[0, -1]]),
}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [(name, value, said) for name, (said, values) in REFUSED.items() for value in values],
)
def test_a_value_of_another_type_is_refused_in_one_line(
    name: str, value: object, expected: str
) -> None:
    with pytest.raises(UserError) as refused:
        check_arguments(stage, {name: value})
    assert str(refused.value).startswith(
        f"stage.{name} is {shortened(value)}, expected {expected};"
    )


def test_values_of_the_right_types_pass() -> None:
    for given in (
        {"steps": 0, "rate": 1, "files": ("a",), "model": {"a": None}, "flag": False, "devices": 2},
        {
            "files": [],
            "model": None,
            "devices": "auto",
            "either": "a",
            "epochs": 100,
            "kept": [0, 5],
        },
        *({"either": ["a"], "epochs": 1e-9}, {"epochs": None}),
    ):
        check_arguments(stage, given)


@dataclass(frozen=True, kw_only=True)
class Settings:
    kept: Sequence[NonNegativeInt] = ()


@takes_fields_of(Settings)
def entry(settings: Settings) -> int:
    return len(settings.kept)


def test_an_entry_with_settings_refuses_its_callers_bad_values() -> None:
    assert entry(kept=[3, 4]) == 2
    with pytest.raises(UserError, match=r"entry\.kept is \[-3\],"):
        entry(kept=[-3])


# Of flags, by parameter: what is given and what it means.
FLAGS: dict[str, list[tuple[list[str], Any]]] = {
    "steps": [(["3"], 3), (["three"], "three")],
    "rate": [(["1e-4"], 1e-4), (["1"], 1)],
    "files": [(["a,b"], ["a", "b"]), (["a,b", "c"], ["a,b", "c"]), (["['a,b']"], ["a,b"])],
    "seeds": [(["1,2"], [1, 2])],
    "model": [(['{"a": 1}'], {"a": 1}), (["None"], None)],
    "name": [(["1"], "1"), (["None"], "None")],
    "flag": [(["true"], True), (["False"], False)],
    "devices": [(["2"], 2), (["auto"], "auto")],
    "either": [(["a"], "a"), (["none"], None), (["a", "b"], ["a", "b"])],
    "epochs": [(["2"], 2), (["none"], None)],
    "kept": [(["0,5"], [0, 5])],
    "some": [(["40"], [40]), (["0,40"], (0, 40)), (["last"], "last")],
    "folders": [(["{'a': 'b'}"], {"a": "b"}), (["a,b"], ["a", "b"])],
}


@pytest.mark.parametrize(
    ("name", "texts", "value"), [(name, *row) for name, rows in FLAGS.items() for row in rows]
)
def test_a_flag_is_read_by_its_annotation(name: str, texts: list[str], value: object) -> None:
    assert value_of_flag(texts, annotations_of(stage)[name]) == value


def test_a_flag_that_may_be_true_needs_no_value() -> None:
    assert is_boolean(bool | None) and is_boolean(bool | Literal["all"]) and not is_boolean(str)


def test_every_default_of_every_command_fits_its_own_annotation() -> None:
    import inspect

    checked = 0
    for command in COMMANDS.values():
        function = load(command.target)
        defaults = {
            name: parameter.default
            for name, parameter in inspect.signature(function).parameters.items()
            if parameter.default is not parameter.empty
        }
        check_arguments(function, defaults)
        checked += len(defaults)
    assert checked > 100


def test_help_shows_type_default_and_meaning_of_each_parameter() -> None:
    shown = help_of(stage, Arguments(stage).groups(), Command("", "", ""))
    assert "--steps (int; default 1)\n      how many." in shown
    assert "--epochs (float above 0 and at most 100 or None; default 3)" in shown
    assert "--name (str; default '')\n      two that share a line." in shown


@pytest.mark.parametrize(
    "text",
    ["import os", "from os import path", "f.x = 1\nimport os.path", "import __gin__.dynamic"],
)
def test_a_gin_file_that_would_run_code_is_refused(tmp_path: Path, text: str) -> None:
    inner, outer = map(str, nested(tmp_path, text))
    for files, params in (([inner], []), ([outer], []), ([], [text])):
        with pytest.raises(UserError, match="imports a module"):
            parse_gin(files, params)


@pytest.mark.parametrize("spelled", ["'in\\x6eer.gin'", "'in' 'ner.gin'", '"""inner.gin"""'])
def test_an_include_is_found_however_it_is_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelled: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("inner.gin").write_text("import evil\n")
    Path("evil.py").write_text("open('evil ran', 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("outer.gin").write_text(f"include {spelled}\n")
    for files, params in ((["outer.gin"], []), ([], [f"include {spelled}"])):
        with pytest.raises(UserError, match="imports a module"):
            parse_gin(files, params)
    assert not Path("evil ran").exists()


def test_an_include_is_looked_for_in_the_current_directory_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gin itself would look through the packages, too."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "inner.gin").write_text("import os\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=r"package/inner\.gin, .*missing"):
        parse_gin([], ["include 'package/inner.gin'"])


@pytest.mark.parametrize(
    "text",
    [
        *("a.b = (", "a.b = '", "\0", "\x93\xff", "a.b = @x("),
        *("a.b = " + "[" * 100_000, "a.b = " + "9" * 10_000),
    ],
    ids=lambda text: repr(text[:10]),
)
def test_what_is_not_a_configuration_gets_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.gin"
    file.write_text(text)
    for files, params in (([str(file)], []), ([], [text])):
        with pytest.raises(UserError):
            parse_gin(files, params)
