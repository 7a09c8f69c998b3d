"""Makes the C library keep freed memory (in training), or return it to the system (between runs)."""

from __future__ import annotations

import ctypes
import sys

# Names of `mallopt` in glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4


def keep_freed_memory() -> bool:
    """Makes the C library keep what a training step frees, for the next step to use.

    A step on CPU takes and frees arrays of tens of megabytes (the scores of the vocabulary above
    all). glibc gives such arrays back to the system at once, which then clears every page anew: a
    third of a small model's step. Changes no number; the process stays as large as its largest
    step, until `give_back_memory` is called.

    Returns:
      Whether the allocator was changed, which needs Linux with glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    # Large arrays from the heap instead of mappings of their own, and a heap that never shrinks.
    return bool(mallopt(_M_MMAP_MAX, 0)) and bool(mallopt(_M_TRIM_THRESHOLD, -1))


def give_back_memory() -> None:
    """Gives memory that is free within this process back to the system, between runs that share it.

    Tensors of many sizes leave holes in the C library's heap, which grows by hundreds of megabytes
    with every model although nothing is kept. Works with glibc; elsewhere this does nothing. The
    opposite of `keep_freed_memory`, which holds within a run.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
