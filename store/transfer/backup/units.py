"""Backup units: files saved and restored together.

A unit is named by its directory. It is a session without its children, a project, or a category of state documents.
The units "sessions" and "projects" hold foreign files directly in those directories, and "" holds sessions.json.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import NamedTuple

from store import layout
from store.disk.disk import Disk
from store.disk.file import Stamp
from store.errors import Corrupt
from store.layout import Location

_MAX_LEVELS = 64  # deeper directories are not scanned; no agent writes them


class FileSeen(NamedTuple):
    """State of a file or link when its unit was scanned."""

    stamp: Stamp
    mode: int
    is_link: bool = False


def unit_of(path: str) -> str:
    """The unit a path belongs to. Pure."""
    part, _, _ = path.partition("/")
    if part == layout.SESSIONS:
        found = layout.locate_path(path)
        if found is None:
            return part
        location, rest = found
        if rest:
            return location.dir
        return part if location.child is None else Location(location.root).dir  # a file in place of a session directory
    if part == layout.PROJECTS:
        in_project = layout.locate_project(path)
        return layout.project_location(path.split("/")[1]).dir if in_project and path.count("/") > 1 else part
    return path.rpartition("/")[0]


def lock_of(unit: str) -> Location | None:
    """The location whose lock protects a unit; None for units whose files are written independently."""
    if unit.startswith(f"{layout.SESSIONS}/"):
        return location_of(unit)
    if unit.startswith(f"{layout.PROJECTS}/"):
        return layout.project_location(unit.partition("/")[2])
    return None


def location_of(unit: str) -> Location | None:
    """The session a unit holds; None for other units."""
    found = layout.locate_path(unit) if unit.startswith(f"{layout.SESSIONS}/") else None
    return found[0] if found else None


def iter_units(disk: Disk, unreadable: dict[str, str]) -> Iterator[str]:
    """Yield every unit, a root before its children, "" last.

    Directories that cannot be read are added to `unreadable` with the reason: units in them may still exist.
    """
    for part in layout.STORED:
        yield from _units_at(disk, part, unreadable)
    yield ""


def _units_at(disk: Disk, directory: str, unreadable: dict[str, str]) -> Iterator[str]:
    yield directory
    inner = f"{directory}/{layout.CHILDREN}" if location_of(directory) else directory
    try:
        names = disk.directories(inner)
    except (OSError, Corrupt) as error:
        unreadable[inner] = str(error)
        return
    for name in names:
        below = f"{inner}/{name}"
        if unit_of(f"{below}/x") == below:
            yield from _units_at(disk, below, unreadable)


def scan_unit(disk: Disk, unit: str) -> tuple[dict[str, FileSeen], list[str]]:
    """The files and links of a unit, and the paths of anything else. An unreadable directory raises OSError."""
    if not unit:
        info = disk.stat(layout.INDEX_EXPORT)
        return ({layout.INDEX_EXPORT: _seen(info)} if info and stat.S_ISREG(info.st_mode) else {}), []
    found: dict[str, FileSeen] = {}
    others: list[str] = []
    pending = [unit]
    while pending:
        directory = pending.pop()
        # Reverse order, `new` before `cur`: a message that moves meanwhile is seen twice rather than missed.
        for name, info in sorted(disk.scan(directory), reverse=True):
            path = f"{directory}/{name}"
            if stat.S_ISDIR(info.st_mode):
                if unit_of(f"{path}/x") == unit and path.count("/") < _MAX_LEVELS:
                    pending.append(path)
            elif layout.is_leftover(name) or name.startswith(layout.PROBE):
                continue
            elif stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode):
                found[path] = _seen(info)
            else:
                others.append(path)
    return found, others


def _seen(info: os.stat_result) -> FileSeen:
    return FileSeen(Stamp.of(info), stat.S_IMODE(info.st_mode), stat.S_ISLNK(info.st_mode))
