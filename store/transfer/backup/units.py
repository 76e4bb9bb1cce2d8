"""What of a home belongs together, and so is backed up and restored as one: the units of a home.

A unit is named by its directory: a session with all that lies in it but the sessions below it, a project, a category
of state documents; and "sessions", "projects" for the foreign files that lie loose there, "" for sessions.json.
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

_MAX_LEVELS = 64  # of directories in one unit: deeper ones are nobody's work


class FileSeen(NamedTuple):
    """A file of a unit as it was seen: a plain one, or a link."""

    stamp: Stamp
    mode: int
    is_link: bool = False


def unit_of(path: str) -> str:
    """The unit that a file belongs to. Pure."""
    part, _, _ = path.partition("/")
    if part == layout.SESSIONS:
        found = layout.locate_path(path)
        if found is None:
            return part
        location, rest = found
        if rest:
            return location.dir
        return part if location.child is None else Location(location.root).dir  # a file where a session could be
    if part == layout.PROJECTS:
        in_project = layout.locate_project(path)
        return layout.project_location(path.split("/")[1]).dir if in_project and path.count("/") > 1 else part
    return path.rpartition("/")[0]


def lock_of(unit: str) -> Location | None:
    """Whose lock keeps a unit as it is; None where nothing is written together."""
    if unit.startswith(f"{layout.SESSIONS}/"):
        return location_of(unit)
    if unit.startswith(f"{layout.PROJECTS}/"):
        return layout.project_location(unit.partition("/")[2])
    return None


def location_of(unit: str) -> Location | None:
    """The session that a unit is; None for another."""
    found = layout.locate_path(unit) if unit.startswith(f"{layout.SESSIONS}/") else None
    return found[0] if found else None


def iter_units(disk: Disk, closed: dict[str, str]) -> Iterator[str]:
    """Every unit there is, a root before what is below it; "" comes last. `closed` is told of directories that could
    not be looked into, and why: of what is in them nobody knows that it is gone."""
    for part in layout.STORED:
        yield from _units_at(disk, part, closed)
    yield ""


def _units_at(disk: Disk, directory: str, closed: dict[str, str]) -> Iterator[str]:
    yield directory
    inner = f"{directory}/{layout.CHILDREN}" if location_of(directory) else directory
    try:
        names = disk.directories(inner)
    except (OSError, Corrupt) as error:
        closed[inner] = str(error)
        return
    for name in names:
        below = f"{inner}/{name}"
        if unit_of(f"{below}/x") == below:
            yield from _units_at(disk, below, closed)


def files_of(disk: Disk, unit: str) -> tuple[dict[str, FileSeen], list[str]]:
    """The files of a unit, and what in it is neither file nor link. What cannot be looked into is an OSError."""
    if not unit:
        info = disk.stat(layout.INDEX_EXPORT)
        return ({layout.INDEX_EXPORT: _seen(info)} if info and stat.S_ISREG(info.st_mode) else {}), []
    found: dict[str, FileSeen] = {}
    others: list[str] = []
    waiting = [unit]
    while waiting:
        directory = waiting.pop()
        # Backwards, `new` before `cur`: a message that moves on meanwhile is seen twice, and never not at all.
        for name, info in sorted(disk.scan(directory), reverse=True):
            path = f"{directory}/{name}"
            if stat.S_ISDIR(info.st_mode):
                if unit_of(f"{path}/x") == unit and path.count("/") < _MAX_LEVELS:
                    waiting.append(path)
            elif layout.is_leftover(name) or name.startswith(".grovefs-probe-"):
                continue
            elif stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode):
                found[path] = _seen(info)
            else:
                others.append(path)
    return found, others


def _seen(info: os.stat_result) -> FileSeen:
    return FileSeen(Stamp.of(info), stat.S_IMODE(info.st_mode), stat.S_ISLNK(info.st_mode))
