"""history.db: created privately, migrated, never followed through a link, set aside if it is damaged."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import apsw
import pytest

from store.errors import Busy
from store.history import schema
from store.history.database import AUTOCHECKPOINT_PAGES, HistoryDatabase, HistoryUnusable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def count(database: HistoryDatabase) -> int:
    return int(database.reader.execute("SELECT count(*) FROM snapshots").get)


def add(database: HistoryDatabase, name: str) -> None:
    with database.write() as db:
        db.execute("INSERT INTO snapshots VALUES (?, 1)", (name,))


def test_nothing_is_opened_before_the_first_use(path: Path) -> None:
    """A home opens even if its history cannot be opened."""
    HistoryDatabase(path).close()
    assert not path.exists()


def test_new_file_is_private_and_overwrites_what_it_deletes(path: Path) -> None:
    """Mode 0600, WAL, secure_delete on every connection, incremental vacuum."""
    database = HistoryDatabase(path)
    add(database, "a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(f"{path}-wal").stat().st_mode) == 0o600
    with database.write() as db:
        for connection in (db, database.reader):
            assert connection.execute("PRAGMA secure_delete").get == 1
            assert connection.execute("PRAGMA journal_mode").get == "wal"
            assert connection.execute("PRAGMA auto_vacuum").get == 2
            assert connection.execute("PRAGMA synchronous").get == 1
            assert connection.execute("PRAGMA wal_autocheckpoint").get == AUTOCHECKPOINT_PAGES
            assert connection.execute("PRAGMA application_id").get == schema.APPLICATION_ID
    database.close()


def test_a_transaction_is_committed_or_rolled_back(path: Path) -> None:
    """Nested transactions join the outer one."""
    database = HistoryDatabase(path)
    with database.write():
        add(database, "a")
        assert count(database) == 0
    with pytest.raises(apsw.ConstraintError), database.write() as db:
        db.execute("INSERT INTO snapshots VALUES ('b', 1); INSERT INTO snapshots VALUES ('a', 1)")
    assert count(database) == 1
    database.close()


def test_a_locked_file_is_busy_soon(path: Path) -> None:
    """A save must not wait for another process."""
    database, other = HistoryDatabase(path), HistoryDatabase(path)
    with database.write():
        with pytest.raises(Busy, match="locked"):
            add(other, "b")
        assert count(other) == 0  # readers never wait
    add(other, "b")
    assert count(database) == 1
    database.close()
    other.close()


@pytest.mark.parametrize("target", ["other.db", "missing"])
def test_a_symbolic_link_is_not_followed(path: Path, tmp_path: Path, target: str) -> None:
    """It could lead outside the home."""
    (tmp_path / "other.db").write_bytes(b"")
    path.symlink_to(tmp_path / target)
    with pytest.raises(OSError, match="regular file"):
        add(HistoryDatabase(path), "a")
    assert (tmp_path / "other.db").read_bytes() == b""


@pytest.mark.warns
@pytest.mark.parametrize("garbage", [b"garbage " * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_garbage_is_set_aside(path: Path, garbage: bytes) -> None:
    """It is kept under a name with the time, and a new history begins."""
    path.write_bytes(garbage)
    database = HistoryDatabase(path)
    add(database, "a")
    assert count(database) == 1
    [aside] = path.parent.glob("history.db.corrupt-*")
    assert aside.read_bytes() == garbage
    database.close()


@pytest.mark.warns
def test_a_database_of_another_program_is_set_aside_unchanged(path: Path) -> None:
    other = apsw.Connection(str(path))
    other.execute("CREATE TABLE precious (x); INSERT INTO precious VALUES (1)")
    other.close()
    before = path.read_bytes()
    database = HistoryDatabase(path)
    add(database, "a")
    [aside] = path.parent.glob("history.db.corrupt-*")
    assert aside.read_bytes() == before
    database.close()


@pytest.mark.warns
def test_damage_found_while_writing_sets_the_file_aside(path: Path) -> None:
    """The transaction fails; the next one writes to a new file, also in another process."""
    database, other = HistoryDatabase(path), HistoryDatabase(path)
    add(database, "a")
    assert count(other) == 1
    with pytest.raises(HistoryUnusable, match="set aside"), database.write():
        raise apsw.CorruptError("a damaged page")
    assert count(database) == 0
    assert count(other) == 0
    add(other, "b")
    assert count(database) == 1
    assert len(list(path.parent.glob("history.db.corrupt-*[0-9]"))) == 1
    database.close()
    other.close()


def test_a_deleted_file_is_created_again(path: Path) -> None:
    """The running process notices, and does not keep writing to a file without a name."""
    database = HistoryDatabase(path)
    add(database, "a")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    assert count(database) == 0
    add(database, "b")
    assert path.exists()
    database.close()


def test_a_newer_schema_is_left_alone(path: Path) -> None:
    """A newer GroveFS uses it after an upgrade."""
    database = HistoryDatabase(path)
    add(database, "a")
    with database.write() as db:
        db.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    database.close()
    with pytest.raises(HistoryUnusable, match="newer GroveFS"):
        add(HistoryDatabase(path), "b")
    assert not list(path.parent.glob("history.db.corrupt-*"))


def test_every_migration_is_applied_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older file gets the migrations it lacks and keeps its rows."""
    database = HistoryDatabase(path)
    add(database, "a")
    database.close()
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "ALTER TABLE snapshots ADD COLUMN extra TEXT"))
    monkeypatch.setattr(schema, "VERSION", len(schema.MIGRATIONS))
    for _ in range(2):
        database = HistoryDatabase(path)
        assert database.reader.execute("SELECT name, extra FROM snapshots").fetchall() == [("a", None)]
        assert database.reader.execute("PRAGMA user_version").get == schema.VERSION
        database.close()


def test_threads_have_their_own_readers(path: Path) -> None:
    """A reader of one thread is not used by another."""
    database = HistoryDatabase(path)
    add(database, "a")
    found: list[tuple[apsw.Connection, int]] = []
    threads = [threading.Thread(target=lambda: found.append((database.reader, count(database)))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [number for _, number in found] == [1, 1, 1]
    assert len({id(connection) for connection, _ in found}) == 3
    database.close()
