"""Upgrade of an index.db of schema 1: it is rebuilt, and journal entries are kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from store import Message, Session, Store
from store.index import schema
from store.index.database import Database
from tests.builders import files_below, make_session

FIRST_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY, root TEXT NOT NULL, child TEXT NOT NULL, id TEXT NOT NULL, parent TEXT,
    title TEXT NOT NULL, pinned INTEGER NOT NULL, model TEXT NOT NULL, status TEXT, project TEXT,
    created_ns INTEGER NOT NULL, updated_ns INTEGER NOT NULL, message_count INTEGER NOT NULL, entry TEXT NOT NULL,
    extra TEXT, main_stamp TEXT NOT NULL, side_stamp TEXT, append_at INTEGER, updated_at_span INTEGER,
    updated_at_text TEXT
) STRICT;
CREATE UNIQUE INDEX sessions_location ON sessions (root, child);
CREATE INDEX sessions_id ON sessions (id);
CREATE INDEX sessions_updated ON sessions (updated_ns DESC, key);
CREATE INDEX sessions_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_pinned ON sessions (root) WHERE pinned;
CREATE INDEX sessions_project ON sessions (project) WHERE project IS NOT NULL;
CREATE TABLE damaged (
    root TEXT NOT NULL, child TEXT NOT NULL, main_stamp TEXT NOT NULL, side_stamp TEXT, reason TEXT NOT NULL,
    PRIMARY KEY (root, child)
) STRICT, WITHOUT ROWID;
CREATE TABLE texts (
    row INTEGER PRIMARY KEY, role TEXT NOT NULL, message_id TEXT, created_ns INTEGER, digest INTEGER NOT NULL
) STRICT;
CREATE VIRTUAL TABLE search USING fts5(
    text, content='', contentless_delete=1, tokenize="unicode61 remove_diacritics 2"
);
CREATE TABLE changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, root TEXT NOT NULL, child TEXT NOT NULL, what TEXT NOT NULL,
    at_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE marks (
    root TEXT NOT NULL, child TEXT NOT NULL, moves TEXT NOT NULL, touched TEXT NOT NULL, PRIMARY KEY (root, child)
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 1;
PRAGMA application_id = 1196576598;
INSERT INTO meta VALUES ('epoch', 'an epoch long ago'), ('clean', 1), ('feed_floor', 3);
INSERT INTO changes (root, child, what, at_ns) VALUES ('s1', '', 'saved', 1), ('s1', 'c1', 'saved', 2);
INSERT INTO texts VALUES (16777216, '', NULL, NULL, 1), (16777217, 'user', 'm', 1, 2);
INSERT INTO search (rowid, text) VALUES (16777216, 'a title that was'), (16777217, 'words that were');
INSERT INTO damaged VALUES ('gone', '', '[1,2,3,4]', NULL, 'no longer');
"""
_ROW = (
    "INSERT INTO sessions VALUES (?, ?, '', ?, NULL, 'stale', 0, 'm', NULL, NULL, 1, 1, 9, '{}', NULL, "
    "'[1,1,1,1]', NULL, 1, 1, 'x')"
)


def make_first_index(home: Path, *, journal_entry: bool = False) -> None:
    """Create two sessions and an index.db of schema 1 with outdated rows."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1", title="before"))
        store.save(Session.new_child("c1", "s1", "m", "a child"))
    for leftover in (home / ".grovefs").glob("index.db*"):
        leftover.unlink()
    db = apsw.Connection(str(home / ".grovefs/index.db"))
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(FIRST_SCHEMA)
    db.executemany(_ROW, [(1, "s1", "s1"), (2, "gone", "gone")])
    if journal_entry:
        raw = (home / "sessions/s1/session.json").read_bytes()
        (home / ".grovefs/tmp/new").write_bytes(raw.replace(b"msg-0", b"pending"))
        moves = json.dumps([[".grovefs/tmp/new", "sessions/s1/session.json"]])
        db.execute("INSERT INTO marks VALUES ('s1', '', ?, ?)", (moves, '[["s1", null]]'))
    db.close()


def test_old_index_is_rebuilt_from_the_sessions(home: Path) -> None:
    make_first_index(home)
    before = files_below(home)
    with Store.open(home, background=False) as store:
        assert store.ids() == ["s1", "s1/c1"]
        assert store.check().findings == []
        assert [str(hit.location) for hit in store.search("before", by_session=True)] == ["s1"]
        assert store.search("words that were") == []
        assert files_below(home) == before
        store.append("s1", [Message.user("later")])
        assert store.search("later")
    database = Database(home / ".grovefs/index.db")
    try:
        assert database.reader.execute("PRAGMA user_version").get == schema.VERSION
        assert database.get_meta("epoch") != "an epoch long ago"
    finally:
        database.close()


def test_unfinished_commit_of_schema_1_is_completed(home: Path) -> None:
    """Rule 2: the journal is the only table that is not derived."""
    make_first_index(home, journal_entry=True)
    with Store.open(home, background=False) as store:
        assert b"pending" in (store.get_document("s1", "session.json") or b"")
        assert store.check().findings == []
        assert store.search("pending")
        assert store.search('"msg-0"') == []


@pytest.mark.parametrize("way", ["bad journal entry", "missing table"])
def test_damaged_old_index_is_rebuilt(
    home: Path, way: str, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    """A journal entry that names missing files, or a missing table."""
    request.node.add_marker(pytest.mark.warns)
    make_first_index(home)
    db = apsw.Connection(str(home / ".grovefs/index.db"))
    damage: dict[str, Callable[[], object]] = {
        "bad journal entry": lambda: db.execute(
            """INSERT INTO marks VALUES ('s1', '', '[["a", "b"]]', '[["s1", null]]')"""
        ),
        "missing table": lambda: db.execute("DROP TABLE marks"),
    }
    damage[way]()
    db.close()
    with Store.open(home, background=False) as store:
        assert store.ids() == ["s1", "s1/c1"]
        assert store.check().is_clean
