"""Gives memory that is free within this process back to the system."""

from __future__ import annotations

import ctypes


def give_back_memory() -> None:
    """To be called between runs that share a process.

    Tensors of many sizes leave holes in the C library's heap, which grows by hundreds of megabytes with
    every model although nothing is kept. Only glibc can be told; elsewhere this does nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
