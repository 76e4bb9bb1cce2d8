"""Drafts: what a person typed, where a merge stored something else.

The editor still has what was typed, so the next save is compared with the draft. Drafts are kept
while their process lives, and KEPT_DAYS longer, up to KEPT_BYTES in total.
"""

from __future__ import annotations

import os
import time
from typing import Any

import apsw

from store.history import steps
from store.history.lineages import make_lineage
from store.history.steps import WHOLE, Step
from store.history.texts import said_ns_of
from store.history.versions import Draft

KEPT_DAYS = 7
KEPT_BYTES = 64 << 20  # compressed, of all drafts together

_COLUMNS = "key, data, name, process, process_start, uid, at_ns"


def of_path(db: apsw.Connection, path: str, name: str, said_ns: int | None = None) -> list[Draft]:
    query = (
        f"SELECT {_COLUMNS} FROM drafts WHERE lineage = (SELECT key FROM lineages WHERE dir = ?1) AND name = ?2 "
        "AND (?3 IS NULL OR said_ns = ?3) ORDER BY key DESC"
    )
    return [_draft(row) for row in db.execute(query, (os.fsencode(path), name, said_ns))]


def find(db: apsw.Connection, key: int) -> Draft | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM drafts WHERE key = ?", (key,)).fetchone()
    return _draft(row) if row is not None else None


def _draft(row: Any) -> Draft:
    key, data, name, group, start, uid, at_ns = row
    text = bytearray()
    steps.apply(text, Step(WHOLE, data))
    return Draft(key, bytes(text), name, None if group is None else (group, start), uid, at_ns)


def add(
    db: apsw.Connection, path: str, name: str, text: bytes, process: tuple[int, int] | None, uid: int, mount: str
) -> int:
    now_ns = time.time_ns()
    lineage = make_lineage(db, path, now_ns)
    group, start = process if process is not None else (None, None)
    db.execute(
        "INSERT INTO drafts (lineage, name, said_ns, uid, process, process_start, mount, at_ns, data) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (lineage, name, said_ns_of(text), uid, group, start, mount, now_ns, steps.whole(text).data),
    )
    return db.last_insert_rowid()


def trim(db: apsw.Connection) -> int:
    """Delete expired drafts, and the oldest beyond KEPT_BYTES; returns their number."""
    horizon_ns = time.time_ns() - KEPT_DAYS * 86_400 * 10**9
    expired: list[int] = []
    total = 0
    query = "SELECT key, length(data), process, process_start, at_ns FROM drafts ORDER BY key DESC"
    rows: list[Any] = db.execute(query).fetchall()
    for key, size, group, start, at_ns in rows:
        total += size
        if total > KEPT_BYTES or (at_ns < horizon_ns and not _is_alive(group, start)):
            expired.append(key)
    db.executemany("DELETE FROM drafts WHERE key = ?", ((key,) for key in expired))
    return len(expired)


def _is_alive(group: int | None, start: int | None) -> bool:
    """Whether the process still runs: the same id with the same start time, in clock ticks since boot."""
    if group is None:
        return False
    try:
        with open(f"/proc/{group}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    return len(fields) > 19 and int(fields[19]) == start
