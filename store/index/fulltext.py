"""The rows that full-text search answers from: one a message, one a session (title, summary), one a state document.

They are written in the transaction of the commit that changed what they stand for, and only those of what
changed. The index keeps no text: snippets are cut from the files. A text has a place (`texts.row`) and, in
FTS5, a number: a message that only moved keeps its number, and the highest numbers are the newest texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import apsw
import orjson

from store.documents import search_text
from store.index import transcript_sizes
from store.index.schema import SHIFT
from store.model.timestamp import clip_ns, ns_of

# -- sessions --------------------------------------------------------------------------------------


class SearchContent(NamedTuple):
    """What search shall know of a session: its key, its title and summary, its messages."""

    key: int
    title: str
    summary: str
    messages: Sequence[dict[str, Any]]


def put_session(db: apsw.Connection, key: int, title: str, summary: str) -> None:
    _put_rows(db, _Rows(key << SHIFT, key << SHIFT, [_session_text(title, summary)]))


def put_all(db: apsw.Connection, found: Iterable[SearchContent]) -> None:
    """Bring the rows in step with sessions and their messages; those of what did not change are left alone."""
    _put_rows(db, *(_Rows(c.key << SHIFT, last_row(c.key), texts_of(c.title, c.summary, c.messages)) for c in found))


def add_messages(db: apsw.Connection, key: int, index: int, messages: Sequence[dict[str, Any]]) -> None:
    """Rows for messages appended at `index`; the cost does not depend on those before."""
    first = (key << SHIFT) + 1 + index
    _put_rows(db, _Rows(first, last_row(key), [_text_of(message) for message in messages]))


def remove_session(db: apsw.Connection, key: int) -> None:
    _put_rows(db, _Rows(key << SHIFT, last_row(key), []))


def last_row(key: int) -> int:
    return ((key + 1) << SHIFT) - 1


# -- state documents -------------------------------------------------------------------------------


def put_document(db: apsw.Connection, path: str, title: str, text: str, updated_ns: int) -> None:
    """Search finds the state document at `path`, by its title and its text. Same text: only the time is noted."""
    key = db.execute(
        "INSERT INTO state_documents (path, title, updated_ns) VALUES (?, ?, ?) ON CONFLICT (path) "
        "DO UPDATE SET title = excluded.title, updated_ns = excluded.updated_ns RETURNING key",
        (path, title, clip_ns(updated_ns)),
    ).get
    _put_rows(db, _Rows(-key, -key, [_session_text(title, text)]))


def remove_document(db: apsw.Connection, path: str) -> None:
    """Search knows nothing of this document any more, if it ever did."""
    found = db.execute("DELETE FROM state_documents WHERE path = ? RETURNING key", (path,)).fetchone()
    if found is not None:
        _put_rows(db, _Rows(-found[0], -found[0], []))


def documents(db: apsw.Connection) -> list[str]:
    """The paths of all state documents that search knows."""
    return [path for (path,) in db.execute("SELECT path FROM state_documents ORDER BY path")]


def document_matches(db: apsw.Connection, path: str, title: str, text: str) -> bool:
    """Whether search has this document, and as it is."""
    found = db.execute(
        "SELECT t.digest FROM state_documents d JOIN texts t ON t.row = -d.key "
        "JOIN search_docsize f ON f.id = t.number WHERE d.path = ? AND d.title = ?",
        (path, title),
    ).fetchone()
    return found is not None and found[0] == _session_text(title, text).digest


# -- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SearchRow:
    """What a row stands for. All but the digest is worked out only if the row has to be written."""

    digest: int
    source: dict[str, Any] | None  # a message
    title: str = ""  # of a session or document, where there is no message
    summary: str = ""

    def columns(self) -> tuple[str, str | None, int | None, int]:
        """Those of `texts`, but for row and number."""
        if self.source is None:
            return "", None, None, self.digest
        created_at = self.source.get("created_at")
        created_ns = clip_ns(ns_of(created_at)) if isinstance(created_at, str) else None
        return self.source["role"], self.source.get("id"), created_ns, self.digest

    def indexed(self) -> str:
        return search_text.prepare_text(
            f"{self.title}\n{self.summary}" if self.source is None else search_text.message_text(self.source)
        )

    @property
    def transcript_source(self) -> str | dict[str, Any]:
        """What a transcript has of it."""
        return self.summary if self.source is None else self.source


class _Rows(NamedTuple):
    """The rows from `first` to `last` shall be those of `wanted`, one after the other."""

    first: int
    last: int
    wanted: Sequence[SearchRow]


class _TextChange:
    """What has to be done for that."""

    def __init__(self, rows: _Rows, present: dict[int, tuple[int, int]]) -> None:
        """`present` are the rows that are there, with digest and number."""
        first, self.last, wanted = rows
        self.first = first
        self.changed = [(row, text) for row, text in enumerate(wanted, first) if _is_other(present.get(row), text)]
        self.gone = [row for row in present if row >= first + len(wanted)]
        self.stale = [row for row, _ in self.changed if row in present] + self.gone
        free: dict[int, list[int]] = {}  # by digest, the numbers of texts that are no longer where they were
        for row in self.stale:
            digest, number = present[row]
            free.setdefault(digest, []).append(number)
        self.moved = [(row, text, free[text.digest].pop()) for row, text in self.changed if free.get(text.digest)]
        elsewhere = {row for row, _, _ in self.moved}
        self.new = [(row, text) for row, text in self.changed if row not in elsewhere]
        self.unused = [number for numbers in free.values() for number in numbers]


def _is_other(present: tuple[int, int] | None, text: SearchRow) -> bool:
    return present is None or present[0] != text.digest


def _put_rows(db: apsw.Connection, *rows: _Rows) -> None:
    """Full-text rows last: whatever else is written makes FTS5 write out what it has gathered."""
    changes = [_TextChange(each, _present(db, each.first, each.last)) for each in rows]
    _execute_many(db, "DELETE FROM texts WHERE row = ?", [(row,) for c in changes for row in c.stale])
    _execute_many(db, _INSERT, [(row, number, *text.columns()) for c in changes for row, text, number in c.moved])
    new = [found for change in changes for found in change.new]
    number = 1 + max(row[0] or 0 for row in db.execute(_HIGHEST)) if new else 0
    _execute_many(db, _INSERT, [(row, n, *text.columns()) for n, (row, text) in enumerate(new, number)])
    transcript_sizes.put(db, [_pieces_of(c) for c in changes if c.first >= 0 and (c.gone or c.changed)])
    _execute_many(db, "DELETE FROM search WHERE rowid = ?", [(n,) for c in changes for n in c.unused])
    added = [(n, text.indexed()) for n, (_, text) in enumerate(new, number)]
    _execute_many(db, "INSERT INTO search (rowid, text) VALUES (?, ?)", added)


def _present(db: apsw.Connection, first: int, last: int) -> dict[int, tuple[int, int]]:
    rows = db.execute("SELECT row, digest, number FROM texts WHERE row BETWEEN ? AND ?", (first, last))
    return {row: (digest, number) for row, digest, number in rows}


def _pieces_of(change: _TextChange) -> transcript_sizes.RowChange:
    told = [(row, text.transcript_source) for row, text in change.changed]
    return transcript_sizes.RowChange(change.first, change.last, [(row,) for row in change.stale], told)


def _execute_many(db: apsw.Connection, statement: str, values: list[tuple[Any, ...]]) -> None:
    if values:
        db.executemany(statement, values)


# Both, each at the end of an index: a full-text row that nobody owns must not stand in the way.
_HIGHEST = "SELECT max(number) FROM texts UNION ALL SELECT max(id) FROM search_docsize"
_INSERT = "INSERT INTO texts (row, number, role, message_id, created_ns, digest) VALUES (?, ?, ?, ?, ?, ?)"


def _session_text(title: str, summary: str) -> SearchRow:
    return SearchRow(session_digest(title, summary), None, title, summary)


def session_digest(title: str, summary: str) -> int:
    """What `texts` has for the row of a session itself."""
    return _digest([title, summary])


def _text_of(message: dict[str, Any]) -> SearchRow:
    return SearchRow(_digest(message), message)


def _digest(value: Any) -> int:
    return int.from_bytes(blake2b(orjson.dumps(value), digest_size=8).digest(), signed=True)


# -- trusting nothing ------------------------------------------------------------------------------


def texts_of(title: str, summary: str, messages: Sequence[dict[str, Any]]) -> list[SearchRow]:
    """What the rows of a session stand for, in order."""
    return [_session_text(title, summary), *map(_text_of, messages)]


def rows_match(db: apsw.Connection, key: int, wanted: Sequence[SearchRow]) -> bool:
    """Whether a session has the rows that its files would make, each with a number that is in the full-text index."""
    between = (key << SHIFT, last_row(key))
    rows = "SELECT row, role, message_id, created_ns, digest FROM texts WHERE row BETWEEN ? AND ? ORDER BY row"
    present = db.execute(rows, between).fetchall()
    if present != [(row, *text.columns()) for row, text in enumerate(wanted, key << SHIFT)]:
        return False
    joined = "SELECT count(*) FROM texts t JOIN search_docsize f ON f.id = t.number WHERE t.row BETWEEN ? AND ?"
    is_whole: bool = db.execute(joined, between).get == len(wanted)
    return is_whole and transcript_sizes.sizes_match(db, key, [text.transcript_source for text in wanted])


def purge_session(db: apsw.Connection, key: int) -> None:
    """As `remove_session`, but also what no longer has a full-text row."""
    between = (key << SHIFT, last_row(key))
    db.execute("DELETE FROM search WHERE rowid IN (SELECT number FROM texts WHERE row BETWEEN ? AND ?)", between)
    db.execute("DELETE FROM texts WHERE row BETWEEN ? AND ?", between)
    transcript_sizes.purge(db, key)


def count_strays(db: apsw.Connection) -> int:
    """How many rows belong to no session or document that is known."""
    tables = f"SELECT count(*) FROM ({_STRAY_KEYS}) UNION ALL SELECT count(*) FROM ({_STRAY_NUMBERS})"
    return sum(count for (count,) in db.execute(tables))


def purge_strays(db: apsw.Connection) -> None:
    keys: list[int] = [key for (key,) in db.execute(_STRAY_KEYS)]
    for key in keys:
        purge_session(db, key)
    db.execute(f"DELETE FROM search WHERE rowid IN ({_STRAY_NUMBERS})")
    db.execute(f"DELETE FROM texts WHERE row < 0 AND number IN ({_STRAY_NUMBERS})")


# Of sessions; and of documents, and of nothing at all.
_STRAY_KEYS = (
    f"SELECT row >> {SHIFT} FROM texts WHERE row >= 0 UNION SELECT row >> {SHIFT} FROM pieces "
    f"UNION SELECT row >> {SHIFT} FROM links EXCEPT SELECT key FROM sessions"
)
_STRAY_NUMBERS = (
    "SELECT number FROM texts WHERE row < 0 AND -row NOT IN (SELECT key FROM state_documents) "
    "UNION SELECT id FROM search_docsize WHERE id NOT IN (SELECT number FROM texts)"
)
