"""Search results: from the rows that match to sessions, messages and snippets a person can use."""

from __future__ import annotations

from typing import Any, NamedTuple

from store import search, sessions
from store.core import Core
from store.errors import Corrupt, StoreError
from store.layout import Location
from store.schema import SHIFT
from store.search import Query
from store.sessions import Loaded


class Hit(NamedTuple):
    """One match: a message, or (with no index) a session's title or summary."""

    location: Location
    title: str
    message_index: int | None
    message_id: str | None
    role: str | None
    created_ns: int | None
    rank: float  # bm25: the smaller the better
    snippet: str


class EmptyQuery(StoreError):
    """A query in which there is nothing to look for."""


def find(core: Core, query: Query, limit: int) -> list[Hit]:
    """The best matches, newest first among equals."""
    if query.is_empty:
        raise EmptyQuery("the query holds nothing to look for; give a word, a phrase or a filter")
    source, rank, where, values = "texts t", "0.0", [], query.values
    if query.match:
        source, rank, where = "search f JOIN texts t ON t.row = f.rowid", "f.rank", ["f.search MATCH ?"]
        values = [query.match, *values]
    if query.condition:
        where.append(query.condition)
    rows = core.db.reader.execute(
        f"SELECT s.root, s.child, s.title, t.row, t.message_id, t.role, t.created_ns, {rank} AS score "
        f"FROM {source} JOIN sessions s ON s.key = t.row >> {SHIFT} WHERE {' AND '.join(where)} "
        f"ORDER BY score, s.updated_ns DESC LIMIT ?",
        (*values, limit),
    ).fetchall()
    texts = _Texts(core)
    return [_hit(row, query, texts) for row in rows]


def _hit(row: tuple[Any, ...], query: Query, texts: _Texts) -> Hit:
    root, child, title, number, message_id, role, created_ns, score = row
    location = Location(root, child or None)
    place = number & ((1 << SHIFT) - 1)
    index = place - 1 if place else None
    text = texts.of(location, index) if index is not None else f"{title} {texts.summary(location)}"
    shown = search.snippet(text or title, query.words)
    return Hit(location, title, index, message_id, role or None, created_ns, score, shown)


class _Texts:
    """The text of messages, each file read once per search."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._loaded: dict[Location, Loaded | None] = {}

    def of(self, location: Location, index: int) -> str:
        loaded = self._load(location)
        messages = loaded.main.data["messages"] if loaded else []
        return search.message_text(messages[index]) if index < len(messages) else ""

    def summary(self, location: Location) -> str:
        loaded = self._load(location)
        summary = loaded.session.conversation_summary if loaded else None
        return summary.content if summary else ""

    def _load(self, location: Location) -> Loaded | None:
        if location not in self._loaded:
            self._loaded[location] = self._read(location)
        return self._loaded[location]

    def _read(self, location: Location) -> Loaded | None:
        try:
            snapshot = sessions.read(self._core.disk, location, self._core.limit_bytes)
            return sessions.parse(snapshot) if snapshot.main is not None else None  # deleted since
        except Corrupt:
            return None  # spoiled since the rows were read; the hit stays, without its text
