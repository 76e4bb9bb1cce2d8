"""The units of a home as its files are: which files each has, and their SHA-256."""

from __future__ import annotations

from collections.abc import Iterator

from store import layout
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.reindex import iter_on_disk
from store.disk.disk import Disk
from store.grove.row_plan import file_digest
from store.grove.units import unit_of
from store.layout import Location
from store.workspace.state import State


def unit_files(disk: Disk, unit: str) -> list[str]:
    """The files of a unit that exist, relative to the home, session.json last."""
    found = [path for path in _iter_files(disk, unit, depth=2) if unit_of(path) == unit]
    return sorted(found, key=lambda path: (path.endswith(f"/{layout.SESSION}"), path))


def unit_digests(disk: Disk, unit: str) -> dict[str, str]:
    """The SHA-256 of every file of a unit, in hex, by path below the unit."""
    return {path[len(unit) + 1 :]: file_digest(disk, path) for path in unit_files(disk, unit)}


def iter_units(core: Core) -> Iterator[str]:
    """Every unit that has files: roots before their children, sessions before their mailboxes."""
    for location in iter_on_disk(core.disk):
        if core.disk.stat(location.path(layout.SESSION)) is not None:
            yield location.dir
            mailbox = location.path(layout.MAILBOX)
            if unit_files(core.disk, mailbox):
                yield mailbox
    state = State(core, Commits(core))
    yield from (layout.state_location(category).dir for category in state.categories())


def is_session_unit(unit: str) -> bool:
    found = layout.locate_path(unit)
    return found is not None and found[1] == ""


def location_of_session(unit: str) -> Location:
    """The session of a unit: of a mailbox, its owner."""
    found = layout.locate_path(unit)
    assert found is not None
    return found[0]


def _iter_files(disk: Disk, directory: str, depth: int) -> Iterator[str]:
    for entry in disk.entries(directory):
        path = f"{directory}/{entry.name}"
        if entry.is_file:
            yield path
        elif entry.is_dir and depth > 1 and entry.name in (layout.ATTACHMENTS, *layout.MAIL_DIRS):
            yield from _iter_files(disk, path, depth - 1)
