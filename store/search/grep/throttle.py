"""Throttling for background work.

The threads of a process share one interpreter: indexing at full speed halves the number of
requests a busy mount serves. A throttled thread sleeps as long as it worked, so it takes at
most half of the interpreter's time. Each sleep is bounded, so the work always finishes.
"""

from __future__ import annotations

import time

WORK_S = 0.01  # between two sleeps
MAX_SLEEP_S = 1.0


class Throttle:
    """Belongs to one thread, which calls `pause` often."""

    def __init__(self) -> None:
        self._started = time.perf_counter()

    def pause(self) -> None:
        """Sleep as long as the thread has worked since the last sleep, if that is WORK_S or more."""
        worked_s = time.perf_counter() - self._started
        if worked_s >= WORK_S:
            time.sleep(min(worked_s, MAX_SLEEP_S))
            self._started = time.perf_counter()
