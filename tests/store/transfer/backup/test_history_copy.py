"""Backups carry the history, and a restore brings versions back where the home has none."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from store import Message, Store
from store.transfer.backup.backup import check
from tests.builders import make_session


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    return tmp_path / "backup"


def fill(store: Store) -> None:
    store.save(make_session("s1"))
    for number in range(3):
        store.append("s1", [Message.user(f"message {number}")])
    store.state.save_markdown("notes", "plan", "first")
    store.state.save_markdown("notes", "plan", "second")
    store.history.snapshot("then")


def numbers(store: Store, what: str) -> list[int]:
    return [version.number for version in reversed(store.history.log(what))]


def texts(store: Store, what: str) -> list[bytes | None]:
    return [store.history.read(version).main for version in reversed(store.history.log(what))]


def test_a_new_home_gets_the_versions_of_the_backup(home: Path, dest: Path, tmp_path: Path) -> None:
    """The restore itself is one more version; authors, names and snapshots come too."""
    with Store.open(home, background=False, author="agent") as store:
        fill(store)
        before = texts(store, "s1")
        assert not store.backup(dest).problems
    with Store.open(tmp_path / "other", background=False) as other:
        other.restore(dest)
        assert numbers(other, "s1") == [1, 2, 3, 4, 5]
        assert texts(other, "s1") == [*before, before[-1]]
        assert numbers(other, "state/notes/plan.md") == [1, 2, 3]
        assert other.history.log("s1")[-1].author.program == "agent"
        assert [snapshot.name for snapshot in other.history.snapshots()] == ["then"]
        assert other.check().is_clean
        other.append("s1", [Message.user("afterwards")])
        assert numbers(other, "s1") == [1, 2, 3, 4, 5, 6]


def test_a_home_keeps_its_own_versions(home: Path, dest: Path) -> None:
    """A session that was changed since the backup is restored over; its history continues."""
    with Store.open(home, background=False) as store:
        fill(store)
        store.backup(dest)
        store.append("s1", [Message.user("later")])
        store.restore(dest, "s1", overwrite=True)
        assert numbers(store, "s1") == [1, 2, 3, 4, 5, 6]
        assert texts(store, "s1")[3] == texts(store, "s1")[5]


def test_a_deleted_session_comes_back_with_its_versions(home: Path, dest: Path) -> None:
    with Store.open(home, background=False) as store:
        fill(store)
        store.backup(dest)
        store.delete("s1")
        store.trash.empty()
        store.restore(dest, "s1")
        assert numbers(store, "s1") == [1, 2, 3, 4, 5]
        assert store.check().is_clean


def test_without_history(home: Path, dest: Path, tmp_path: Path) -> None:
    """Neither copied nor restored; an earlier copy is removed."""
    copy = dest / ".grovefs-backup/history.db"
    with Store.open(home, background=False) as store:
        fill(store)
        store.backup(dest)
        assert copy.stat().st_mode & 0o777 == 0o600
    with Store.open(tmp_path / "other", background=False) as other:
        other.restore(dest, history=False)
        assert numbers(other, "s1") == [1]
    with Store.open(home, background=False) as store:
        store.backup(dest, history=False)
    assert not copy.exists()


def test_an_unchanged_history_is_not_copied_again(home: Path, dest: Path) -> None:
    with Store.open(home, background=False) as store:
        fill(store)
        store.backup(dest)
        first = (dest / ".grovefs-backup/history.db").stat().st_ino
        store.backup(dest)
        assert (dest / ".grovefs-backup/history.db").stat().st_ino == first
        store.append("s1", [Message.user("more")])
        store.backup(dest)
        assert (dest / ".grovefs-backup/history.db").stat().st_ino != first


@pytest.mark.warns
@pytest.mark.parametrize("damage", [b"garbage", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_copy_is_found_and_does_not_stop_a_restore(
    home: Path, dest: Path, tmp_path: Path, damage: bytes
) -> None:
    """The files are restored without their versions."""
    with Store.open(home, background=False) as store:
        fill(store)
        store.backup(dest)
    copy = dest / ".grovefs-backup/history.db"
    copy.write_bytes(damage)
    assert [found.path for found in check(dest)] == [".grovefs-backup/history.db"]
    with Store.open(tmp_path / "other", background=False) as other:
        other.restore(dest)
        assert numbers(other, "s1") == [1]
        assert other.check().is_clean
    with Store.open(home, background=False) as store:
        store.backup(dest)
    assert check(dest) == []


def test_versions_that_do_not_decode_are_left_out(home: Path, dest: Path, tmp_path: Path) -> None:
    with Store.open(home, background=False) as store:
        fill(store)
        store.backup(dest)
    copy = apsw.Connection(str(dest / ".grovefs-backup/history.db"))
    copy.execute("UPDATE versions SET main_data = x'ff' WHERE number = 3 AND main_bytes > 500")
    copy.close()
    with Store.open(tmp_path / "other", background=False) as other:
        other.restore(dest, "s1")
        assert numbers(other, "s1") == [1, 2, 5]
        assert other.check().is_clean


def test_a_copy_of_a_home_brings_its_history_too(home: Path, tmp_path: Path) -> None:
    """`rsync -a` of a home that no process has open."""
    with Store.open(home, background=False) as store:
        fill(store)
    shutil.copytree(home, tmp_path / "copy")
    with Store.open(tmp_path / "other", background=False) as other:
        other.restore(tmp_path / "copy")
        assert numbers(other, "s1") == [1, 2, 3, 4, 5]
