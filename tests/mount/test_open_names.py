"""Attachments renamed, removed and read while they are written; and attributes after a rejected write."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.mount.conftest import Mount, wait_until
from tests.mount.test_basics import title


@pytest.fixture
def attached(mounted: Mount) -> Path:
    return mounted.sessions / "root/attachments"


def has_attachments(mount: Mount, session_id: str) -> bool:
    with mount.store() as store:
        entry = store.entry(session_id)
        assert entry is not None
        return entry.has_attachments


def test_new_attachment_is_visible_while_open(attached: Path) -> None:
    """As on any filesystem: stat and ls find it, it can be read, and O_EXCL fails."""
    path = attached / "new.txt"
    with path.open("w") as file:
        file.write("first")
        file.flush()
        assert path.stat().st_size == 5
        assert "new.txt" in os.listdir(attached)
        assert path.read_text() == "first"
        with pytest.raises(FileExistsError):
            os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        file.write(" and more")
    assert path.read_text() == "first and more"


def test_attachment_renamed_while_open(attached: Path, mounted: Mount) -> None:
    """Data written before and after is under the new name, and the old name does not exist."""
    old, new = attached / "video.part", attached / "video.mp4"
    with old.open("w") as file:
        file.write("before")
        file.flush()
        old.rename(new)
        assert not old.exists()
        assert new.read_text() == "before"
        file.write(" and after")
    assert new.read_text() == "before and after"
    assert not old.exists()
    assert "video.part" not in os.listdir(mounted.home / "sessions/root/attachments")


def test_existing_attachment_renamed_while_rewritten(attached: Path) -> None:
    old, new = attached / "old.txt", attached / "new.txt"
    old.write_text("committed")
    with old.open("r+") as file:
        file.write("Changed")
        old.rename(new)
    assert new.read_text() == "Changeded"
    assert not old.exists()


@pytest.mark.parametrize("is_new", [True, False])
def test_attachment_removed_while_open(attached: Path, mounted: Mount, *, is_new: bool) -> None:
    """An unnamed temporary file: its owner can read and write it, and closing it leaves nothing."""
    path = attached / "temporary"
    if not is_new:
        path.write_text("committed")
    with path.open("w+") as file:
        file.write("text")
        file.flush()
        path.unlink()
        assert not path.exists()
        file.write(" and more")
        file.seek(0)
        assert file.read() == "text and more"
    assert not path.exists()
    assert not (mounted.home / "sessions/root/attachments/temporary").exists()
    path.write_text("another")
    assert path.read_text() == "another"


def test_attachment_removed_and_recreated_while_open(attached: Path) -> None:
    """The first writer's bytes do not replace the second's."""
    path = attached / "twice"
    with path.open("w") as first:
        first.write("first")
        first.flush()
        path.unlink()
        path.write_text("second")
    assert path.read_text() == "second"


def test_open_attachment_can_only_be_renamed_to_an_attachment(attached: Path) -> None:
    path = attached / "new.txt"
    with path.open("w") as file:
        file.write("text")
        file.flush()
        with pytest.raises(OSError, match="busy"):
            path.rename(attached.parent / "notes")
    path.rename(attached.parent / "notes")
    assert (attached.parent / "notes").read_text() == "text"


def test_removing_the_last_attachment_updates_the_index(mounted: Mount, attached: Path) -> None:
    (only,) = os.listdir(attached)
    assert has_attachments(mounted, "root")
    with (attached / only).open():
        (attached / only).unlink()
    assert not has_attachments(mounted, "root")


def insert(database: sqlite3.Connection) -> None:
    for number in range(3):
        database.execute("INSERT INTO t VALUES (?)", (number,))
        database.commit()


def test_sqlite_database_can_be_read_but_not_written(attached: Path, place: Path) -> None:
    """SQLite detects that each version is a separate file, and fails instead of writing to a replaced one."""
    with closing(sqlite3.connect(place / "data.db")) as database, database:
        database.execute("CREATE TABLE t (x)")
        database.execute("INSERT INTO t VALUES (1)")
    subprocess.run(["cp", place / "data.db", attached], check=True)
    with closing(sqlite3.connect(attached / "data.db")) as database:
        assert database.execute("SELECT x FROM t").fetchall() == [(1,)]
        with pytest.raises(sqlite3.OperationalError):
            insert(database)
    with closing(sqlite3.connect(attached / "data.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_downloads_and_temporary_files_of_tools(attached: Path, place: Path) -> None:
    """curl -o, sort -o onto its input, rsync --inplace and git work as usual."""
    (place / "source").write_text("b\na\n")
    subprocess.run(["curl", "-s", "-o", attached / "got", f"file://{place / 'source'}"], check=True)
    assert (attached / "got").read_text() == "b\na\n"
    subprocess.run(["sort", "-o", attached / "got", attached / "got"], check=True)
    assert (attached / "got").read_text() == "a\nb\n"
    subprocess.run(["rsync", "--inplace", "-c", place / "source", attached / "got"], check=True)
    assert (attached / "got").read_text() == "b\na\n"
    git: list[str | Path] = ["git", "-c", "user.name=n", "-c", "user.email=e", "-C", attached]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "got"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
    assert subprocess.run([*git, "fsck", "--strict"], capture_output=True).returncode == 0
    subprocess.run(["rm", "-rf", attached / ".git"], check=True)


# -- attributes after a rejected write -------------------------------------------------------------------------


def test_unzip_after_a_rejected_write_keeps_the_session_mtime(mounted: Mount, place: Path) -> None:
    """unzip ignores the rejected close and sets the time. That fails, and the session keeps its mtime."""
    path = mounted.sessions / "root/session.json"
    before = path.stat()
    with zipfile.ZipFile(place / "bad.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("session.json", (2001, 2, 3, 4, 5, 6)), '{"title": "cut')
    done = subprocess.run(["unzip", "-o", place / "bad.zip"], cwd=path.parent, capture_output=True, text=True)
    assert "Bad message" in done.stderr, done
    assert (path.stat().st_mtime_ns, path.stat().st_mode) == (before.st_mtime_ns, before.st_mode)
    assert title(path) == "The root"
    subprocess.run(["touch", "-d", "@1000000000", path], check=True)  # another process sets it on purpose
    assert path.stat().st_mtime_ns == 10**18


def test_times_can_be_set_after_the_next_successful_save(mounted: Mount) -> None:
    path = mounted.sessions / "root/session.json"
    with pytest.raises(OSError, match="Bad message"):
        path.write_text("{")
    with pytest.raises(OSError, match="Bad message"):
        os.utime(path, ns=(1, 1))
    path.write_text(path.read_text().replace("The root", "Corrected"))
    os.utime(path, ns=(10**18, 10**18))
    wait_until(lambda: path.stat().st_mtime_ns == 10**18)
