"""Attachments that are renamed, removed and looked at while they are written; and attributes after a refusal."""

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


def test_a_new_attachment_has_its_name_while_it_is_open(attached: Path) -> None:
    """As on any disk: stat and ls find it, it can be read, and nobody else can create it."""
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


def test_renamed_while_open(attached: Path, mounted: Mount) -> None:
    """What was written before and after is under the new name, and nothing under the old one."""
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


def test_an_old_one_renamed_while_it_is_rewritten(attached: Path) -> None:
    old, new = attached / "old.txt", attached / "new.txt"
    old.write_text("committed")
    with old.open("r+") as file:
        file.write("Changed")
        old.rename(new)
    assert new.read_text() == "Changeded"
    assert not old.exists()


@pytest.mark.parametrize("is_new", [True, False])
def test_removed_while_open(attached: Path, mounted: Mount, *, is_new: bool) -> None:
    """A temporary without a name: its owner reads and writes it, and closing leaves nothing."""
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


def test_removed_and_made_again_while_open(attached: Path) -> None:
    """The first writer's bytes do not come back over the second's."""
    path = attached / "twice"
    with path.open("w") as first:
        first.write("first")
        first.flush()
        path.unlink()
        path.write_text("second")
    assert path.read_text() == "second"


def test_a_new_one_leaves_only_as_an_attachment(attached: Path) -> None:
    path = attached / "new.txt"
    with path.open("w") as file:
        file.write("text")
        file.flush()
        with pytest.raises(OSError, match="busy"):
            path.rename(attached.parent / "notes")
    path.rename(attached.parent / "notes")
    assert (attached.parent / "notes").read_text() == "text"


def test_the_last_one_removed_is_known_to_the_index(mounted: Mount, attached: Path) -> None:
    (only,) = os.listdir(attached)
    assert has_attachments(mounted, "root")
    with (attached / only).open():
        (attached / only).unlink()
    assert not has_attachments(mounted, "root")


def insert(database: sqlite3.Connection) -> None:
    for number in range(3):
        database.execute("INSERT INTO t VALUES (?)", (number,))
        database.commit()


def test_a_database_can_be_read_where_it_lies_but_not_written(attached: Path, place: Path) -> None:
    """SQLite sees that each version is a file of its own, and says so instead of writing to one that is replaced."""
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


def test_downloads_and_temporaries_of_tools(attached: Path, place: Path) -> None:
    """curl -o, sort -o over itself, rsync --inplace, git: each leaves what it should."""
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


# -- attributes after a refusal --------------------------------------------------------------------------------


def test_unzip_does_not_touch_the_session_that_stands(mounted: Mount, place: Path) -> None:
    """It overlooks that its bytes were refused, and sets their time; the session keeps its own, and it is told."""
    path = mounted.sessions / "root/session.json"
    before = path.stat()
    with zipfile.ZipFile(place / "bad.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo("session.json", (2001, 2, 3, 4, 5, 6)), '{"title": "cut')
    done = subprocess.run(["unzip", "-o", place / "bad.zip"], cwd=path.parent, capture_output=True, text=True)
    assert "Bad message" in done.stderr, done
    assert (path.stat().st_mtime_ns, path.stat().st_mode) == (before.st_mtime_ns, before.st_mode)
    assert title(path) == "The root"
    subprocess.run(["touch", "-d", "@1000000000", path], check=True)  # another process means what it says
    assert path.stat().st_mtime_ns == 10**18


def test_whoever_was_refused_may_set_times_after_the_next_success(mounted: Mount) -> None:
    path = mounted.sessions / "root/session.json"
    with pytest.raises(OSError, match="Bad message"):
        path.write_text("{")
    with pytest.raises(OSError, match="Bad message"):
        os.utime(path, ns=(1, 1))
    path.write_text(path.read_text().replace("The root", "Mended"))
    os.utime(path, ns=(10**18, 10**18))
    wait_until(lambda: path.stat().st_mtime_ns == 10**18)
