"""Cursors: which parts of a source were imported, and in which state their files were.

An unchanged part is not read again. Cursors are in index.db, so losing them costs one complete import and no data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from store import layout
from store.commit.core import Core
from store.layout import Location
from store.transfer.formats.coerce import source_host
from store.transfer.formats.importer import ImportProblem, SourceUnit
from store.transfer.formats.source import Source

_PREFIX = "import:"
_VERSION = 3  # of what the formats make of a source; a higher one reads everything again


@dataclass(frozen=True)
class ImportedUnit:
    """The result of importing one part of a source."""

    locations: list[Location]
    problems: list[ImportProblem]
    # Files whose new lines can be read alone, by the path shown, with their sessions.
    followed: dict[str, Location] = field(default_factory=dict)
    deleted: list[Location] = field(default_factory=list)  # sessions that were deleted here

    def add(self, location: Location, followed: str | None) -> None:
        self.locations.append(location)
        if followed is not None:
            self.followed[followed] = location


class UnitState(NamedTuple):
    """What tells whether a part of a source has changed: stamps of its files, and what else it depends on."""

    files: Mapping[str, tuple[int, ...]]  # size, time and inode by path
    other: str

    def changed_files(self, now: UnitState) -> list[str] | None:
        """The files that have changed since; None if anything else has, or a file was added or removed."""
        if self.other != now.other or self.files.keys() != now.files.keys():
            return None
        return [path for path, stamp in now.files.items() if stamp != self.files[path]]


class KnownUnit(NamedTuple):
    """A part of a source as it was imported."""

    state: UnitState
    result: ImportedUnit


@dataclass(frozen=True)
class ImportCursors:
    core: Core

    def find(self, source: Source, format: str, unit: SourceUnit) -> KnownUnit | None:
        """The last import of this part; None if there is none, or a session of it is gone or back again."""
        text = self.core.db.get_meta(_key(source, format, unit))
        try:
            known: Any = orjson.loads(text) if isinstance(text, str) else None
        except orjson.JSONDecodeError:
            return None
        if not known or known.get("version") != _VERSION:
            return None
        locations = [Location(root, child) for root, child in known["sessions"]]
        deleted = [Location(root, child) for root, child in known["deleted"]]
        if not all(map(self._has_receipt, locations)) or any(map(self._has_receipt, deleted)):
            return None
        state = UnitState({path: tuple(stamp) for path, stamp in known["files"].items()}, known["other"])
        followed = {path: Location(*location) for path, location in known["followed"].items()}
        problems = [ImportProblem(*problem) for problem in known["problems"]]
        return KnownUnit(state, ImportedUnit(locations, problems, followed, deleted))

    def _has_receipt(self, location: Location) -> bool:
        return self.core.disk.stat(location.path(layout.RECEIPT)) is not None

    def save(self, source: Source, format: str, unit: SourceUnit, state: UnitState, result: ImportedUnit) -> None:
        """Remember a part. `state` is from before it was read: what was written since then is read next time."""
        known = {
            "version": _VERSION,
            "files": dict(state.files),
            "other": state.other,
            "sessions": [tuple(location) for location in result.locations],
            "problems": [tuple(problem) for problem in result.problems],
            "followed": {path: tuple(location) for path, location in result.followed.items()},
            "deleted": [tuple(location) for location in result.deleted],
        }
        self.core.db.set_meta(**{_key(source, format, unit): orjson.dumps(known).decode()})


def state_of(source: Source, unit: SourceUnit, *, by_file: bool) -> UnitState:
    """The state of a part, with each file or only as a digest of all. Names that are not Unicode are as shown."""
    files = {source.display_path(path): source.stamp(path) for path in unit.files}
    if by_file:
        return UnitState(files, _digest([unit.state]))
    return UnitState({}, _digest([unit.state, *sorted(files.items())]))


def _key(source: Source, format: str, unit: SourceUnit) -> str:
    host = source_host.get()
    return f"{_PREFIX}{_digest([format, source.display_path(unit.key), *([host] if host else [])])}"


def _digest(parts: Iterable[Any]) -> str:
    return hashlib.sha256(repr(list(parts)).encode(errors="surrogatepass")).hexdigest()[:32]
