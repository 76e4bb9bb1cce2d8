"""Full-text rows: one per message, one per session (title and summary), one per state document.

A commit writes the rows of changed texts in its own transaction. The index stores no text: snippets
are read from the files. A text has a position (`texts.row`) and a rowid in FTS5 (`texts.number`). A
message that only moved keeps its number; newer texts have higher numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import apsw
import orjson

from store.documents import search_text
from store.documents.transcript import PieceSize
from store.index import transcript_sizes
from store.index.schema import SHIFT
from store.index.text_update import Columns, TextUpdate, WrittenRow
from store.model.timestamp import Timestamp, clip_ns, valid_ns_of

LAST_ROW = (1 << SHIFT) - 1  # of a session, counted from its first
LARGE_TEXT = 1 << 20  # characters

# -- sessions --------------------------------------------------------------------------------------


def plan_session(
    db: apsw.Connection, key: int | None, title: str, summary: str, messages: Sequence[Message]
) -> TextUpdate:
    """Plan the rows of a session; `key` is None if it has none yet. Unchanged messages are left alone."""
    return _plan(db, None if key is None else key << SHIFT, 0, LAST_ROW, _rows_of(title, summary, messages))


def plan_title(db: apsw.Connection, key: int, title: str, summary: str) -> TextUpdate:
    """Plan the row of a session's title and summary: no message has changed."""
    return _plan(db, key << SHIFT, 0, 0, [_session_text(title, summary)])


def plan_append(db: apsw.Connection, key: int, index: int, messages: Sequence[dict[str, Any]]) -> TextUpdate:
    """Plan rows for messages appended at `index`. The cost does not depend on the messages before."""
    return _plan(db, key << SHIFT, 1 + index, LAST_ROW, [row_of(message) for message in messages])


def remove_session(db: apsw.Connection, key: int) -> None:
    apply(db, (key << SHIFT, _plan(db, key << SHIFT, 0, LAST_ROW, [])))


def last_row(key: int) -> int:
    return (key << SHIFT) + LAST_ROW


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
    apply(db, (-key, _plan(db, -key, 0, 0, [_session_text(title, text)])))


def remove_document(db: apsw.Connection, path: str) -> None:
    """Remove a state document from the index, if it is there."""
    found = db.execute("DELETE FROM state_documents WHERE path = ? RETURNING key", (path,)).fetchone()
    if found is not None:
        apply(db, (-found[0], _plan(db, -found[0], 0, 0, [])))


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


class SearchRow(NamedTuple):
    """The text of one row. Everything but the digest is computed only if the row is written."""

    digest: int
    source: dict[str, Any] | None  # a message, or None
    title: str = ""  # of a session or document, if not a message
    summary: str = ""

    def columns(self) -> Columns:
        """The columns of `texts` without row and number."""
        if self.source is None:
            return "", None, None, None, self.digest
        created_at = self.source.get("created_at")
        created_ns = clip_ns(_instant(created_at)) if isinstance(created_at, str) else None
        tools = search_text.tool_names(self.source)
        return self.source["role"], self.source.get("id"), created_ns, tools, self.digest

    def indexed(self) -> str:
        return search_text.prepare_text(
            f"{self.title}\n{self.summary}" if self.source is None else search_text.message_text(self.source)
        )

    def computed(self) -> ComputedRow:
        return ComputedRow(self.columns(), self.indexed())

    def size(self, row: int) -> PieceSize:
        """The size of what a transcript shows of it, at this row of its session."""
        return transcript_sizes.measure(row, self.transcript_source)

    @property
    def transcript_source(self) -> str | dict[str, Any]:
        """The part of it that a transcript shows."""
        return self.summary if self.source is None else self.source


class ComputedRow(NamedTuple):
    """A row whose values are known."""

    values: Columns
    text: str

    @property
    def text_bytes(self) -> int:
        """The size of the text, at least."""
        return len(self.text)

    def columns(self) -> Columns:
        return self.values

    def indexed(self) -> str:
        return self.text


class WantedRow(Protocol):
    """A row that a session is to have: a `SearchRow`, or one of a `PreparedMessages`."""

    @property
    def digest(self) -> int: ...
    def columns(self) -> Columns: ...
    def size(self, row: int) -> PieceSize: ...
    def computed(self) -> WrittenRow: ...


Message = dict[str, Any] | WantedRow


