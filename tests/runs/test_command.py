"""The command line's exits that no stage's tests reach."""

import subprocess
import sys

PROGRAM = """
from runs.command import run_main

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
