"""Callers: the process that makes a request, read from /proc.

FUSE reports the id of a thread in the daemon's pid namespace, 0 for a process of another one. Only
`stat` and `status` are read. They never wait, unlike `cmdline`, which needs the memory of the
process, and they show nothing secret.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from fusefs.tree.processes import Process

# A thread keeps its process for life, and its id is not reused within a second.
CACHED_S = 1.0
_MAX_CACHED = 1024
_MAX_ANCESTORS = 4
# Fields of /proc/PID/stat, counted from the field after the name.
_PARENT, _SESSION, _STARTED = 1, 3, 19


class Callers:
    def __init__(self) -> None:
        self._known: dict[int, tuple[Process, float]] = {}

    def find(self, thread: int, uid: int) -> Process:
        """The process of a thread, as it was within the last second. For requests that read."""
        known, deadline = self._known.get(thread, (None, 0.0))
        if known is not None and deadline > time.monotonic():
            return known
        return self.read(thread, uid)

    def read(self, thread: int, uid: int) -> Process:
        """The process of a thread, as it is now: exec changes its name. For requests that write."""
        process = read_process(thread, uid)
        if len(self._known) >= _MAX_CACHED:
            self._known.clear()
        self._known[thread] = process, time.monotonic() + CACHED_S
        return process


def read_process(thread: int, uid: int) -> Process:
    """Without access to /proc every thread counts as a process."""
    if thread <= 0:
        return Process(uid=uid)
    try:
        pid = _thread_group(thread)
        program, fields = _stat(pid)
    except (OSError, ValueError, IndexError):  # it has ended, or /proc is mounted with hidepid
        return Process(thread, uid=uid)
    session_id, parent = int(fields[_SESSION]), int(fields[_PARENT])
    return Process(pid, int(fields[_STARTED]), program, uid, session_id, parent, tuple(_ancestors(parent, session_id)))


def _ancestors(pid: int, session_id: int) -> Iterator[int]:
    """A process and its own ancestors, as far as they are of the session."""
    for _ in range(_MAX_ANCESTORS):
        try:
            _, fields = _stat(pid)
        except (OSError, ValueError):
            return
        if int(fields[_SESSION]) != session_id:
            return
        yield pid
        pid = int(fields[_PARENT])


def is_running(process: Process) -> bool:
    """Whether the process still exists. False if that cannot be known."""
    try:
        return int(_stat(process.pid)[1][_STARTED]) == process.started
    except (OSError, ValueError, IndexError):
        return False


def _thread_group(thread: int) -> int:
    with open(f"/proc/{thread}/status", "rb", buffering=0) as file:
        _, _, rest = file.read(1024).partition(b"\nTgid:")
    return int(rest.split(None, 1)[0])


def _stat(pid: int) -> tuple[str, list[bytes]]:
    """Name and other fields. The name may contain spaces and parentheses."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        head, _, rest = file.read(1024).rpartition(b")")
    return head.partition(b"(")[2].decode(errors="replace"), rest.split()
