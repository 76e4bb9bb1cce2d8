"""The heap of the process: return freed memory to the system.

Python frees the messages of a long session one by one. glibc keeps that memory, because blocks still in use lie between
the freed ones, and large buffers are not taken from it. The process would then occupy both.
"""

from __future__ import annotations

import ctypes


def return_freed_memory() -> None:
    """Return freed pages to the system; nothing happens with a C library other than glibc."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
