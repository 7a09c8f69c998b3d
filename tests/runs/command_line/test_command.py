"""The command line's exits that no stage's tests reach."""

import inspect
import json
import re
import shlex
import subprocess
import sys

import pytest

from multiberts.runs.command_line.command import (
    COMMANDS,
    help_of,
    load,
    positional_texts,
    run_main,
)
from multiberts.runs.preemption import PreemptedError
from multiberts.tests import warm

PROGRAM = """
from multiberts.runs.command_line.command import run_main

def main(arguments):
    for number in range(100_000):
        print(number)

run_main(main)
"""


def test_a_reader_that_stops_early_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


def interrupted() -> None:
    def main(_arguments):
        raise KeyboardInterrupt

    run_main(main)


def test_ctrl_c_ends_a_command_with_one_line():
    process = warm.Process("multiberts.tests.runs.command_line.test_command:interrupted", [])
    assert process.communicate() == ("", "stopped\n")
    assert process.returncode == 130


OUT_OF_MEMORY = """
import sys
from multiberts.runs.command_line.command import run_main

def main(arguments):
    exec(arguments[1])

run_main(main)
"""


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("bytearray(1 << 62)", "it could get .* bytes"),
        ("import numpy; numpy.empty(1 << 50)", "Unable to allocate 8.00 PiB"),
        ("import pyarrow; pyarrow.allocate_buffer(1 << 60)", "malloc of size 1152921504606846976"),
        ("import jax; jax.numpy.zeros(1 << 44)", "Out of memory allocating 70368744177664 bytes"),
        ("import os; raise OSError(12, os.strerror(12))", "Cannot allocate memory"),
    ],
)
def test_too_little_memory_is_one_line(statement: str, told: str):
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY, statement], capture_output=True, text=True
    )
    *_, line = done.stderr.splitlines()  # JAX warns before
    assert re.fullmatch(rf"error: this command needs more memory .*{told}.*; give it less .*", line)
    assert done.returncode == 2 and "Traceback" not in done.stderr


def stopped() -> None:
    def main(_arguments):
        raise PreemptedError("asked to stop: saved at step 3")

    run_main(main)


def test_a_stage_that_was_asked_to_stop_exits_with_its_own_status():
    process = warm.Process("multiberts.tests.runs.command_line.test_command:stopped", [])
    assert process.communicate() == ("", "asked to stop: saved at step 3\n")
    assert process.returncode == 75


