"""Where the daemon's time went, as a table of functions; off unless asked for, and then it costs."""

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
    """Profile what is done in this thread, and write it down at the end."""
    if path is None:
        yield
        return
    profile = cProfile.Profile()
    path.touch()  # where it cannot be written, say so at once
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        text = io.StringIO()
        for order in ("tottime", "cumulative"):
            pstats.Stats(profile, stream=text).strip_dirs().sort_stats(order).print_stats(_LINES)
        path.write_text(text.getvalue())
