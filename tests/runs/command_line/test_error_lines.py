"""The command line's exits that no stage's tests reach."""

import json
import re
import subprocess
import sys

import pytest

from multiberts.runs.command_line.command import run_main
from multiberts.runs.command_line.commands import COMMANDS
from multiberts.tests.tools import warm

PROGRAM = """
import sys
from multiberts.runs.command_line.command import run_main

def main(arguments):
    exec(arguments[1])

run_main(main)
"""


def test_a_reader_that_stops_early_is_no_error():
    command = [sys.executable, "-c", PROGRAM, "for number in range(100_000): print(number)"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"0\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 141


def interrupted() -> None:
    def main(_arguments):
        raise KeyboardInterrupt

    run_main(main)


def test_ctrl_c_ends_a_command_with_one_line():
    process = warm.Process("multiberts.tests.runs.command_line.test_error_lines:interrupted", [])
    assert process.communicate() == ("", "stopped\n")
    assert process.returncode == 130


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
    command = [sys.executable, "-c", PROGRAM, statement]
    done = subprocess.run(command, capture_output=True, text=True)
    *_, line = done.stderr.splitlines()  # JAX warns before
    assert re.fullmatch(rf"error: this command needs more memory .*{told}.*; give it less .*", line)
    assert done.returncode == 2 and "Traceback" not in done.stderr


# Every command's help, and a command of a launch, without the packages of the extras.
BASE_INSTALL = """
import contextlib, importlib.abc, io, json, sys
from multiberts.runs.command_line import command, commands, error_lines

class Lacking(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in {*error_lines._EXTRAS} - {"google"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Lacking())
found = {}
for call in (*(f"{name} --help" for name in commands.COMMANDS), "launch status --root=none"):
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
