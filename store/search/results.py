"""Search results: runs a parsed query and turns matching rows into hits with snippets.

Ranking is bounded: for a frequent word only the newest CAP matches are ranked, and older ones follow newest
first. So the most frequent word costs about as much as a rare one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import orjson

from store import layout
from store.commit.core import Core
from store.documents import display_names, search_text
from store.errors import Busy, Corrupt, InvalidQuery
from store.index.schema import SHIFT
from store.layout import Location
from store.search.query import Query

CAP = 1_000  # ranked matches
_PAGE = 4 * CAP  # further matches read at a time when results are grouped by session

HitKind = Literal["message", "session", "state"]


class Hit(NamedTuple):
    """One match: a message, a session's title or summary (no message index), or a state document (no session)."""

    kind: HitKind
    location: Location | None
    path: str  # relative to the home: the session's directory, or the state document
    title: str
    message_index: int | None
    name: str  # display name in views: short and safe in a shell
    message_id: str | None
    role: str | None
    created_ns: int | None
    updated_ns: int  # of the session or document
    rank: float  # bm25: smaller is better
    snippet: str


class EmptyQuery(InvalidQuery):
    """A query without a word, phrase or filter."""


_Ranks = dict[int, float]  # text number → rank, newest first


class _FoundRow(NamedTuple):
    """A matching row of `texts`, joined with its session or document."""

    row: int
    root: str | None
    child: str | None
    path: str | None
    title: str
    name: str | None
    message_id: str | None
    role: str
    created_ns: int | None
    updated_ns: int
    rank: float

    @property
    def order(self) -> tuple[float, int, int, int]:
        """Best first, newest first among equals."""
        return self.rank, -self.updated_ns, -(self.created_ns or 0), -self.row

    @property
    def owner(self) -> int:
        """Equal for all texts of a session; unique for each document."""
        return self.row >> SHIFT if self.row >= 0 else self.row


def find(core: Core, query: Query, limit: int, *, by_session: bool = False, snippets: int | None = None) -> list[Hit]:
    """The best matches, newest first among equals; `by_session`: only the best of each session.

    `snippets`: how many hits get a snippet, which requires reading files; None means all.
    """
    if query.is_empty:
        raise EmptyQuery("the query contains nothing to search for; give a word, a phrase or a filter")
    search = SearchRun(core, query)
    found = search.sessions(limit) if by_session else search.matches(limit)
    texts = SnippetSource(core)
    shown = len(found) if snippets is None else snippets
    return [_hit(match, query, texts if place < shown else None) for place, match in enumerate(found)]


# -- rows ------------------------------------------------------------------------------------------

_JOINED = (
    f"LEFT JOIN sessions s ON t.row >= 0 AND s.key = t.row >> {SHIFT} "
    "LEFT JOIN state_documents d ON t.row < 0 AND d.key = -t.row"
)
_COLUMNS = (
    "t.row, s.root, s.child, d.path, coalesce(s.title, d.title), s.name, t.message_id, t.role, t.created_ns, "
    "coalesce(s.updated_ns, d.updated_ns)"
)


class SearchRun:
    """Runs one query against the tables."""

    def __init__(self, core: Core, query: Query) -> None:
        self._db = core.db.reader
        self._query = query

    def matches(self, limit: int) -> list[_FoundRow]:
        if not self._query.match:
            return list(self._unranked(limit))
        return self._described(_best(self._ranked(), limit))[: max(limit, 0)]

    def sessions(self, limit: int) -> list[_FoundRow]:
        """The best match of each session; after the ranked matches, the newest of each further session."""
        if not self._query.match:
            return _first_of_each(self._unranked(-1), limit)
        page, full = self._ranked(), CAP
        best = _first_of_each(self._described(page), limit)
        while len(page) == full and len(best) < limit:
            page, full = self._older(next(reversed(page))), _PAGE
            known = {match.owner for match in best}
            further = [match for match in self._described(page) if match.owner not in known]
            best += _first_of_each(further, limit - len(best))
        return best

    def _ranked(self) -> _Ranks:
        where, values = self._where()
        rows = self._db.execute(
            f"SELECT f.rowid, bm25(search) FROM {self._source()} WHERE {where} ORDER BY f.rowid DESC LIMIT {CAP}",
            values,
        )
        return dict(rows)

    def _older(self, number: int) -> _Ranks:
        where, values = self._where()
        rows = self._db.execute(
            f"SELECT f.rowid FROM {self._source()} WHERE {where} AND f.rowid < ? ORDER BY f.rowid DESC LIMIT {_PAGE}",
            (*values, number),
        )
        return {row[0]: 0.0 for row in rows}

    def _source(self) -> str:
        """FROM clause. FTS5 comes first, because it determines the order of the rows."""
        return "search f" + (f" CROSS JOIN texts t ON t.number = f.rowid {_JOINED}" if self._query.condition else "")

    def _where(self) -> tuple[str, list[Any]]:
        condition = f" AND {self._query.condition}" if self._query.condition else ""
        return f"f.search MATCH ?{condition}", [self._query.match, *self._query.values]

    def _described(self, ranks: _Ranks) -> list[_FoundRow]:
        """The rows of matches, best first, without texts removed since."""
        rows = self._db.execute(
            f"SELECT t.number, {_COLUMNS} FROM json_each(?) wanted CROSS JOIN texts t ON t.number = wanted.value "
            f"{_JOINED} WHERE coalesce(s.key, d.key) IS NOT NULL",
            (orjson.dumps(list(ranks)).decode(),),
        )
        found = [_FoundRow._make((*rest, ranks[number])) for number, *rest in rows]
        return sorted(found, key=lambda match: match.order)

    def _unranked(self, limit: int) -> Iterator[_FoundRow]:
        """Filters alone give no rank: the newest sessions, then the state documents."""
        inside = f"t.row BETWEEN s.key << {SHIFT} AND (s.key << {SHIFT}) + {(1 << SHIFT) - 1}"
        sources = (
            (
                f"sessions s CROSS JOIN texts t ON {inside} LEFT JOIN state_documents d ON 0",
                "s.updated_ns DESC, s.key, t.row",
            ),
            ("state_documents d CROSS JOIN texts t ON t.row = -d.key LEFT JOIN sessions s ON 0", "d.updated_ns DESC"),
        )
        left = limit
        for source, order in sources:
            sql = f"SELECT {_COLUMNS}, 0.0 FROM {source} WHERE {self._query.condition} ORDER BY {order} LIMIT ?"
            for row in self._db.execute(sql, (*self._query.values, left)):
                yield _FoundRow(*row)
                left -= 1 if limit >= 0 else 0


