"""Callers: the process that makes a request, read from /proc.

FUSE reports the id of a thread in the daemon's pid namespace, 0 for a process of another one. Only
`stat` and `status` are read. They never wait, unlike `cmdline`, which needs the memory of the
process, and they show nothing secret.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

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
        known, deadline = self._known.get(thread, (None, 0.0))
        if known is not None and deadline > time.monotonic() and known.uid == uid:
            renewed = _renewed(known)
            if renewed is not None:
                self._known[thread] = renewed, deadline
                return renewed
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


def _renewed(known: Process) -> Process | None:
    """A process that was read within the last second, as it is now; None if more than its name has changed."""
    try:
        program, fields = _stat(known.pid)
    except (OSError, ValueError):  # it has ended
        return None
    if (known.parent, known.session_id, known.started) != tuple(int(fields[n]) for n in (_PARENT, _SESSION, _STARTED)):
        return None
    return known if program == known.program else replace(known, program=program)


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
    _, _, rest = _read(f"/proc/{thread}/status").partition(b"\nTgid:")
    return int(rest.split(None, 1)[0])


def _stat(pid: int) -> tuple[str, list[bytes]]:
    """Name and other fields. The name may contain spaces and parentheses."""
    head, _, rest = _read(f"/proc/{pid}/stat").rpartition(b")")
    return head.partition(b"(")[2].decode(errors="replace"), rest.split()


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1024)
    finally:
        os.close(fd)
