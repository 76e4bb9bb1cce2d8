"""The rows that full-text search answers from: one a message, one a session (title, summary), one a state document.

They are written in the transaction of the commit that changed what they stand for, and only those of what
changed. The index keeps no text: snippets are cut from the files. A text has a place (`texts.row`) and, in
FTS5, a number: a message that only moved keeps its number, and the highest numbers are the newest texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import apsw
import orjson

from store import pieces, words
from store.schema import SHIFT
from store.timestamps import Timestamp, clip_ns

# -- sessions --------------------------------------------------------------------------------------


def put_session(db: apsw.Connection, key: int, title: str, summary: str) -> None:
    _put_rows(db, key << SHIFT, key << SHIFT, [_session_text(title, summary)])


def put_all(db: apsw.Connection, key: int, title: str, summary: str, messages: Sequence[dict[str, Any]]) -> None:
    """Bring the rows in step with a session and its messages; those of what did not change are left alone."""
    _put_rows(db, key << SHIFT, last_row(key), texts_of(title, summary, messages))


def add_messages(db: apsw.Connection, key: int, index: int, messages: Sequence[dict[str, Any]]) -> None:
    """Rows for messages appended at `index`; the cost does not depend on those before."""
    first = (key << SHIFT) + 1 + index
    _put_rows(db, first, last_row(key), [_text_of(message) for message in messages])


def remove_session(db: apsw.Connection, key: int) -> None:
    _put_rows(db, key << SHIFT, last_row(key), [])


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
    _put_rows(db, -key, -key, [_session_text(title, text)], in_transcript=False)


def remove_document(db: apsw.Connection, path: str) -> None:
    """Search knows nothing of this document any more, if it ever did."""
    found = db.execute("DELETE FROM state_documents WHERE path = ? RETURNING key", (path,)).fetchone()
    if found is not None:
        _put_rows(db, -found[0], -found[0], [], in_transcript=False)


def documents(db: apsw.Connection) -> list[str]:
    """The paths of all state documents that search knows."""
    return [path for (path,) in db.execute("SELECT path FROM state_documents ORDER BY path")]


def document_agrees(db: apsw.Connection, path: str, title: str, text: str) -> bool:
    """Whether search has this document, and as it is."""
    found = db.execute(
        "SELECT t.digest FROM state_documents d JOIN texts t ON t.row = -d.key "
        "JOIN search_docsize f ON f.id = t.number WHERE d.path = ? AND d.title = ?",
        (path, title),
    ).fetchone()
    return found is not None and found[0] == _session_text(title, text).digest


# -- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
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
        created_ns = clip_ns(Timestamp(created_at).ns) if isinstance(created_at, str) else None
        return self.source["role"], self.source.get("id"), created_ns, self.digest

    def indexed(self) -> str:
        return words.split(f"{self.title}\n{self.summary}" if self.source is None else words.message_text(self.source))

    @property
    def told(self) -> str | dict[str, Any]:
        """What a transcript has of it."""
        return self.summary if self.source is None else self.source


def _put_rows(
    db: apsw.Connection, first: int, last: int, wanted: Sequence[Text], *, in_transcript: bool = True
) -> None:
    """Make the rows from `first` to `last` those of `wanted`, one after the other."""
    present: dict[int, tuple[int, int]] = {
        row: (digest, number)
        for row, digest, number in db.execute(
            "SELECT row, digest, number FROM texts WHERE row BETWEEN ? AND ?", (first, last)
        )
    }
    changed = [(row, text) for row, text in enumerate(wanted, first) if present.get(row, (None,))[0] != text.digest]
    gone = [row for row in present if row >= first + len(wanted)]
    stale = [row for row, _ in changed if row in present] + gone
    free: dict[int, list[int]] = {}  # by digest, the numbers of texts that are no longer where they were
    for row in stale:
        digest, number = present[row]
        free.setdefault(digest, []).append(number)
    moved = [(row, text, free[text.digest].pop()) for row, text in changed if free.get(text.digest)]
    elsewhere = {row for row, _, _ in moved}
    new = [(row, text) for row, text in changed if row not in elsewhere]
    _remove(db, [(number,) for numbers in free.values() for number in numbers], [(row,) for row in stale])
    _add(db, moved, new)
    if in_transcript and (gone or changed):
        pieces.put(db, first, last, [(row,) for row in gone], [(row, text.told) for row, text in changed])


def _remove(db: apsw.Connection, numbers: list[tuple[int]], rows: list[tuple[int]]) -> None:
    if numbers:
        db.executemany("DELETE FROM search WHERE rowid = ?", numbers)
    if rows:
        db.executemany("DELETE FROM texts WHERE row = ?", rows)


def _add(db: apsw.Connection, moved: list[tuple[int, Text, int]], new: list[tuple[int, Text]]) -> None:
    if moved:
        db.executemany(_INSERT, [(row, number, *text.columns()) for row, text, number in moved])
    if new:
        number = 1 + max(row[0] or 0 for row in db.execute(_HIGHEST))
        db.executemany(_INSERT, [(row, n, *text.columns()) for n, (row, text) in enumerate(new, number)])
        db.executemany(
            "INSERT INTO search (rowid, text) VALUES (?, ?)",
            [(n, text.indexed()) for n, (_, text) in enumerate(new, number)],
        )


# Both, each at the end of an index: a full-text row that nobody owns must not stand in the way.
_HIGHEST = "SELECT max(number) FROM texts UNION ALL SELECT max(id) FROM search_docsize"
_INSERT = "INSERT INTO texts (row, number, role, message_id, created_ns, digest) VALUES (?, ?, ?, ?, ?, ?)"


def _session_text(title: str, summary: str) -> Text:
    return Text(session_digest(title, summary), None, title, summary)


def session_digest(title: str, summary: str) -> int:
    """What `texts` has for the row of a session itself."""
    return _digest([title, summary])


def _text_of(message: dict[str, Any]) -> Text:
    return Text(_digest(message), message)


def _digest(value: Any) -> int:
    return int.from_bytes(blake2b(orjson.dumps(value), digest_size=8).digest(), signed=True)


# -- trusting nothing ------------------------------------------------------------------------------


def texts_of(title: str, summary: str, messages: Sequence[dict[str, Any]]) -> list[Text]:
    """What the rows of a session stand for, in order."""
    return [_session_text(title, summary), *map(_text_of, messages)]


def rows_agree(db: apsw.Connection, key: int, wanted: Sequence[Text]) -> bool:
    """Whether a session has the rows that its files would make, each with a number that is in the full-text index."""
    between = (key << SHIFT, last_row(key))
    rows = "SELECT row, role, message_id, created_ns, digest FROM texts WHERE row BETWEEN ? AND ? ORDER BY row"
    present = db.execute(rows, between).fetchall()
    if present != [(row, *text.columns()) for row, text in enumerate(wanted, key << SHIFT)]:
        return False
    joined = "SELECT count(*) FROM texts t JOIN search_docsize f ON f.id = t.number WHERE t.row BETWEEN ? AND ?"
    is_whole: bool = db.execute(joined, between).get == len(wanted)
    return is_whole and pieces.agree(db, key, [text.told for text in wanted])


def purge_session(db: apsw.Connection, key: int) -> None:
    """As `remove_session`, but also what no longer has a full-text row."""
    between = (key << SHIFT, last_row(key))
    db.execute("DELETE FROM search WHERE rowid IN (SELECT number FROM texts WHERE row BETWEEN ? AND ?)", between)
    db.execute("DELETE FROM texts WHERE row BETWEEN ? AND ?", between)
    pieces.purge(db, key)


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