def _best(ranks: _Ranks, limit: int) -> _Ranks:
    """The `limit` best ranks, and all that tie with the last: which of those is newest is not known yet."""
    if len(ranks) <= limit or limit <= 0:
        return ranks if limit > 0 else {}
    last = sorted(ranks.values())[limit - 1]
    return {number: rank for number, rank in ranks.items() if rank <= last}


def _first_of_each(matches: Sequence[_FoundRow] | Iterator[_FoundRow], limit: int) -> list[_FoundRow]:
    first: dict[int, _FoundRow] = {}
    for match in matches:
        if len(first) >= limit and match.owner not in first:
            break
        first.setdefault(match.owner, match)
    return list(first.values())


# -- texts -----------------------------------------------------------------------------------------


def _hit(match: _FoundRow, query: Query, texts: SnippetSource | None) -> Hit:
    kind, location, path, index = _place(match)
    text = texts.shown(match, location, index, query) if texts is not None else ""
    return Hit(
        kind,
        location,
        path,
        match.title,
        index,
        match.name or display_names.label(path),
        match.message_id,
        match.role or None,
        match.created_ns,
        match.updated_ns,
        match.rank,
        search_text.snippet(text, query.words),
    )


def _place(match: _FoundRow) -> tuple[HitKind, Location | None, str, int | None]:
    if match.root is None:
        return "state", None, match.path or "", None
    location = Location(match.root, match.child or None)
    place = match.row & ((1 << SHIFT) - 1)
    return ("message", location, location.dir, place - 1) if place else ("session", location, location.dir, None)


class _ConversationText(msgspec.Struct):
    """The messages of session.json as raw JSON: only those shown are parsed."""

    messages: list[msgspec.Raw] = []


_conversation = msgspec.json.Decoder(_ConversationText)


class SnippetSource:
    """The texts for snippets; reads each file once per search."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._messages: dict[Location, list[msgspec.Raw]] = {}

    def shown(self, match: _FoundRow, location: Location | None, index: int | None, query: Query) -> str:
        """The text to cut a match's snippet from; the title if the message no longer exists."""
        if location is None:
            return f"{match.title}\n{self.document(match.path or '')}"
        if index is not None:
            return self.message(location, index) or match.title
        if search_text.occurs(match.title, query.words):
            return match.title
        return f"{match.title} {self.summary(location)}"

    def message(self, location: Location, index: int) -> str:
        if location not in self._messages:
            self._messages[location] = self._read_messages(location)
        messages = self._messages[location]
        try:
            return search_text.message_text(orjson.loads(memoryview(messages[index]))) if index < len(messages) else ""
        except (AttributeError, TypeError, orjson.JSONDecodeError):  # corrupted since it was indexed
            return ""

    def _read_messages(self, location: Location) -> list[msgspec.Raw]:
        """Without validating the rest of the document, which was done when it was indexed."""
        try:
            file = self._core.disk.read(location.path(layout.SESSION), self._core.limit_bytes)
            return _conversation.decode(file.data).messages if file is not None else []  # None: deleted since
        except (Corrupt, msgspec.DecodeError, UnicodeDecodeError):
            return []  # corrupted since it was indexed; the hit shows the title

    def summary(self, location: Location) -> str:
        from store.commit import session_reader

        try:
            snapshot = session_reader.read(self._core.disk, location, self._core.limit_bytes)
            loaded = session_reader.parse(snapshot) if snapshot.main is not None else None
        except (Busy, Corrupt):
            return ""
        summary = loaded.session.conversation_summary if loaded else None
        return summary.content if summary else ""

    def document(self, path: str) -> str:
        try:
            file = self._core.disk.read(path, self._core.limit_bytes)
        except Corrupt:
            return ""
        return file.data.decode(errors="replace") if file is not None else ""
