"""Profile of the daemon as a table of functions. Off by default, because it slows the mount down."""

from __future__ import annotations

import cProfile
import io
import pstats
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LINES = 60


@contextmanager
def profiled(path: Path | None) -> Iterator[None]:
    """Profile this thread and write the result to a file at the end."""
    if path is None:
        yield
        return
    profile = cProfile.Profile()
    path.touch()  # fail at once if the file cannot be written
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        text = io.StringIO()
        for order in ("tottime", "cumulative"):
            pstats.Stats(profile, stream=text).strip_dirs().sort_stats(order).print_stats(_LINES)
        path.write_text(text.getvalue())
