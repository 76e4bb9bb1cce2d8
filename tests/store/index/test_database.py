"""index.db: garbage, other databases, and other versions of the schema."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from store import StoreError
from store.index import schema
from tests.builders import files_below, make_session
from tests.store.rejection import open_store


@pytest.mark.warns
@pytest.mark.parametrize("garbage", [b"garbage " * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_garbage_index_is_rebuilt(home: Path, caplog: pytest.LogCaptureFixture, garbage: bytes) -> None:
    """The garbage is kept next to it, with a warning, and no session is lost (rule 1)."""
    with open_store(home) as store:
        store.save(make_session("s1"))
    before = files_below(home)
    (home / ".grovefs/index.db").write_bytes(garbage)
    with open_store(home) as store:
        assert [entry.id for entry in store.entries()] == ["s1"]
        assert store.check().is_clean
    assert (home / ".grovefs/index.db.corrupt").read_bytes() == garbage
    assert "rebuilt from the sessions" in caplog.text
    assert files_below(home) == before


@pytest.mark.warns
def test_foreign_database_is_set_aside(home: Path) -> None:
    """A valid SQLite file of another program is kept too."""
    open_store(home).close()
    path = home / ".grovefs/index.db"
    path.unlink()
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE precious (x); INSERT INTO precious VALUES (1)")
    other.close()
    open_store(home).close()
    other = apsw.Connection(str(home / ".grovefs/index.db.corrupt"))
    assert other.execute("SELECT x FROM precious").get == 1
    other.close()


def test_empty_index_file_is_filled(home: Path) -> None:
    """Without a warning: nothing could be lost."""
    with open_store(home) as store:
        store.save(make_session("s1"))
    (home / ".grovefs/index.db").write_bytes(b"")
    with open_store(home) as store:
        assert [entry.id for entry in store.entries()] == ["s1"]


def test_index_of_a_newer_version_is_not_changed(home: Path) -> None:
    """Opening fails; after an upgrade everything is as before."""
    with open_store(home) as store:
        store.save(make_session("s1"))
    path = home / ".grovefs/index.db"
    db = apsw.Connection(str(path))
    db.execute("PRAGMA user_version = 1000")
    db.close()
    before, files = path.read_bytes(), files_below(home)
    with pytest.raises(StoreError, match=r"created by a newer GroveFS \(schema 1000"):
        open_store(home)
    assert path.read_bytes() == before
    assert files_below(home) == files
    assert not (home / ".grovefs/index.db.corrupt").exists()


def test_index_of_an_older_version_is_rebuilt(home: Path) -> None:
    """Its tables are derived. A pending journal entry is not, and is completed first."""
    with open_store(home) as store:
        store.save(make_session("s1", title="before"))
        data = store.get_document("s1", "session.json")
        assert data is not None
    (home / ".grovefs/tmp/new").write_bytes(data.replace(b"before", b"after"))
    db = apsw.Connection(str(home / ".grovefs/index.db"))
    entry = ("s1", "", '[[".grovefs/tmp/new", "sessions/s1/session.json"]]', '[["s1", null]]')
    db.execute("INSERT INTO marks (root, child, moves, touched) VALUES (?, ?, ?, ?)", entry)
    db.execute("ALTER TABLE sessions DROP COLUMN append_at; PRAGMA user_version = 1")
    db.close()
    with open_store(home) as store:
        assert [entry.id for entry in store.entries()] == ["s1"]
        assert b"after" in (store.get_document("s1", "session.json") or b"")
        assert store.check().is_clean


def test_older_index_in_use_is_not_upgraded(home: Path) -> None:
    with open_store(home):
        db = apsw.Connection(str(home / ".grovefs/index.db"))
        db.execute("PRAGMA user_version = 1")
        with pytest.raises(StoreError, match="older GroveFS"):
            open_store(home)
        db.execute(f"PRAGMA user_version = {schema.VERSION}")
        db.close()
