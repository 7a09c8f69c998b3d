"""Counts lines of Python: whether work is done in NumPy or in a loop shows on any machine, under any load."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def executed_lines(function: Callable[[], Any]) -> int:
    """Returns how many lines of Python a call executes, those of libraries included."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    gc.collect()
    gc.disable()  # it would run finalizers of other tests' objects
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
        gc.enable()
    return count
