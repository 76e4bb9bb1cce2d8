"""Queries of a grove's tables that change nothing. They may be repeated on another connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from store.grove.replica import LogPosition
from store.grove.units import shard_of
from store.grove.wire import CHUNK_BYTES, DELETED, BadRow, Gone, LogRow, Whole, decode_ops
from store.history import steps

PLAIN, COMPRESSED = b"\0", b"\1"
PAST_ROWS = 2000  # of one unit, for the search of an older version
PAGE_ROWS = 300  # a version rarely needs more

_LOG_COLUMNS = """
l.shard, l.seq, l.unit, l.version, l.token::text, coalesce(l.previous::text, ''), l.host::text, coalesce(h.name, ''),
l.what, l.via, l.program, (extract(epoch FROM l.at) * 1000000)::bigint * 1000, l.generation, l.ops
"""
LOG_ROWS = f"SELECT {_LOG_COLUMNS} FROM grove.log l LEFT JOIN grove.hosts h ON h.host = l.host"


class UnitHead(NamedTuple):
    """The newest version of a unit."""

    unit: str
    version: int
    token: str
    base: int
    is_gone: bool


def rows_of_unit(connection: Any, unit: str, root: str, shards: int, after: int) -> list[LogRow]:
    """The rows of a unit with versions after one, in order; from the newest whole version if that is later."""
    rows = connection.execute(
        f"""{LOG_ROWS} JOIN grove.units u ON u.shard = l.shard AND u.unit = l.unit
        WHERE l.shard = %s AND l.unit = %s AND l.version > %s AND l.version >= u.base ORDER BY l.version""",
        (shard_of(root, shards), unit, after),
    )
    return [LogRow(*row) for row in rows]


def deletions_after(connection: Any, shard: int, versions: Mapping[str, int]) -> list[LogRow]:
    """The rows of a shard that deleted units after these versions of them, in order."""
    rows = connection.execute(
        f"""{LOG_ROWS} JOIN unnest(%s::text[], %s::bigint[]) AS k(unit, version) ON k.unit = l.unit
        WHERE l.shard = %s AND l.version > k.version AND l.ops = %s ORDER BY l.seq""",
        ([*versions], [*versions.values()], shard, DELETED),
    )
    return [LogRow(*row) for row in rows]


def all_rows_of_unit(connection: Any, unit: str, root: str, shards: int, until: int) -> list[LogRow]:
    """The newest rows of a unit up to a version, oldest first, whole versions or not."""
    rows = connection.execute(
        f"{LOG_ROWS} WHERE l.shard = %s AND l.unit = %s AND l.version <= %s ORDER BY l.version DESC LIMIT {PAST_ROWS}",
        (shard_of(root, shards), unit, until),
    )
    return [LogRow(*row) for row in rows][::-1]


def rows_of_version(connection: Any, unit: str, root: str, shards: int, version: int) -> list[LogRow]:
    """The rows that make up a version of a unit, from the last whole one on. Raises BadRow if it does not exist."""
    found: list[LogRow] = []  # newest first
    while page := connection.execute(
        f"{LOG_ROWS} WHERE l.shard = %s AND l.unit = %s AND l.version <= %s ORDER BY l.version DESC LIMIT {PAGE_ROWS}",
        (shard_of(root, shards), unit, found[-1].version - 1 if found else version),
    ).fetchall():
        for row in map(LogRow._make, page):
            found.append(row)
            ops = decode_ops(row.ops, unit)
            if ops and isinstance(ops[0], Whole | Gone):
                return found[::-1]
    raise BadRow(f"{unit}: the log of the grove does not have all of version {version}")


def units_changed_between(connection: Any, since_ns: int, until_ns: int) -> list[str]:
    """The units with a version of this span of time. Reads the whole log: it has no index of times."""
    rows = connection.execute(
        "SELECT DISTINCT unit FROM grove.log WHERE at BETWEEN to_timestamp(%s) AND to_timestamp(%s) ORDER BY unit",
        (since_ns / 1e9, until_ns / 1e9),
    )
    return [unit for (unit,) in rows]


def heads_of_root(connection: Any, root: str, shards: int) -> list[UnitHead]:
    """The newest versions of all units of a root."""
    rows = connection.execute(
        "SELECT unit, version, token::text, base, gone FROM grove.units WHERE shard = %s AND root = %s ORDER BY unit",
        (shard_of(root, shards), root),
    )
    return [UnitHead(*row) for row in rows]


def lock_rows(connection: Any, shard: int, root: str, unit: str | None) -> None:
    """Lock the row of a unit, or those of a tree with all its units, until the transaction ends."""
    if unit is not None:
        connection.execute("SELECT FROM grove.units WHERE shard = %s AND unit = %s FOR UPDATE", (shard, unit))
        return
    connection.execute("SELECT FROM grove.trees WHERE shard = %s AND root = %s FOR UPDATE", (shard, root))
    units = "SELECT FROM grove.units WHERE shard = %s AND root = %s ORDER BY unit FOR UPDATE"
    connection.execute(units, (shard, root))


def generation_of(connection: Any, root: str, shards: int) -> int | None:
    """The generation of a tree; None if the grove has never had one of this root."""
    row = connection.execute(
        "SELECT generation FROM grove.trees WHERE shard = %s AND root = %s", (shard_of(root, shards), root)
    ).fetchone()
    return row[0] if row else None


def is_tree_gone(connection: Any, shard: int, root: str) -> bool:
    row = connection.execute("SELECT gone FROM grove.trees WHERE shard = %s AND root = %s", (shard, root)).fetchone()
    return bool(row and row[0])


def find_token(connection: Any, shard: int, units: Sequence[str], token: str) -> list[tuple[int, str, int]]:
    """Seq, unit and version of the rows that an attempt to commit made."""
    rows = connection.execute(
        "SELECT seq, unit, version FROM grove.log WHERE shard = %s AND unit = ANY(%s) AND token = %s ORDER BY seq",
        (shard, list(units), token),
    )
    return [tuple(row) for row in rows]


def lost_shards(connection: Any, cursors: Mapping[int, LogPosition]) -> list[int]:
    """The shards whose log does not have the row that this home has taken in last."""
    known = [(shard, position) for shard, position in cursors.items() if position.seq > 0]
    rows = connection.execute(
        """SELECT k.shard FROM unnest(%s::int[], %s::bigint[], %s::uuid[]) AS k(shard, seq, token)
        WHERE NOT EXISTS (SELECT FROM grove.log l WHERE l.shard = k.shard AND l.seq = k.seq AND l.token = k.token)
        ORDER BY k.shard""",
        ([s for s, _ in known], [p.seq for _, p in known], [p.token for _, p in known]),
    )
    return [shard for (shard,) in rows]


def chunk(connection: Any, digest: bytes) -> bytes:
    """The plain bytes of a chunk. Raises BadRow if it is missing or damaged."""
    row = connection.execute("SELECT data FROM grove.chunks WHERE sha256 = %s", (digest,)).fetchone()
    if row is None:
        raise BadRow(f"the grove does not have chunk {digest.hex()}")
    try:
        text = unpack_chunk(bytes(row[0]))
    except (steps.Error, ValueError) as error:
        raise BadRow(f"chunk {digest.hex()} is damaged: {error}") from None
    if sha256(text).digest() != digest:
        raise BadRow(f"chunk {digest.hex()} is damaged: it has another digest")
    return text


def pack_chunk(text: bytes) -> bytes:
    """A chunk as it is stored. Compressed only where that gains something: images and archives do not shrink."""
    packed = steps.whole(text).data
    return COMPRESSED + packed if len(packed) < len(text) * 9 // 10 else PLAIN + text


def unpack_chunk(stored: bytes) -> bytes:
    if stored[:1] == PLAIN:
        return stored[1:]
    text = bytearray()
    steps.apply(text, steps.Step(steps.WHOLE, stored[1:]), max_bytes=CHUNK_BYTES)
    return bytes(text)
