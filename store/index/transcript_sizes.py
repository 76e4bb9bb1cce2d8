"""Sizes of the parts of transcripts, which make the size of a transcript a read of one row.

A commit updates the sizes of changed messages in its own transaction; `fulltext` determines which
ones changed. The row of a session has the sum, and an append adds to it without reading earlier
messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import orjson

from store.documents import display_names, transcript
from store.documents.transcript import PieceSize
from store.index.schema import SHIFT
from store.layout import Location

ROW_MASK = (1 << SHIFT) - 1
Source = str | dict[str, Any]  # a session's summary, or a message


def put(db: apsw.Connection, *updates: tuple[int, Sequence[int], Sequence[tuple[int, PieceSize]]]) -> None:
    """Replace the sizes of changed pieces, for each session: its first row, and stale and new rows counted from it."""
    removed = {base: _remove(db, base, stale) for base, stale, _ in updates if stale}
    pieces = [(base + row, size.size_bytes) for base, _, sizes in updates for row, size in sizes]
    if pieces:
        db.executemany("INSERT OR REPLACE INTO pieces VALUES (?, ?)", pieces)
    links = [
        (base + row, url, times)
        for base, _, sizes in updates
        for row, size in sizes
        if size.links
        for url, times in size.links.items()
    ]
    if links:
        db.executemany("INSERT OR REPLACE INTO links VALUES (?, ?, ?)", links)
    added = (
        (sum(size.size_bytes for _, size in sizes) - removed.get(base, 0), base >> SHIFT) for base, _, sizes in updates
    )
    changed = [change for change in added if change[0]]
    if changed:
        db.executemany("UPDATE sessions SET text_bytes = text_bytes + ? WHERE key = ?", changed)


def _remove(db: apsw.Connection, base: int, stale: Sequence[int]) -> int:
    """Delete the sizes and links of replaced pieces; returns how many bytes they had."""
    rows = [(base + row,) for row in stale]
    if db.execute("SELECT 1 FROM links WHERE row BETWEEN ? AND ? LIMIT 1", (base, base + ROW_MASK)).fetchone():
        db.executemany("DELETE FROM links WHERE row = ?", rows)
    return sum(bytes_ for (bytes_,) in db.executemany("DELETE FROM pieces WHERE row = ? RETURNING bytes", rows))


def measure(row: int, source: Source) -> PieceSize:
    """The size and links of the transcript part of a row."""
    if isinstance(source, str):
        return PieceSize(transcript.length(transcript.render_summary(source)), {})
    return transcript.measure(source, (row & ROW_MASK) - 1)


def purge(db: apsw.Connection, key: int) -> None:
    """Remove all sizes and links of a session."""
    between = (key << SHIFT, ((key + 1) << SHIFT) - 1)
    db.execute("DELETE FROM pieces WHERE row BETWEEN ? AND ?", between)
    db.execute("DELETE FROM links WHERE row BETWEEN ? AND ?", between)
    db.execute("UPDATE sessions SET text_bytes = 0 WHERE key = ?", (key,))


def sizes_match(db: apsw.Connection, key: int, sources: Iterable[Source]) -> bool:
    """Whether the stored sizes and links of a session match its files."""
    first, last = key << SHIFT, ((key + 1) << SHIFT) - 1
    measured = [(first + place, measure(first + place, source)) for place, source in enumerate(sources)]
    known = db.execute("SELECT row, bytes FROM pieces WHERE row BETWEEN ? AND ? ORDER BY row", (first, last)).fetchall()
    links = db.execute("SELECT row, url, times FROM links WHERE row BETWEEN ? AND ?", (first, last)).fetchall()
    return (
        known == [(row, m.size_bytes) for row, m in measured]
        and sorted(links) == sorted(_links(measured))
        and _row_matches(db, key, sum(m.size_bytes for _, m in measured))
    )


def _row_matches(db: apsw.Connection, key: int, text_bytes: int) -> bool:
    """Whether a session's row has the right total size, name and header size."""
    from store.model.index_entry import IndexEntry

    columns = "root, child, opening, entry, name, header_bytes, text_bytes"
    row = db.execute(f"SELECT {columns} FROM sessions WHERE key = ?", (key,)).fetchone()
    if row is None:
        return False
    root, child, opening, entry, *shown = row
    location, record = Location(root, child or None), IndexEntry.model_validate(orjson.loads(entry))
    header_bytes = transcript.length(transcript.render_header(record))
    return tuple(shown) == (display_names.session_name(record.title, opening, location), header_bytes, text_bytes)


def links_of(db: apsw.Connection, key: int) -> dict[str, int]:
    """The attachment URLs in a session's transcript, with the number of links."""
    between = (key << SHIFT, ((key + 1) << SHIFT) - 1)
    rows = db.execute("SELECT url, sum(times) FROM links WHERE row BETWEEN ? AND ? GROUP BY url", between)
    return {url: int(times) for url, times in rows}


def sessions_with_links(db: apsw.Connection) -> set[int]:
    """The keys of all sessions whose transcripts link to attachments."""
    return {key for (key,) in db.execute(f"SELECT DISTINCT row >> {SHIFT} FROM links")}


def _links(measured: Iterable[tuple[int, PieceSize]]) -> Iterable[tuple[int, str, int]]:
    return ((row, url, times) for row, m in measured for url, times in m.links.items())
