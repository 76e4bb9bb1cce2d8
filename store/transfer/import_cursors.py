"""Cursors: which parts of a source were imported, and in which state their files were.

An unchanged part is not read again. Cursors are in index.db, so losing them costs one complete import and no data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from store import layout
from store.commit.core import Core
from store.layout import Location
from store.transfer.formats.importer import ImportProblem, SourceUnit
from store.transfer.formats.source import Source

_PREFIX = "import:"
_VERSION = 1  # of what the formats make of a source; a higher one reads everything again


@dataclass(frozen=True)
class ImportedUnit:
    """The result of importing one part of a source."""

    locations: list[Location]
    problems: list[ImportProblem]


@dataclass(frozen=True)
class ImportCursors:
    core: Core

    def find(self, source: Source, format: str, unit: SourceUnit) -> ImportedUnit | None:
        """The earlier result of this part; None if it has changed since, or a session of it is gone."""
        text = self.core.db.get_meta(_key(source, format, unit))
        try:
            known: Any = orjson.loads(text) if isinstance(text, str) else None
        except orjson.JSONDecodeError:
            return None
        if not known or known["stamp"] != stamp_of(source, unit):
            return None
        locations = [Location(root, child) for root, child in known["sessions"]]
        if any(self.core.disk.stat(location.path(layout.RECEIPT)) is None for location in locations):
            return None
        return ImportedUnit(locations, [ImportProblem(*problem) for problem in known["problems"]])

    def save(self, source: Source, format: str, unit: SourceUnit, stamp: str, result: ImportedUnit) -> None:
        """Remember a part. `stamp` is from before it was read: what was written since then is read next time."""
        known = {
            "stamp": stamp,
            "sessions": [tuple(location) for location in result.locations],
            "problems": [tuple(problem) for problem in result.problems],
        }
        self.core.db.set_meta(**{_key(source, format, unit): orjson.dumps(known).decode()})


def stamp_of(source: Source, unit: SourceUnit) -> str:
    """A digest of the names, sizes and times of all files of a part."""
    return _digest([_VERSION, unit.state, *((path, *source.stamp(path)) for path in sorted(unit.files))])


def _key(source: Source, format: str, unit: SourceUnit) -> str:
    return f"{_PREFIX}{_digest([format, source.display_path(unit.key)])}"


def _digest(parts: Iterable[Any]) -> str:
    return hashlib.sha256(repr(list(parts)).encode(errors="surrogatepass")).hexdigest()[:32]
