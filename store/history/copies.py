"""Copies of history.db in backups, and lineages brought back from them.

A copy is a complete database. It is verified by decoding: every version that is brought back decodes,
and has the digest it had when it was recorded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import apsw

from store.errors import Corrupt, Problem
from store.history import schema, thinning
from store.history.database import HistoryDatabase

_LINEAGE = [
    *["last", "at_ns"],
    *(
        f"{role}_{name}"
        for role in thinning.ROLES
        for name in ("bytes", "digest", "said_ns", "whole_bytes", "step_bytes", "steps")
    ),
]
_VERSION = [
    *["number", "at_ns", "what", "pid", "note", "agreed", "made_ns"],
    *(f"{role}_{name}" for role in thinning.ROLES for name in ("kind", "bytes", "digest", "said_ns", "mark", "data")),
]
# Two databases with the same numbers hold the same history.
_SUMMARY = """SELECT (SELECT max(key) FROM versions), (SELECT count(*) FROM versions), (SELECT sum(at_ns % 1000003) FROM
    versions), (SELECT max(key) FROM drafts), (SELECT count(*) FROM drafts), (SELECT count(*) FROM names),
    (SELECT count(*) FROM snapshots)"""


def write_copy(database: HistoryDatabase, target: Path) -> None:
    """Write a complete copy, as of one moment, to a new file."""
    os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    database.reader.execute("VACUUM INTO ?", (str(target),))
    fd = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def summary_of(db: apsw.Connection) -> tuple[Any, ...]:
    return tuple(db.execute(_SUMMARY).fetchall()[0])


class HistoryCopy:
    """A copy that is open for reading. Raises Corrupt if it is not a history, or one of a newer GroveFS."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Immutable: no lock or log is created, so a backup on a read-only disk can be read.
        name = f"file:{quote(str(path))}?immutable=1"
        try:
            self.db = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
            version = self.db.execute("PRAGMA user_version").get
            is_ours = self.db.execute("PRAGMA application_id").get == schema.APPLICATION_ID
        except apsw.Error as error:
            raise Corrupt(str(path), Problem(f"cannot be read: {error}")) from error
        if not is_ours or version > schema.VERSION:
            self.close()
            raise Corrupt(str(path), Problem("not a history that this GroveFS can read"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.db.close()

    def damage(self) -> str | None:
        """What is wrong with the file; None if every page can be read."""
        try:
            found = [text for (text,) in self.db.execute("PRAGMA quick_check(1)") if text != "ok"]
        except apsw.Error as error:
            return str(error)
        return str(found[0]) if found else None

    def bring_back(self, database: HistoryDatabase, path: str) -> bool:
        """Copy the lineage of a path into a history that has none of it. The caller holds its lock."""
        name = os.fsencode(path)
        found: list[Any] = self.db.execute(
            f"SELECT key, {', '.join(_LINEAGE)} FROM lineages WHERE dir = ?", (name,)
        ).fetchall()
        if not found:
            return False
        with database.write(durable=True) as db:
            if db.execute("SELECT 1 FROM lineages WHERE dir = ?", (name,)).get is not None:
                return False
            old, *values = found[0]
            columns = ", ".join(["dir", *_LINEAGE])
            db.execute(f"INSERT INTO lineages ({columns}) VALUES ({_marks(len(values) + 1)})", (name, *values))
            key = db.last_insert_rowid()
            self._copy_versions(db, old, key)
            thinning.keep_only(db, key, thinning.decodable(db, key))
            names = self.db.execute("SELECT from_ns, dir FROM names WHERE lineage = ?", (old,))
            db.executemany("INSERT INTO names VALUES (?, ?, ?)", ((key, *row) for row in names))
        return True

    def _copy_versions(self, db: apsw.Connection, old: int, key: int) -> None:
        present = {row[1] for row in self.db.execute("PRAGMA table_info(versions)")}
        names = [name for name in _VERSION if name in present]  # an older copy lacks some
        query = (
            f"SELECT o.via, o.program, o.uid, {', '.join(f'v.{name}' for name in names)} FROM versions v "
            "LEFT JOIN origins o ON o.key = v.origin WHERE v.lineage = ? ORDER BY v.number"
        )
        columns = ", ".join(["lineage", "origin", *names])
        for via, program, uid, *values in self.db.execute(query, (old,)):
            origin = _origin(db, via or "outside", program or "", uid or 0)
            row = (key, origin, *values)
            db.execute(f"INSERT INTO versions ({columns}) VALUES ({_marks(len(row))})", row)

    def bring_back_snapshots(self, database: HistoryDatabase) -> None:
        """Copy the snapshots whose names are not in use."""
        rows: Iterable[Any] = self.db.execute("SELECT name, at_ns FROM snapshots").fetchall()
        with database.write(durable=True) as db:
            db.executemany("INSERT OR IGNORE INTO snapshots VALUES (?, ?)", rows)


def _origin(db: apsw.Connection, via: Any, program: Any, uid: Any) -> int:
    db.execute("INSERT OR IGNORE INTO origins (via, program, uid) VALUES (?, ?, ?)", (via, program, uid))
    return int(db.execute("SELECT key FROM origins WHERE via = ? AND program = ? AND uid = ?", (via, program, uid)).get)


def _marks(count: int) -> str:
    return ", ".join("?" * count)
