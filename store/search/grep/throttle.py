"""Throttling for background work.

The threads of a process share one interpreter: indexing at full speed halves the number of
requests a busy mount serves. A throttled thread sleeps as long as it worked, so it takes at
most half of the interpreter's time. Each sleep is bounded, so the work always finishes.

Work that nobody waits for gives way altogether: it stops while other threads of the process are
busy, up to a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable

WORK_S = 0.01  # between two sleeps
MAX_SLEEP_S = 1.0

LOOK_S = 0.02  # how often to look at the other threads
BUSY_SHARE = 0.2  # of a CPU: below that they hardly notice this thread
GIVE_WAY_S = 0.05
MAX_GIVE_WAY_S = 15.0  # a process that is always busy must not prevent the work


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


class GiveWay:
    """Belongs to one thread, which creates it and calls `pause` often."""

    def __init__(self, wait: Callable[[float], object] = time.sleep) -> None:
        self._wait = wait  # for this number of seconds, or less if the work has to end
        self._left_s = MAX_GIVE_WAY_S
        self._note()

    def _note(self) -> None:
        self._noted, self._others_s = time.perf_counter(), _cpu_of_others()

    def pause(self) -> None:
        """Wait while the other threads of the process are busy."""
        if time.perf_counter() - self._noted < LOOK_S:
            return
        while self._others_are_busy() and self._left_s > 0:
            self._left_s -= GIVE_WAY_S
            self._wait(GIVE_WAY_S)

    def _others_are_busy(self) -> bool:
        """Whether they used a part of a CPU since the last look."""
        noted, others_s = self._noted, self._others_s
        self._note()
        return self._others_s - others_s > BUSY_SHARE * (self._noted - noted)


def _cpu_of_others() -> float:
    """CPU time of all threads of this process but the caller's."""
    return time.process_time() - time.thread_time()
