"""The daemon runs on the CPU of its caller.

A caller sleeps until it is answered, and the daemon until it is asked: they never run at the same time. Waking one
another across CPUs costs several times what answering does, on one CPU next to nothing. So the thread that reads
requests follows who asks, looking at most every few milliseconds; threads that do the slow work run anywhere.

Where a CPU is idle the caller is put there as soon as it is woken, and following is in vain: the two are apart, and
the loop does not sleep between requests then (fusefs/loop.py).
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from fusefs.switches import enabled

EVERY_S = 0.01
_PROCESSOR = 36  # field of /proc/PID/stat, counted behind the name


class CpuFollower:
    def __init__(self) -> None:
        self._everywhere = os.sched_getaffinity(0)
        self._at: int | None = None
        self.is_apart = False  # the caller runs on another CPU, though we went where it was
        self._next = 0.0 if enabled("companion") and len(self._everywhere) > 1 else float("inf")
        self._freed = threading.local()

    def follow(self, pid: int) -> None:
        """Called with the thread that asks."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + EVERY_S
        with suppress(OSError):  # gone since, or of another namespace
            cpu = _cpu_of(pid)
            self.is_apart = cpu != self._at
            if self.is_apart and cpu in self._everywhere:
                os.sched_setaffinity(0, {cpu})
                self._at = cpu

    def unpin_thread(self) -> None:
        """Called in a thread for slow work: it was born where the reader was, and need not stay there."""
        if not getattr(self._freed, "done", False):
            self._freed.done = True
            os.sched_setaffinity(0, self._everywhere)


def _cpu_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        return int(file.read(1024).rpartition(b")")[2].split()[_PROCESSOR])
