"""Rows of the table `lineages`: creating, finding and moving them. Inside a transaction of the caller."""

from __future__ import annotations

import os
from typing import NamedTuple

import apsw

from store.layout import PRIVATE

ASIDE = f"{PRIVATE}/aside"  # no such directory exists: the path of a lineage that another one displaced


class TextState(NamedTuple):
    """What a lineage knows of one text of its newest version."""

    mark: int | None = None
    size: int | None = None  # in bytes; None: the file does not exist
    digest: bytes | None = None
    said_ns: int | None = None
    whole_bytes: int = 0
    step_bytes: int = 0
    steps: int = 0


NO_TEXT = TextState()


class Lineage(NamedTuple):
    """A row of `lineages`."""

    key: int
    last: int
    at_ns: int
    main: TextState
    side: TextState


_TEXT = "{0}_mark, {0}_bytes, {0}_digest, {0}_said_ns, {0}_whole_bytes, {0}_step_bytes, {0}_steps"
_FIND = f"SELECT key, last, at_ns, {_TEXT.format('main')}, {_TEXT.format('side')} FROM lineages WHERE dir = ?"
_WIDTH = len(TextState._fields)


def find_lineage(db: apsw.Connection, path: str) -> Lineage | None:
    row = db.execute(_FIND, (os.fsencode(path),)).fetchone()
    if row is None:
        return None
    key, last, at_ns = row[:3]
    return Lineage(key, last, at_ns, TextState(*row[3 : 3 + _WIDTH]), TextState(*row[3 + _WIDTH :]))


def make_lineage(db: apsw.Connection, path: str, from_ns: int) -> int:
    """The key of the lineage of a path; a new one has no versions yet."""
    name = os.fsencode(path)
    key = db.execute("SELECT key FROM lineages WHERE dir = ?", (name,)).get
    if key is not None:
        return int(key)
    db.execute("INSERT INTO lineages (dir, last, at_ns) VALUES (?, 0, 0)", (name,))
    key = db.last_insert_rowid()
    db.execute("INSERT INTO names VALUES (?, ?, ?)", (key, from_ns, name))
    return key


def move_lineages(db: apsw.Connection, source: str, target: str, at_ns: int) -> int:
    """Move the lineages at or below a path; returns their number.

    Repeating a move does nothing. A lineage that is at the target already is renamed aside: it belongs
    to files that were removed without the history knowing.
    """
    old, new = os.fsencode(source), os.fsencode(target)
    found = at_or_below(db, old)
    for key, path in found:
        moved = new + path[len(old) :]
        other = db.execute("SELECT key FROM lineages WHERE dir = ?", (moved,)).get
        if other is not None:
            _rename(db, other, os.fsencode(f"{ASIDE}/{other}"), at_ns)
        _rename(db, key, moved, at_ns)
    return len(found)


def _rename(db: apsw.Connection, key: int, path: bytes, at_ns: int) -> None:
    db.execute("UPDATE lineages SET dir = ? WHERE key = ?", (path, key))
    db.execute("INSERT OR REPLACE INTO names VALUES (?, ?, ?)", (key, at_ns, path))


def at_or_below(db: apsw.Connection, path: bytes) -> list[tuple[int, bytes]]:
    """Keys and paths of the lineages at or below a path, in order."""
    # "/" is followed by "0": every path below starts with `path/`.
    query = "SELECT key, dir FROM lineages WHERE dir = ? OR (dir > ? AND dir < ?) ORDER BY dir"
    return list(db.execute(query, (path, path + b"/", path + b"0")))


def with_newest(db: apsw.Connection, directory: bytes) -> list[bytes]:
    """The paths of the lineages below a directory whose newest version is kept."""
    newest = "SELECT 1 FROM versions v WHERE v.lineage = l.key AND v.number = l.last"
    query = f"SELECT dir FROM lineages l WHERE dir > ? AND dir < ? AND EXISTS ({newest})"
    return [path for (path,) in db.execute(query, (directory + b"/", directory + b"0"))]


def gone_from(db: apsw.Connection, path: bytes) -> list[tuple[int, bytes]]:
    """Keys and paths of the lineages that were at or below a path once, and are in the trash or aside now."""
    once = "SELECT lineage FROM names WHERE dir = ? OR (dir > ? AND dir < ?)"
    query = f"SELECT key, dir FROM lineages WHERE dir > ? AND dir < ? AND key IN ({once}) ORDER BY dir"
    private = os.fsencode(PRIVATE)
    return list(db.execute(query, (private + b"/", private + b"0", path, path + b"/", path + b"0")))


def marks_below(db: apsw.Connection, directory: str) -> list[tuple[bytes, int | None]]:
    """The path of each lineage below a directory, and the mark of its newest version."""
    name = os.fsencode(directory)
    query = "SELECT dir, main_mark FROM lineages WHERE dir > ? AND dir < ?"
    return list(db.execute(query, (name + b"/", name + b"0")))


def all_marks(db: apsw.Connection) -> list[tuple[bytes, int | None, int | None]]:
    """The path of each lineage, and the marks of both texts of its newest version."""
    return list(db.execute("SELECT dir, main_mark, side_mark FROM lineages ORDER BY dir"))


def delete_lineage(db: apsw.Connection, key: int) -> None:
    for table in ("versions", "names", "drafts", "former_marks"):
        db.execute(f"DELETE FROM {table} WHERE lineage = ?", (key,))
    db.execute("DELETE FROM lineages WHERE key = ?", (key,))