def _plan(db: apsw.Connection, base: int | None, first: int, last: int, wanted: Sequence[WantedRow]) -> TextUpdate:
    """Compare the wanted content of the rows from `first` to `last` with the present rows."""
    present = _present(db, base, first, last) if base is not None else {}
    changed = [
        (row, text) for row, text in enumerate(wanted, first) if row not in present or present[row][0] != text.digest
    ]
    stale = [row for row, _ in changed if row in present]
    stale += [row for row in present if row >= first + len(wanted)]
    free: dict[int, list[int]] = {}  # digest → numbers of texts that are no longer at their row
    for row in stale:
        digest, number = present[row]
        free.setdefault(digest, []).append(number)
    candidates = changed if free else []
    moved = [(row, text.columns(), free[text.digest].pop()) for row, text in candidates if free.get(text.digest)]
    elsewhere = {row for row, _, _ in moved}
    new = [(row, text.computed()) for row, text in changed if row not in elsewhere]
    sizes = [(row, text.size(row)) for row, text in changed]
    return TextUpdate(stale, moved, new, [number for numbers in free.values() for number in numbers], sizes)


def apply(db: apsw.Connection, *updates: tuple[int, TextUpdate]) -> None:
    """Write updates, each with the first row of its session or document.

    FTS5 rows come last: any other write makes FTS5 flush its buffer.
    """
    _execute_many(db, "DELETE FROM texts WHERE row = ?", [(base + row,) for base, u in updates for row in u.stale])
    moved = [(base + row, number, *columns) for base, u in updates for row, columns, number in u.moved]
    _execute_many(db, _INSERT, moved)
    new = [(base + row, text) for base, u in updates for row, text in u.new]
    if new:
        number = 1 + max(row[0] or 0 for row in db.execute(_HIGHEST))
        db.executemany(_INSERT, ((row, n, *text.columns()) for n, (row, text) in enumerate(new, number)))
    transcript_sizes.put(db, *((base, u.stale, u.sizes) for base, u in updates if base >= 0))
    _execute_many(db, "DELETE FROM search WHERE rowid = ?", [(n,) for _, u in updates for n in u.unused])
    if new:
        # A cached statement keeps its last values: a text of 200 MB would stay in memory.
        is_small = all(text.text_bytes < LARGE_TEXT for _, text in new)
        added = ((n, text.indexed()) for n, (_, text) in enumerate(new, number))
        db.executemany("INSERT INTO search (rowid, text) VALUES (?, ?)", added, can_cache=is_small)


def _present(db: apsw.Connection, base: int, first: int, last: int) -> dict[int, tuple[int, int]]:
    """The rows that exist, counted from `base`, with digest and number."""
    between = (base + first, base + last)
    rows = db.execute("SELECT row, digest, number FROM texts WHERE row BETWEEN ? AND ?", between)
    return {row - base: (digest, number) for row, digest, number in rows}


def _execute_many(db: apsw.Connection, statement: str, values: list[tuple[Any, ...]]) -> None:
    if values:
        db.executemany(statement, values)


# The maximum of both tables: the number of an orphaned full-text row must not be reused. Both use
# an index.
_HIGHEST = "SELECT max(number) FROM texts UNION ALL SELECT max(id) FROM search_docsize"
_INSERT = "INSERT INTO texts (row, number, role, message_id, created_ns, tools, digest) VALUES (?, ?, ?, ?, ?, ?, ?)"


def _session_text(title: str, summary: str) -> SearchRow:
    return SearchRow(session_digest(title, summary), None, title, summary)


def session_digest(title: str, summary: str) -> int:
    """The digest in `texts` for the row of a session's title and summary."""
    return _digest([title, summary])


def row_of(message: dict[str, Any]) -> SearchRow:
    return SearchRow(_digest(message), message)


def _instant(created_at: str) -> int:
    return created_at.ns if isinstance(created_at, Timestamp) else valid_ns_of(created_at)


def _digest(value: Any) -> int:
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return int.from_bytes(blake2b(text, digest_size=8).digest(), signed=True)


# -- verification ---------------------------------------------------------------------------------


def texts_of(title: str, summary: str, messages: Sequence[dict[str, Any]]) -> list[SearchRow]:
    """The rows that a session should have, in order."""
    return [_session_text(title, summary), *map(row_of, messages)]


def _rows_of(title: str, summary: str, messages: Sequence[Message]) -> list[WantedRow]:
    return [_session_text(title, summary), *(row_of(m) if isinstance(m, dict) else m for m in messages)]


def rows_match(db: apsw.Connection, key: int, wanted: Sequence[SearchRow]) -> bool:
    """Whether a session has exactly the wanted rows, each with a full-text row."""
    between = (key << SHIFT, last_row(key))
    rows = "SELECT row, role, message_id, created_ns, tools, digest FROM texts WHERE row BETWEEN ? AND ? ORDER BY row"
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