def helped(name: str, full: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", [f"multiberts {name}"])
    command = COMMANDS[name]
    return help_of(load(command.arguments)(load(command.target)), command, full)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_two_screens_and_ends_with_the_example(name, monkeypatch):
    shown = helped(name, False, monkeypatch)
    assert len(shown.splitlines()) <= 80
    assert max(map(len, shown.splitlines())) <= 100
    _, last = shown.split("\n\nExample:\n")
    assert shlex.split(last.replace("\\\n", "")) == shlex.split(
        f"multiberts {name} {COMMANDS[name].example}"
    )
    for word in ("Traceback", "Raises:", ">>>", "UserError"):
        assert word not in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_helpfull_describes_every_parameter_and_help_at_least_names_it(name, monkeypatch):
    source = load(COMMANDS[name].arguments)(load(COMMANDS[name].target))
    full, short = (helped(name, is_full, monkeypatch) for is_full in (True, False))
    for heading, function, kinds in source.groups():
        assert heading in full and heading in short
        for parameter in kinds.keys() & inspect.signature(function).parameters.keys():
            assert f"\n  --{parameter} (" in full
            assert re.search(rf"\b{parameter}\b", short)
    assert set(COMMANDS[name].common.split()) <= source.flags().keys()


# The examples that run one after the other in an empty folder.
IN_ORDER = (
    *("world", "compare", "reproduce", "import", "holdout", "prepare", "pretrain", "show"),
    *("checkpoint inspect", "checkpoint convert", "checkpoint compare"),
    *("finetune", "predict", "sweep", "evaluate", "export", "stats rates"),
    *("launch plan", "launch run", "launch status", "stats", "paper", "list"),
)
# They want an account, half a minute of training or two sizes of models.
NOT_RUN = {"push", "launch doctor", "stats instances"}


def test_examples_of_help_have_flags_of_their_command():
    assert {*IN_ORDER} | NOT_RUN == COMMANDS.keys()
    for name, command in COMMANDS.items():
        flags = load(command.arguments)(load(command.target)).flags().keys() | {"gin_file"}
        for argument in shlex.split(command.example):
            if argument.startswith("--"):
                assert argument[2:].partition("=")[0] in flags, name
            else:
                assert command.positional, name


@pytest.mark.slow
def test_examples_of_help_run_one_after_the_other(tmp_path):
    for name in IN_ORDER:
        done = warm.run([*name.split(), *shlex.split(COMMANDS[name].example)], tmp_path)
        assert done.returncode == 0, (name, done.stderr)
        written = re.findall(r"--(?:run_dir|root|html|path)=(\S+)", COMMANDS[name].example)
        assert all((tmp_path / path).exists() for path in written), name


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.run(arguments)


def test_help_of_finetune_shows_the_options_of_tasks():
    shown = call("finetune", "--helpfull").stdout
    assert "squad-v1.1, questions:\n  doc_stride (int at least 1; default 128)\n      " in shown
    assert "  training_pairs ('pronouns' or 'mentions'; default 'pronouns')\n" in shown


TABLE = "model,seed,id,score\n" + "\n".join(
    f"{model},{seed},{example},{(3 * seed + example + len(model)) % 5}"
    for model in ("old", "newer")
    for seed in range(3)
    for example in range(6)
)


def test_a_flag_that_is_true_or_false_needs_no_value(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(TABLE)
    given = ["compare", str(table), "--arm=model"]
    shown = [call(*given, flag) for flag in ("--json", "--json=true")]
    assert shown[0].returncode == 0, shown[0].stderr
    assert shown[0].stdout == shown[1].stdout and shown[0].stdout.startswith("[")
    text = call(*given, "--nojson").stdout
    assert text and not text.startswith("[")
    wrong = call(*given, "--json=yes")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: compare.json is 'yes',")


def test_messages_name_parameters_as_gin_has_them_under_either_name(tmp_path):
    missing = call("stats")
    assert " stats.predictions, stats.run_dir" in missing.stderr
    for name in ("evaluate", "score"):
        wrong = call("evaluate", f"--gin_param={name}.run_dir = 3", "--predictions=report.run_dir")
        assert wrong.stderr.startswith("error: evaluate.run_dir is 3,")


def test_a_sweep_from_flags_alone(tmp_path):
    given = ["--root=sweep", "--tasks=RTE", "--learning_rates=1e-4,2e-4", "--data_dir=nowhere"]
    refused = call("sweep", *given, f"--checkpoints={tmp_path}")
    assert refused.returncode == 2 and str(tmp_path) in refused.stderr
    wrong = call("sweep", *given, "--checkpoints=a,b", "--finetune_seeds=0,x")
    assert wrong.stderr.startswith("error: launch.finetune_seeds is [0, 'x'],")
    assert "no checkpoint to start from" in call("sweep", "--root=sweep", "--tasks=RTE").stderr


def test_quiet_and_verbose(tmp_path):
    run_dir = f"--run_dir={tmp_path / 'world'}"
    made = call("-q", "world", run_dir, "--num_documents=2")
    assert made.stderr == "" and f"{tmp_path / 'world'}: 13 files, " in made.stdout
    again = call("world", run_dir, "--num_documents=2", "-v").stderr
    assert "make_world.num_documents = 2\n" in again and "was done already" in again
    assert "make_world took " in again
    assert call("world", run_dir, "--num_documents=2", "--quiet").stderr == ""
    wrong = call("world", run_dir, "--num_documents=3", "-v").stderr
    assert wrong.startswith("make_world.run_dir") and "Traceback" in wrong
    assert wrong.splitlines()[-1].startswith("error: ")


def test_every_command_says_what_it_made():
    silent = set()
    for name, command in COMMANDS.items():
        returned = inspect.signature(load(command.target)).return_annotation
        if command.report is None and returned != "str":
            silent.add(name)
    # These print it themselves.
    assert silent == {
        "checkpoint compare",
        "compare",
        "export",
        "stats rates",
        "predict",
        "push",
        "reproduce",
        "sweep",
    } | {name for name in COMMANDS if name.startswith("launch ")}


def test_compare_takes_any_number_of_files(tmp_path):
    rows = TABLE.splitlines()
    for model in ("old", "newer"):
        kept = [row for row in rows if row.startswith((model, "model"))]
        (tmp_path / f"{model}.csv").write_text("\n".join(kept))
    (tmp_path / "third.csv").write_text((tmp_path / "old.csv").read_text().replace("old", "third"))
    files = [str(tmp_path / f"{name}.csv") for name in ("old", "newer", "third")]
    by_place, by_name = call("compare", *files), call("compare", files[0], ",".join(files[1:]))
    assert by_place.returncode == 0, by_place.stderr
    assert "Among 3 arms" in by_place.stdout and by_place.stdout == by_name.stdout


def test_a_flag_may_have_hyphens(tmp_path):
    made = call("world", f"--run-dir={tmp_path / 'a-b'}", "--num-documents=3")
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "a-b" / "corpus.txt").is_file()
    wrong = call("world", "--num-document=3")
    assert re.search(r"--num_document; .*num_documents", wrong.stderr)


def test_gin_binds_a_command_under_its_name_or_its_functions(tmp_path):
    listed = [
        call("list", f"--gin_param={name}.kind = 'metrics'") for name in ("list", "list_names")
    ]
    assert listed[0].stdout == listed[1].stdout and listed[0].stdout.startswith("Classes ")
    both = call(
        "list", "--gin_param=list_names.kind = 'tasks'", "--gin_param=list.kind = 'metrics'"
    )
    assert both.stdout == listed[0].stdout


def test_commands_of_two_words_are_listed_by_their_first():
    for group in ("checkpoint", "launch"):
        listed = call(group, "--help")
        own = [name for name in COMMANDS if name.startswith(f"{group} ")]
        assert listed.returncode == 0 and all(f"\n  {name} " in listed.stdout for name in own)
        wrong = call(group, own[0].split()[1][:-1])
        assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
        assert f"did you mean {own[0]}" in wrong.stderr
    assert call("checkpoint").returncode == 2


def test_arguments_without_names_may_stand_around_a_list():
    assert positional_texts(["a", "b", "c"], ("sources...", "target")) == {
        "sources": ["a", "b"],
        "target": ["c"],
    }
    assert positional_texts(["m", "x", "y"], ("model", "files...")) == {
        "model": ["m"],
        "files": ["x", "y"],
    }
    assert positional_texts(["a"], ("sources...", "target")) == {"target": ["a"]}


# Every command's help, and a command of a launch, without the packages of the extras.
BASE_INSTALL = """
import contextlib, importlib.abc, io, json, sys
from multiberts.runs.command_line import command

class Lacking(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {*command._EXTRAS} - {"google"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Lacking())
found = {}
for call in (*(f"{name} --help" for name in command.COMMANDS), "launch status --root=none"):
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            command.main(call.split())
            code = 0
        except SystemExit as error:
            code = error.code
    found[call] = [code, text.getvalue()]
    if call.endswith("--help"):
        slow = "scipy" in sys.modules
print(json.dumps([slow, found]))
"""


@pytest.mark.seconds
def test_every_help_is_there_in_a_base_install() -> None:
    result = subprocess.run(
        [sys.executable, "-c", BASE_INSTALL], capture_output=True, text=True, check=True
    )
    imports_scipy, texts = json.loads(result.stdout)
    assert not imports_scipy, "a command's --help waits 0.2 s for SciPy"
    # The extra `launch` alone would lead from one missing package to the next.
    code, line = texts.pop("launch status --root=none")
    assert code == 2 and "pip install 'multiberts[tensorflow]'" in line
    for name in COMMANDS:
        code, text = texts[f"{name} --help"]
        assert code == 0 and f"usage: multiberts {name}" in text, text


def test_a_missing_parameter_is_told_with_its_choices() -> None:
    said = call("prepare", "--run_dir=corpus", "--sources=text.txt").stderr
    assert "lacks prepare.source_format ('sentences' or 'blank_lines' or" in said
    assert call("show").stderr.startswith("error: show lacks show.paths; give")


def test_the_help_lists_every_command_once_the_comparison_first() -> None:
    listed = re.findall(r"^  (\S+(?: \S+)?)  ", call("--help").stdout, flags=re.MULTILINE)
    assert listed == [*COMMANDS] and listed[0] == "compare"
