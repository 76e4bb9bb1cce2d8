"""Contents of index.db in a comparable form: every table, without database-specific keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from store.index.database import Database
from store.index.schema import SHIFT


def dump_tables(home: Path) -> dict[str, list[Any]]:
    """Rows have locations instead of keys; full-text words have the row they belong to."""
    database = Database(home / ".grovefs/index.db")
    try:
        return _dump(database.reader)
    finally:
        database.close()


def _dump(db: apsw.Connection) -> dict[str, list[Any]]:
    names = {key: (root, child) for key, root, child in db.execute("SELECT key, root, child FROM sessions")}
    documents = {-key: (path, "") for key, path in db.execute("SELECT key, path FROM state_documents")}
    place = (1 << SHIFT) - 1

    def placed(row: Any) -> tuple[tuple[str, str], int]:
        return (documents[row], 0) if row < 0 else (names[row >> SHIFT], row & place)

    sessions = db.execute(
        "SELECT root, child, id, parent, title, pinned, model, status, project, created_ns, updated_ns, "
        "message_count, name, header_bytes, text_bytes, entry, append_at, updated_at_span, updated_at_text, "
        "user, persona, seed, opening, asked, answered FROM sessions"
    )
    texts = db.execute("SELECT row, role, message_id, created_ns, digest FROM texts").fetchall()
    places = dict(db.execute("SELECT number, row FROM texts"))
    pieces = db.execute("SELECT row, bytes FROM pieces")
    links = db.execute("SELECT row, url, times FROM links")
    db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab(main, search, instance)")
    words = db.execute("SELECT doc, offset, term FROM temp.words")
    return {
        "sessions": sorted(sessions, key=repr),
        "damaged": sorted(db.execute("SELECT root, child, reason FROM damaged")),
        "texts": sorted((*placed(row), *rest) for row, *rest in texts),
        "search": sorted((*placed(places[n]), offset, term) for n, offset, term in words),
        "pieces": sorted((names[row >> SHIFT], row & place, size) for row, size in pieces),
        "links": sorted((names[row >> SHIFT], row & place, *rest) for row, *rest in links),
        "marks": list(db.execute("SELECT * FROM marks")),
    }
