"""CPU affinity: the request thread runs on the CPU of the calling process.

The caller sleeps until the daemon answers, and the daemon sleeps until the next request: they
never run at the same time. Waking a thread on another CPU costs several times more than
answering; on the same CPU it costs almost nothing. So the request thread moves to the caller's
CPU, checking at most every few milliseconds. Worker threads run on any CPU.

If another CPU is idle, the kernel moves the woken caller there and following fails: the two are
on different CPUs. The request loop then spins between requests instead of sleeping
(`request_loop`).
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from fusefs.switches import enabled

CHECK_EVERY_S = 0.01
_PROCESSOR = 36  # field of /proc/PID/stat, counted from the field after the name


class CpuFollower:
    def __init__(self) -> None:
        self._all_cpus = os.sched_getaffinity(0)
        self._cpu: int | None = None
        self.is_apart = False  # the caller runs on another CPU, although we moved to its last one
        self._next = 0.0 if enabled("companion") and len(self._all_cpus) > 1 else float("inf")
        self._unpinned = threading.local()

    def follow(self, pid: int) -> None:
        """Move to the CPU of the calling thread."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + CHECK_EVERY_S
        with suppress(OSError):  # the thread ended, or belongs to another pid namespace
            cpu = _cpu_of(pid)
            self.is_apart = cpu != self._cpu
            if self.is_apart and cpu in self._all_cpus:
                os.sched_setaffinity(0, {cpu})
                self._cpu = cpu

    def unpin_thread(self) -> None:
        """Let a worker thread run on any CPU: it inherits the request thread's affinity."""
        if not getattr(self._unpinned, "done", False):
            self._unpinned.done = True
            os.sched_setaffinity(0, self._all_cpus)


def _cpu_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        return int(file.read(1024).rpartition(b")")[2].split()[_PROCESSOR])
