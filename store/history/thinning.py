"""Removing versions while the others stay readable, byte for byte.

A version after a removed one gets a new step, from the version before the gap. The result is compared
with the digests of the old texts before it is committed. The caller holds the lock of the lineage, so
no commit adds a version meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import apsw

from store.errors import Corrupt, Problem
from store.history import steps
from store.history.planning import MAX_STEPS, MIN_STEP_BYTES
from store.history.retention import KeptVersion
from store.history.steps import REMOVED, WHOLE, Step
from store.history.versions import digest_of

ROLES = ("main", "side")


def versions_of(db: apsw.Connection, lineage: int) -> list[KeptVersion]:
    """All versions of a lineage, in order."""
    query = (
        "SELECT v.number, v.at_ns, o.via, v.what FROM versions v LEFT JOIN origins o ON o.key = v.origin "
        "WHERE v.lineage = ? ORDER BY v.number"
    )
    rows: list[Any] = db.execute(query, (lineage,)).fetchall()
    return [KeptVersion(number, at_ns, via or "", what) for number, at_ns, via, what in rows]


class Undecodable(NamedTuple):
    """In place of a text that cannot be rebuilt from its steps."""

    why: str


Text = bytearray | None | Undecodable


def iter_texts(db: apsw.Connection, lineage: int, role: str) -> Iterator[tuple[int, Text, bool]]:
    """The text of every version in order, and whether it differs from the one before.

    The text is changed in place by the next step: copy it to keep it. After a damaged step all are
    undecodable until the next whole text.
    """
    text: Text = None
    query = f"SELECT number, {role}_kind, {role}_data, {role}_digest FROM versions WHERE lineage = ? ORDER BY number"
    rows: list[Any] = db.execute(query, (lineage,)).fetchall()
    for number, kind, data, digest in rows:
        if kind is not None:
            text = _after(text, Step(kind, data), digest)
        yield number, text, kind is not None


def _after(text: Text, step: Step, digest: bytes | None) -> Text:
    if step.kind == REMOVED:
        return None
    if step.kind != WHOLE and not isinstance(text, bytearray):
        return text or Undecodable("the whole text that its steps begin with is missing")
    text = text if isinstance(text, bytearray) else bytearray()
    try:
        steps.apply(text, step)
    except (ValueError, steps.Error) as error:
        return Undecodable(f"does not decode: {error}")
    if digest is not None and digest != digest_of(text):
        return Undecodable("the digest of its text is another")
    return text


def decodable(db: apsw.Connection, lineage: int) -> set[int]:
    """The numbers of the versions whose texts can be rebuilt."""
    found = {version.number for version in versions_of(db, lineage)}
    for role in ROLES:
        found -= {number for number, text, _ in iter_texts(db, lineage, role) if isinstance(text, Undecodable)}
    return found


def keep_only(db: apsw.Connection, lineage: int, kept: set[int]) -> int:
    """Remove all other versions, inside a transaction; returns how many were removed.

    Raises Corrupt if a version to be kept does not decode.
    """
    numbers = [version.number for version in versions_of(db, lineage)]
    dropped = [number for number in numbers if number not in kept]
    if not dropped:
        return 0
    wanted = {role: _rewrite(db, lineage, role, numbers, kept) for role in ROLES}
    for table in ("versions", "former_marks"):
        db.executemany(f"DELETE FROM {table} WHERE lineage = ? AND number = ?", ((lineage, n) for n in dropped))
    for role in ROLES:
        if _digests(db, lineage, role, wanted[role]) != wanted[role]:
            raise Corrupt(_name(db, lineage), Problem("a version would have changed; none was removed"))
        update_run(db, lineage, role)
    if numbers[-1] not in kept:
        _forget_newest(db, lineage)
    return len(dropped)


def _rewrite(
    db: apsw.Connection, lineage: int, role: str, numbers: Sequence[int], kept: set[int]
) -> dict[int, bytes | None]:
    """Give each version after a gap a step from the version before it.

    Returns the digests that prove the result: of these versions and of the last one. The steps of
    the others do not change.
    """
    before_gap = {number for number, after in pairwise(numbers) if number in kept and after not in kept}
    last = max(kept, default=0)
    digests: dict[int, bytes | None] = {}
    before: bytes | None = None
    is_after_gap, is_first = False, True
    for number, text, _ in iter_texts(db, lineage, role):
        if number not in kept:
            is_after_gap = True
            continue
        if isinstance(text, Undecodable):
            raise Corrupt(f"{_name(db, lineage)}@{number}", Problem(f"{role}: {text.why}"))
        if is_after_gap:
            copy = bytes(text) if text is not None else None
            _store(db, lineage, number, role, _step(before, copy, is_first=is_first))
        if is_after_gap or number == last:
            digests[number] = _digest(text)
        if number in before_gap:
            before = bytes(text) if text is not None else None
        is_after_gap = is_first = False
    return digests


def _digests(db: apsw.Connection, lineage: int, role: str, numbers: Container[int]) -> dict[int, bytes | None]:
    return {number: _digest(text) for number, text, _ in iter_texts(db, lineage, role) if number in numbers}


def _digest(text: Text) -> bytes | None:
    return digest_of(text) if isinstance(text, bytearray) else None


def _name(db: apsw.Connection, lineage: int) -> str:
    return os.fsdecode(db.execute("SELECT dir FROM lineages WHERE key = ?", (lineage,)).get)


def _forget_newest(db: apsw.Connection, lineage: int) -> None:
    """After the newest version was removed: the lineage knows the one before it, which is not the file's."""
    columns = [f"{role}_{name}" for role in ROLES for name in ("bytes", "digest", "said_ns")]
    newest = "FROM versions WHERE lineage = lineages.key ORDER BY number DESC LIMIT 1"
    values = ", ".join(f"{column} = (SELECT {column} {newest})" for column in columns)
    db.execute(f"UPDATE lineages SET main_mark = NULL, side_mark = NULL, {values} WHERE key = ?", (lineage,))


