"""Full-text rows: one per message, one per session (title and summary), one per state document.

A commit writes the rows of changed texts in its own transaction. The index stores no text: snippets
are read from the files. A text has a position (`texts.row`) and a rowid in FTS5 (`texts.number`). A
message that only moved keeps its number; newer texts have higher numbers.
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
    """The searchable content of a session."""

    key: int
    title: str
    summary: str
    messages: Sequence[dict[str, Any]]


def put_session(db: apsw.Connection, key: int, title: str, summary: str) -> None:
    _put_rows(db, _Rows(key << SHIFT, key << SHIFT, [_session_text(title, summary)]))


def put_all(db: apsw.Connection, found: Iterable[SearchContent]) -> None:
    """Update the rows of sessions and their messages; unchanged rows are not touched."""
    _put_rows(db, *(_Rows(c.key << SHIFT, last_row(c.key), texts_of(c.title, c.summary, c.messages)) for c in found))


def add_messages(db: apsw.Connection, key: int, index: int, messages: Sequence[dict[str, Any]]) -> None:
    """Add rows for messages appended at `index`; the cost does not depend on earlier messages."""
    first = (key << SHIFT) + 1 + index
    _put_rows(db, _Rows(first, last_row(key), [_text_of(message) for message in messages]))


def remove_session(db: apsw.Connection, key: int) -> None:
    _put_rows(db, _Rows(key << SHIFT, last_row(key), []))


def last_row(key: int) -> int:
    return ((key + 1) << SHIFT) - 1


# -- state documents -------------------------------------------------------------------------------


def put_document(db: apsw.Connection, path: str, title: str, text: str, updated_ns: int) -> None:
    """Index the title and text of a state document.

    If both are unchanged, only its time is updated.
    """
    key = db.execute(
        "INSERT INTO state_documents (path, title, updated_ns) VALUES (?, ?, ?) ON CONFLICT (path) "
        "DO UPDATE SET title = excluded.title, updated_ns = excluded.updated_ns RETURNING key",
        (path, title, clip_ns(updated_ns)),
    ).get
    _put_rows(db, _Rows(-key, -key, [_session_text(title, text)]))


def remove_document(db: apsw.Connection, path: str) -> None:
    """Remove a state document from the index, if it is there."""
    found = db.execute("DELETE FROM state_documents WHERE path = ? RETURNING key", (path,)).fetchone()
    if found is not None:
        _put_rows(db, _Rows(-found[0], -found[0], []))


def documents(db: apsw.Connection) -> list[str]:
    """The paths of all indexed state documents."""
    return [path for (path,) in db.execute("SELECT path FROM state_documents ORDER BY path")]


def document_matches(db: apsw.Connection, path: str, title: str, text: str) -> bool:
    """Whether the document is indexed with this title and text."""
    found = db.execute(
        "SELECT t.digest FROM state_documents d JOIN texts t ON t.row = -d.key "
        "JOIN search_docsize f ON f.id = t.number WHERE d.path = ? AND d.title = ?",
        (path, title),
    ).fetchone()
    return found is not None and found[0] == _session_text(title, text).digest


# -- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SearchRow:
    """The text of one row. Everything but the digest is computed only if the row is written."""

    digest: int
    source: dict[str, Any] | None  # a message, or None
    title: str = ""  # of a session or document, if not a message
    summary: str = ""

    def columns(self) -> tuple[str, str | None, int | None, int]:
        """The columns of `texts` without row and number."""
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
        """The part of it that a transcript shows."""
        return self.summary if self.source is None else self.source


class _Rows(NamedTuple):
    """The wanted content of the rows from `first` to `last`, in order."""

    first: int
    last: int
    wanted: Sequence[SearchRow]


class _TextChange:
    """The difference between the wanted and the present rows."""

    def __init__(self, rows: _Rows, present: dict[int, tuple[int, int]]) -> None:
        """`present` maps a row to its digest and number."""
        first, self.last, wanted = rows
        self.first = first
        self.changed = [(row, text) for row, text in enumerate(wanted, first) if _is_other(present.get(row), text)]
        self.gone = [row for row in present if row >= first + len(wanted)]
        self.stale = [row for row, _ in self.changed if row in present] + self.gone
        free: dict[int, list[int]] = {}  # digest → numbers of texts that are no longer at their row
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
    """Write the differences. FTS5 rows come last: any other write makes FTS5 flush its buffer."""
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
    sources = [(row, text.transcript_source) for row, text in change.changed]
    return transcript_sizes.RowChange(change.first, change.last, [(row,) for row in change.stale], sources)


def _execute_many(db: apsw.Connection, statement: str, values: list[tuple[Any, ...]]) -> None:
    if values:
        db.executemany(statement, values)


# The maximum of both tables: the number of an orphaned full-text row must not be reused. Both use
# an index.
_HIGHEST = "SELECT max(number) FROM texts UNION ALL SELECT max(id) FROM search_docsize"
_INSERT = "INSERT INTO texts (row, number, role, message_id, created_ns, digest) VALUES (?, ?, ?, ?, ?, ?)"


def _session_text(title: str, summary: str) -> SearchRow:
    return SearchRow(session_digest(title, summary), None, title, summary)


def session_digest(title: str, summary: str) -> int:
    """The digest in `texts` for the row of a session's title and summary."""
    return _digest([title, summary])


