"""Processes that use a mount, to name them when it cannot be unmounted.

/proc is read without touching the mount itself: links to working directories, roots, programs and
descriptors, and the list of mapped files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class MountUser(NamedTuple):
    pid: int
    program: str
    path: str  # what it uses

    def __str__(self) -> str:
        return f"{self.program} (pid {self.pid}: {self.path})"


def find_users(mountpoint: Path) -> list[MountUser]:
    """The processes that hold a directory or file of the mount. Those of other users may be invisible."""
    prefix = os.fsencode(mountpoint)
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        path = next((used for used in _used_paths(pid) if used == prefix or used.startswith(prefix + b"/")), None)
        if path is not None and pid != os.getpid():
            found.append(MountUser(pid, _program(pid), os.fsdecode(path)))
    return found


def _used_paths(pid: int) -> Iterator[bytes]:
    folder = b"/proc/%d" % pid
    links = [folder + b"/cwd", folder + b"/root", folder + b"/exe"]
    try:
        links += [folder + b"/fd/" + name for name in os.listdir(folder + b"/fd")]
        with open(folder + b"/maps", "rb") as maps:
            yield from (line.split(None, 5)[5].rstrip(b"\n") for line in maps if line.count(b"/") and b" /" in line)
    except OSError:  # it has ended, or belongs to another user
        pass
    for link in links:
        try:
            yield os.readlink(link)
        except OSError:
            continue


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "a process"