def _step(before: bytes | None, text: bytes | None, *, is_first: bool) -> Step | None:
    """The step between two versions that stay; None if the text is the same."""
    if text is None:
        return steps.REMOVAL if is_first or before is not None else None
    if before is None:
        return steps.whole(text)
    return steps.encode(before, text) if text != before else None


def _store(db: apsw.Connection, lineage: int, number: int, role: str, step: Step | None) -> None:
    kind, data = step if step is not None else (None, None)
    db.execute(
        f"UPDATE versions SET {role}_kind = ?, {role}_data = ? WHERE lineage = ? AND number = ?",
        (kind, data, lineage, number),
    )


def update_run(db: apsw.Connection, lineage: int, role: str) -> None:
    """Count the steps since the last whole text again."""
    query = (
        f"SELECT {role}_kind, length({role}_data) FROM versions WHERE lineage = ? AND {role}_kind IS NOT NULL "
        "ORDER BY number DESC"
    )
    whole_bytes = step_bytes = count = 0
    rows: list[Any] = db.execute(query, (lineage,)).fetchall()
    for kind, size in rows:
        if kind in (REMOVED, WHOLE):
            whole_bytes = size or 0
            break
        step_bytes, count = step_bytes + size, count + 1
    db.execute(
        f"UPDATE lineages SET {role}_whole_bytes = ?, {role}_step_bytes = ?, {role}_steps = ? WHERE key = ?",
        (whole_bytes, step_bytes, count, lineage),
    )


# -- whole texts ---------------------------------------------------------------------------------------


def long_runs(db: apsw.Connection) -> list[tuple[int, str]]:
    """Lineages whose newest version is at the end of a run of steps that is too long, with their paths.

    A commit makes no whole text of a long document: that takes too long.
    """
    over = " OR ".join(
        f"{role}_steps >= {MAX_STEPS} OR {role}_step_bytes > max({role}_whole_bytes, {MIN_STEP_BYTES})"
        for role in ROLES
    )
    return [(key, path) for key, path in db.execute(f"SELECT key, dir FROM lineages WHERE {over}")]


def store_whole(db: apsw.Connection, lineage: int, texts: Mapping[str, bytes | None]) -> None:
    """Store the newest version of a lineage, which has these texts, as whole texts; inside a transaction."""
    last = db.execute("SELECT last FROM lineages WHERE key = ?", (lineage,)).get
    for role, text in texts.items():
        if text is not None:
            _store(db, lineage, last, role, steps.whole(text))
            db.execute(
                f"UPDATE versions SET {role}_digest = ? WHERE lineage = ? AND number = ?",
                (digest_of(text), lineage, last),
            )
            db.execute(f"UPDATE lineages SET {role}_digest = ? WHERE key = ?", (digest_of(text), lineage))
            update_run(db, lineage, role)
