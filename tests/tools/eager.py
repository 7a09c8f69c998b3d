"""TensorFlow's operations one by one, as they are called.

Tracing a step takes longer than making thirty: tests that make a few, and are not about programs, leave
it out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from multiberts.runs.command_line.command import main

COMMAND = f"{__name__}:command"


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def command(arguments: Sequence[str]) -> None:
    """Runs `multiberts *arguments`; the target of a warm process of the kind TENSORFLOW."""
    with eagerly():
        main(arguments)
