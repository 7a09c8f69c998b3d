"""The command line's exits that no stage's tests reach."""

import subprocess
import sys

from multiberts.runs.command import COMMANDS

PROGRAM = """
from multiberts.runs.command import run_main

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


STOPPED = """
from multiberts.runs.command import run_main
from multiberts.runs.preemption import PreemptedError

def main(arguments):
    raise PreemptedError("asked to stop: saved at step 3")

run_main(main)
"""


def test_a_stage_that_was_asked_to_stop_exits_with_its_own_status():
    process = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True)
    assert process.returncode == 75
    assert process.stderr == "asked to stop: saved at step 3\n"


def test_help_of_every_command_names_its_parameters_and_ends_well():
    for name, command in COMMANDS.items():
        code = f"from multiberts.runs.command import main; main([{name!r}, '--help'])"
        process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert process.stderr == "", name
        assert "Traceback" not in process.stdout and len(process.stdout) > 200, name
        if name == "completion":  # has no parameters
            assert process.returncode == 0
        elif not command.target.endswith(":main") or name == "sweep":
            assert process.returncode == 0 and "; required)" in process.stdout, name


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = f"from multiberts.runs.command import main; main({list(arguments)!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_quiet_and_verbose(tmp_path):
    run_dir = f"--run_dir={tmp_path / 'world'}"
    assert call("make-world", run_dir, "--num_documents=2", "-q").stderr == ""
    again = call("make-world", run_dir, "--num_documents=2", "-v").stderr
    assert "make_world.num_documents = 2\n" in again and "was done already" in again
    assert "make_world took " in again
    assert call("make-world", run_dir, "--num_documents=2", "--quiet").stderr == ""
    wrong = call("make-world", run_dir, "--num_documents=3", "-v").stderr
    assert wrong.startswith("make_world.run_dir") and "Traceback" in wrong
    assert wrong.splitlines()[-1].startswith("error: ")


def test_gin_binds_a_command_under_its_name_or_its_functions(tmp_path):
    listed = [
        call("list", f"--gin_param={name}.kind = 'metrics'") for name in ("list", "list_names")
    ]
    assert listed[0].stdout == listed[1].stdout and listed[0].stdout.startswith("accuracy ")
    both = call(
        "list", "--gin_param=list_names.kind = 'tasks'", "--gin_param=list.kind = 'metrics'"
    )
    assert both.stdout == listed[0].stdout


COMPLETE = """
source "$0"
for line in "multiberts pretr" "multiberts pretrain --num_st" "multiberts compare --design = pai" \
  "multiberts compare --design =" "multiberts list me" "multiberts launch stat" "multiberts paper x"; do
  COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _multiberts
  echo "${COMPREPLY[*]}"
done
"""


def test_completion_of_commands_parameters_and_choices(tmp_path):
    (tmp_path / "script").write_text(call("completion").stdout)
    done = subprocess.run(
        ["bash", "-c", COMPLETE, str(tmp_path / "script")], capture_output=True, text=True
    )
    assert done.stdout.splitlines() == [
        "pretrain", "--num_steps=", "paired", "paired unpaired fixed_baseline single", "metrics",
        "status", "",
    ], done.stderr  # fmt: skip


def test_words_of_the_launcher_are_its_commands():
    from multiberts.launch.command import COMMANDS as OF_THE_LAUNCHER

    assert COMMANDS["launch"].words == tuple(OF_THE_LAUNCHER)
