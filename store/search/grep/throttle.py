"""Work that nobody waits for gives way to work that somebody waits for.

The threads of a process share one interpreter: a file read into the index beside a busy mount would make every
request twice as slow. So background work rests as long as it works, and on while the others are busy, which their
use of the CPU tells. Not for ever: a process that never rests would never get it done.
"""

from __future__ import annotations

import time

STRETCH_S = 0.01  # of work between two rests
NAP_S = 0.05
BUSY = 0.1  # of a CPU, used by the other threads
LONGEST_REST_S = 1.0


class Throttle:
    """Of one thread, which calls `breathe` often."""

    def __init__(self) -> None:
        self._worked_since = time.perf_counter()
        self._at, self._others = time.perf_counter(), _used_by_others()

    def pause(self) -> None:
        """Rest, if the time has come."""
        worked_s = time.perf_counter() - self._worked_since
        if worked_s < STRETCH_S:
            return
        ends = time.perf_counter() + LONGEST_REST_S
        time.sleep(min(worked_s, LONGEST_REST_S))
        while self._others_are_busy() and time.perf_counter() < ends:
            time.sleep(NAP_S)
        self._worked_since = time.perf_counter()

    def _others_are_busy(self) -> bool:
        """Since it was asked last."""
        now, used = time.perf_counter(), _used_by_others()
        share = (used - self._others) / (now - self._at)
        self._at, self._others = now, used
        return share > BUSY


def _used_by_others() -> float:
    return time.process_time() - time.thread_time()
