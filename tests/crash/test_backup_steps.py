"""A backup killed at every step can be restored, each session in its old or its new state."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from store import Message, Session, Store
from store.transfer.backup import backup
from store.transfer.backup.backup import check
from tests.builders import files_below, make_session
from tests.crash.test_every_step import MAX_STEPS, FaultAt

STEPS = {
    "make-dir",
    "backup-write",
    "backup-sync",
    "backup-announce",
    "remove",
    "move",
    "backup-manifest",
    "sync-dir",
} | {"backup-history"}

Tree = dict[str, bytes]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home whose sessions were changed, deleted and created since its backup in `before`."""
    home = tmp_path / "home"
    with Store.open(home, background=False, durability="normal") as store:
        root = make_session("root", messages=3)
        store.save(root)
        store.save(Session.new_child_of("child", root, "m", "a child"))
        store.save(make_session("gone"))
        (home / "sessions/root/directory").mkdir()
        (home / "sessions/root/directory/file").write_text("in it")
        store.attach("root", b"old", "text/plain")
        store.backup(tmp_path / "before")
        shutil.copytree(home / "sessions", tmp_path / "was/sessions")
        store.append("root", [Message.user("more")])
        next((home / "sessions/root/attachments").iterdir()).unlink()
        store.attach("root", b"new", "text/plain")
        shutil.rmtree(home / "sessions/root/directory")
        (home / "sessions/root/directory").write_text("a file now")
        store.delete("gone")
        store.save(make_session("new"))
    return home


def backup_until(home: Path, dest: Path, at: int) -> tuple[bool, set[str]]:
    """Run a backup in a child that is killed at step `at`.

    Returns whether it finished, and its steps.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        backup.BATCH_UNITS = 2
        fault = FaultAt(at)

        def step(name: str) -> None:
            os.write(writer, f"{name} ".encode())
            fault(name)

        store = Store.open(home, background=False, step=step)
        fault.armed = True
        store.backup(dest)
        os.write(writer, b"done ")
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as pipe:
        steps = pipe.read().decode().split()
    return "done" in steps, {step for step in steps if step in STEPS}


def sessions_of(files: Tree) -> dict[str, Tree]:
    """The files grouped by session directory: `root`, `root/children/child`, …"""
    found: dict[str, Tree] = {}
    for path, data in files.items():
        name = "/".join(path.split("/")[: 3 if "/children/" in path else 1])
        found.setdefault(name, {})[path] = data
    return found


def test_killed_backup_can_be_restored(home: Path, tmp_path: Path) -> None:
    was, now = (sessions_of(files_below(place)) for place in (tmp_path / "was", home))
    hit: set[str] = set()
    states: set[tuple[str, str]] = set()
    for at in range(1, MAX_STEPS):
        dest, second = tmp_path / f"dest{at}", tmp_path / f"second{at}"
        shutil.copytree(tmp_path / "before", dest, symlinks=True)
        done, steps = backup_until(home, dest, at)
        hit |= steps
        assert check(dest) == [], at
        with Store.open(second, background=False, durability="normal") as store:
            store.restore(dest)
        found = sessions_of(files_below(second))
        for name in {*was, *now}:
            here = found.get(name)
            assert here in (was.get(name), now.get(name)), (at, name)
            states.add((name, "now" if here == now.get(name) else "before"))
        if at % 5 == 0 or done:
            with Store.open(home, background=False, durability="normal") as store:
                store.backup(dest)
            assert files_below(dest) == files_below(home), at
            own = {path.name for path in (dest / ".grovefs-backup").rglob("*") if path.is_file()}
            assert own == {"lock", "history.db"}
        shutil.rmtree(dest)
        shutil.rmtree(second)
        if done:
            break
    assert done
    assert hit == STEPS
    assert states >= {(name, when) for name in ("root", "gone", "new") for when in ("before", "now")}


def test_incomplete_journal_line_is_ignored(home: Path, tmp_path: Path) -> None:
    """After a power failure the last line may be incomplete; nothing of it was applied."""
    dest = tmp_path / "before"
    journal = dest / ".grovefs-backup/journal.jsonl"
    for torn in (b'{"moves": [[".grovefs-backup/tmp/1", "sessions/ro', b"\0" * 100 + b"\n"):
        journal.write_bytes(torn)
        assert check(dest) == []
    with Store.open(home, background=False) as store:
        store.backup(dest)
    assert not journal.exists()
    assert files_below(dest) == files_below(home)
