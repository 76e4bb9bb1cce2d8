"""Python's collector waits while a large document is parsed, checked and indexed.

What comes of JSON are hundreds of thousands of objects and no cycle among them; to look for one again and again while
they grow in number took most of the time that a save took.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

LARGE_BYTES = 64 * 1024


class _Pause:
    """For as long as anyone wants it, in whatever thread; then things are as they were before the first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._wanted = 0
        self._was_enabled = False

    def begin(self) -> None:
        with self._lock:
            if not self._wanted:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._wanted += 1

    def end(self) -> None:
        with self._lock:
            self._wanted -= 1
            if not self._wanted and self._was_enabled:
                gc.enable()


_pause = _Pause()


@contextmanager
def gc_paused(size_bytes: int) -> Iterator[None]:
    """Leave it, while a document of that size is at work on."""
    if size_bytes < LARGE_BYTES:
        yield
        return
    _pause.begin()
    try:
        yield
    finally:
        _pause.end()
