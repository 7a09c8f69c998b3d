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
        if not command.target.endswith(":main") or name == "sweep":
            assert process.returncode == 0 and "; required)" in process.stdout, name
