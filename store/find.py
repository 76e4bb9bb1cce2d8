"""Search results: from the rows that match to sessions, messages and snippets a person can use."""

from __future__ import annotations

from typing import Any, NamedTuple

from store import layout, search
from store.core import Core
from store.documents import parse_document
from store.errors import InvalidContent, StoreError
from store.layout import Location
from store.search import SHIFT, Query


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
    clauses, values = search.filters_sql(query)
    for unwanted in query.excluded:
        clauses.append("t.row NOT IN (SELECT rowid FROM search WHERE search MATCH ?)")
        values.append(unwanted)
    if query.match:
        source = "search f JOIN texts t ON t.row = f.rowid"
        clauses.insert(0, "f.search MATCH ?")
        values.insert(0, query.match)
        rank = "f.rank"
    elif clauses:
        source, rank = "texts t", "0.0"
    else:
        raise EmptyQuery("the query holds nothing to look for; give a word, a phrase or a filter")
    rows = core.db.reader.execute(
        f"SELECT s.root, s.child, s.title, t.row, t.message_id, t.role, t.created_ns, {rank} AS score "
        f"FROM {source} JOIN sessions s ON s.key = t.row >> {SHIFT} WHERE {' AND '.join(clauses)} "
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
    text = texts.of(location, index) or title
    return Hit(location, title, index, message_id, role or None, created_ns, score, search.snippet(text, query.words))


class _Texts:
    """The text of messages, each file read once per search."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._documents: dict[Location, dict[str, Any]] = {}

    def of(self, location: Location, index: int | None) -> str:
        if location not in self._documents:
            self._documents[location] = self._read(location)
        data = self._documents[location]
        if index is None:
            summary = (data.get("conversation_summary") or {}).get("content", "")
            return f"{data.get('title', '')} {summary}".strip()
        messages = data.get("messages", [])
        return search.message_text(messages[index]) if index < len(messages) else ""

    def _read(self, location: Location) -> dict[str, Any]:
        file = self._core.disk.read(location.path(layout.SESSION), self._core.limit_bytes)
        if file is None:  # deleted since the rows were read
            return {}
        try:
            return parse_document(file.data, location.path(layout.SESSION)).data
        except InvalidContent:
            return {}  # spoiled since the rows were read; the hit stays, without its text
