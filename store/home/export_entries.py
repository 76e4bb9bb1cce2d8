"""Entries of sessions.json: one per session id, as Bamboo expects.

Bamboo finds a session by its id, through sessions.json alone. So an entry stays as long as its
session.json exists, also if the session cannot be read here. If several sessions have the same
id, a root comes first, then the session that sessions.json names already, then the oldest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from store import layout
from store.commit.core import Core
from store.documents import json_text
from store.errors import Corrupt, InvalidContent, Problem
from store.layout import Location

_HAS_SPECIAL_CASES = """
    SELECT EXISTS (SELECT 1 FROM damaged) OR EXISTS (SELECT 1 FROM sessions GROUP BY id HAVING count(*) > 1)
"""
_ROWS = "SELECT id, root, child, entry, extra FROM sessions ORDER BY id, child != '', created_ns, key"

Entry = dict[str, Any]


class _Row(NamedTuple):
    id: str
    root: str
    child: str
    entry: str
    extra: str | None

    @property
    def location(self) -> Location:
        return Location(self.root, self.child or None)

    def render(self) -> bytes:
        if not self.extra:
            return self.entry.encode()
        return json_text.render({**orjson.loads(self.entry), **orjson.loads(self.extra)})


@dataclass(frozen=True)
class ExportEntries:
    core: Core

    def rendered(self, shows: Callable[[str], bool] | None = None) -> Iterator[bytes]:
        """Yield each entry in order of the ids, indented; `shows` selects sessions by directory."""
        previous = self._previous()
        kept = self._kept(previous)
        own = self._own(previous, kept, shows)
        if shows is not None:
            kept = {k: v for k, v in kept.items() if shows(v["rel_path"])}
        for session_id, text in heapq.merge(own, sorted(_rendered(kept)), key=itemgetter(0)):
            yield b"    " + json_text.render_compact(session_id) + b": " + text.replace(b"\n", b"\n    ")

    def unreachable(self) -> Iterator[tuple[Location, Location]]:
        """Every session that Bamboo cannot find, with the session that has the entry of its id.

        None in a home that Bamboo does not use.
        """
        if not _is_bamboo_home(self.core):
            return
        previous = self._previous()
        for _, rows in groupby(self._rows(), key=itemgetter(0)):
            same_id = list(rows)
            chosen = _choose(same_id, previous)
            yield from ((row.location, chosen.location) for row in same_id if row is not chosen)

    def note_unknown(self, entries: Mapping[str, Entry]) -> None:
        """Remember that another program's sessions.json has sessions that are not in the index."""
        known = {session_id for (session_id,) in self.core.db.reader.execute("SELECT id FROM sessions")}
        self.core.db.set_meta(export_has_unknown=int(not known.issuperset(entries)))

    def _own(
        self, previous: Mapping[str, Entry], kept: Mapping[str, Entry], shows: Callable[[str], bool] | None
    ) -> Iterator[tuple[str, bytes]]:
        for session_id, rows in groupby(self._rows(), key=itemgetter(0)):
            if session_id in kept:
                continue
            row = _choose(list(rows), previous)
            if shows is None or shows(row.location.dir):
                yield session_id, row.render()

    def _rows(self) -> Iterator[_Row]:
        return map(_Row._make, self.core.db.reader.execute(_ROWS))

    def _previous(self) -> dict[str, Entry]:
        """The entries of the present file. It is read only if one of them may be needed."""
        needed = self.core.db.get_meta("export_has_unknown", 0) or self.core.db.reader.execute(_HAS_SPECIAL_CASES).get
        if not needed:
            return {}
        try:
            file = self.core.disk.read(layout.INDEX_EXPORT)
            return {k: v for k, v in _sessions_of(file.data).items() if isinstance(v, dict)} if file else {}
        except (Corrupt, InvalidContent):
            return {}  # reported and moved to the trash where a foreign file is taken over

    def _kept(self, previous: Mapping[str, Entry]) -> dict[str, Entry]:
        """Previous entries of sessions that exist but are not in the index, unless a root has their id."""
        return {k: v for k, v in previous.items() if not self._has_root(k) and self._is_unindexed(v.get("rel_path"))}

    def _has_root(self, session_id: str) -> bool:
        return layout.is_session_id(session_id) and self.core.index.find(Location(session_id)) is not None

    def _is_unindexed(self, rel_path: object) -> bool:
        if not isinstance(rel_path, str) or not layout.is_text(rel_path):
            return False
        parts = rel_path.split("/")
        if parts[0] != layout.SESSIONS or len(parts) not in (2, 4) or not all(map(layout.is_session_id, parts)):
            return False
        location, rest = layout.locate_path(rel_path) or (None, "")
        if location is not None and not rest and self.core.index.find(location) is not None:
            return False
        try:
            return self.core.disk.stat(f"{rel_path}/{layout.SESSION}") is not None
        except PermissionError:
            return True  # it is there, but this user cannot read it


def parse_export(raw: bytes) -> dict[str, Any]:
    """Parse an index written by any version of Bamboo."""
    found = json_text.parse(raw, layout.INDEX_EXPORT)
    if not isinstance(found.get("sessions"), dict):
        raise InvalidContent(layout.INDEX_EXPORT, Problem("sessions: expected an object"))
    return found


def _is_bamboo_home(core: Core) -> bool:
    return any(core.disk.stat(name) is not None for name in layout.BAMBOO_HOME_FILES)


def _sessions_of(raw: bytes) -> dict[str, Any]:
    sessions: dict[str, Any] = parse_export(raw)["sessions"]
    return sessions


def _rendered(entries: Mapping[str, Entry]) -> Iterator[tuple[str, bytes]]:
    return ((session_id, json_text.render(entry)) for session_id, entry in entries.items())


def _choose(rows: list[_Row], previous: Mapping[str, Entry]) -> _Row:
    """The session that gets the entry. The rows are ordered: a root first, then by age."""
    first = rows[0]
    if len(rows) == 1 or not first.child:
        return first
    path = previous.get(first.id, {}).get("rel_path")
    return next((row for row in rows if row.location.dir == path), first)
