"""Permanent removal of texts from the history, with every copy that the history made of them.

`secure_delete` overwrites what is deleted from the database file. The write-ahead log may still hold
it until it is truncated, which readers of other processes can prevent: `erase_log` says whether it was.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from store.history import steps, thinning
from store.history.database import HistoryDatabase
from store.history.steps import WHOLE, Step


class Purged(NamedTuple):
    """What was removed of one lineage. `is_in_present`: its present version matches too, and stays."""

    versions: int
    drafts: int
    is_in_present: bool


def purge_lineage(
    db: apsw.Connection, lineage: int, matching: re.Pattern[bytes] | None, *, has_files: bool = True
) -> Purged:
    """Remove the versions that match, or all but the present one, inside a transaction.

    A lineage without files, which is kept for a snapshot, has no present version.
    """
    last = db.execute("SELECT last FROM lineages WHERE key = ?", (lineage,)).get
    present = {last} if has_files else set()
    readable = thinning.decodable(db, lineage)  # what cannot be read may match: it goes too
    dropped = readable - present if matching is None else _matching_versions(db, lineage, matching)
    versions = thinning.keep_only(db, lineage, readable - (dropped - present))
    if matching is not None:
        _blank_notes(db, lineage, matching)
    is_in_present = matching is not None and bool(dropped & present)
    return Purged(versions, _purge_drafts(db, lineage, matching), is_in_present)


def _matching_versions(db: apsw.Connection, lineage: int, matching: re.Pattern[bytes]) -> set[int]:
    found: set[int] = set()
    for role in thinning.ROLES:
        is_match = False
        for number, text, is_changed in thinning.iter_texts(db, lineage, role):
            if is_changed:
                is_match = isinstance(text, bytearray) and matching.search(text) is not None
            if is_match:
                found.add(number)
    return found


def _blank_notes(db: apsw.Connection, lineage: int, matching: re.Pattern[bytes]) -> None:
    rows: list[Any] = db.execute(
        "SELECT key, note FROM versions WHERE lineage = ? AND note <> ''", (lineage,)
    ).fetchall()
    for key, note in rows:
        if matching.search(note.encode(errors="surrogateescape")):
            db.execute("UPDATE versions SET note = '' WHERE key = ?", (key,))


def _purge_drafts(db: apsw.Connection, lineage: int, matching: re.Pattern[bytes] | None) -> int:
    count = 0
    rows: list[Any] = db.execute("SELECT key, data FROM drafts WHERE lineage = ?", (lineage,)).fetchall()
    for key, data in rows:
        text = bytearray()
        steps.apply(text, Step(WHOLE, data))
        if matching is None or matching.search(text):
            db.execute("DELETE FROM drafts WHERE key = ?", (key,))
            count += 1
    return count


def purge_origins(db: apsw.Connection, matching: re.Pattern[bytes]) -> int:
    """Blank the names of programs that match, and delete snapshots whose names do; returns how many."""
    count = 0
    rows: list[Any] = db.execute("SELECT key, program FROM origins").fetchall()
    for key, program in rows:
        if matching.search(program.encode(errors="surrogateescape")):
            db.execute("UPDATE origins SET program = ? WHERE key = ?", (f"purged {key}", key))
            count += 1
    names: list[Any] = db.execute("SELECT name FROM snapshots").fetchall()
    for (name,) in names:
        if matching.search(name.encode(errors="surrogateescape")):
            db.execute("DELETE FROM snapshots WHERE name = ?", (name,))
            count += 1
    return count


def erase_log(database: HistoryDatabase) -> bool:
    """Truncate the write-ahead log. False if a reader or writer of another process prevented it."""
    with database.exclusive() as db:
        try:
            db.execute("PRAGMA incremental_vacuum").fetchall()
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            return False
        log = Path(f"{database.path}-wal")
        return not log.exists() or log.stat().st_size == 0


def set_aside_files(database: HistoryDatabase) -> list[Path]:
    """Damaged databases that were set aside. They may hold anything that the history ever held."""
    return sorted(database.path.parent.glob(f"{database.path.name}.corrupt-*"))


def is_database(path: Path) -> bool:
    """Whether a file that was set aside is the database itself, not its log."""
    return not path.name.endswith(("-wal", "-shm"))
