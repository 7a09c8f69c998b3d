"""Keeping freed memory for the next step."""

from __future__ import annotations

import ctypes
import sys

# Names of `mallopt` in glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def keep_freed_memory() -> bool:
    """Has the C library keep what a step frees, for the next step to use.

    A step on CPU takes and frees arrays of tens of megabytes (the scores of the vocabulary above
    all). glibc gives such arrays back to the system at once, which then clears every page anew: a
    third of a small model's step. Changes no number; the process stays as large as its largest
    step.

    Returns:
      Whether it was done: on Linux with glibc; nowhere else, where it is not needed or not known.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    # Large arrays from the heap instead of mappings of their own, and a heap that never shrinks.
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, -1))