def _text_of(message: dict[str, Any]) -> SearchRow:
    return SearchRow(_digest(message), message)


def _digest(value: Any) -> int:
    return int.from_bytes(blake2b(orjson.dumps(value), digest_size=8).digest(), signed=True)


# -- verification ---------------------------------------------------------------------------------


def texts_of(title: str, summary: str, messages: Sequence[dict[str, Any]]) -> list[SearchRow]:
    """The rows that a session should have, in order."""
    return [_session_text(title, summary), *map(_text_of, messages)]


def rows_match(db: apsw.Connection, key: int, wanted: Sequence[SearchRow]) -> bool:
    """Whether a session has exactly the wanted rows, each with a full-text row."""
    between = (key << SHIFT, last_row(key))
    rows = "SELECT row, role, message_id, created_ns, digest FROM texts WHERE row BETWEEN ? AND ? ORDER BY row"
    present = db.execute(rows, between).fetchall()
    if present != [(row, *text.columns()) for row, text in enumerate(wanted, key << SHIFT)]:
        return False
    joined = "SELECT count(*) FROM texts t JOIN search_docsize f ON f.id = t.number WHERE t.row BETWEEN ? AND ?"
    is_whole: bool = db.execute(joined, between).get == len(wanted)
    return is_whole and transcript_sizes.sizes_match(db, key, [text.transcript_source for text in wanted])


def purge_session(db: apsw.Connection, key: int) -> None:
    """Like `remove_session`, but also removes rows without a full-text row."""
    between = (key << SHIFT, last_row(key))
    db.execute("DELETE FROM search WHERE rowid IN (SELECT number FROM texts WHERE row BETWEEN ? AND ?)", between)
    db.execute("DELETE FROM texts WHERE row BETWEEN ? AND ?", between)
    transcript_sizes.purge(db, key)


def count_strays(db: apsw.Connection) -> int:
    """The number of rows that belong to no indexed session or document."""
    tables = f"SELECT count(*) FROM ({_STRAY_KEYS}) UNION ALL SELECT count(*) FROM ({_STRAY_NUMBERS})"
    return sum(count for (count,) in db.execute(tables))


def purge_strays(db: apsw.Connection) -> None:
    keys: list[int] = [key for (key,) in db.execute(_STRAY_KEYS)]
    for key in keys:
        purge_session(db, key)
    db.execute(f"DELETE FROM search WHERE rowid IN ({_STRAY_NUMBERS})")
    db.execute(f"DELETE FROM texts WHERE row < 0 AND number IN ({_STRAY_NUMBERS})")


# Keys of missing sessions; numbers of missing documents and of orphaned full-text rows.
_STRAY_KEYS = (
    f"SELECT row >> {SHIFT} FROM texts WHERE row >= 0 UNION SELECT row >> {SHIFT} FROM pieces "
    f"UNION SELECT row >> {SHIFT} FROM links EXCEPT SELECT key FROM sessions"
)
_STRAY_NUMBERS = (
    "SELECT number FROM texts WHERE row < 0 AND -row NOT IN (SELECT key FROM state_documents) "
    "UNION SELECT id FROM search_docsize WHERE id NOT IN (SELECT number FROM texts)"
)
