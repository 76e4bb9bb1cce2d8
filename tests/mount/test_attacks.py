"""Regression tests for races: stale caches, and concurrent writers."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from store import Message, Store
from store.disk.locks import TIMEOUT_S
from tests.mount.conftest import Mount, daemons_of, wait_until
from tests.mount.test_basics import edit, title
from tests.mount.test_caches import SOON_S, run

MountHome = Callable[..., Mount]


def test_lines_appended_by_many_children_are_all_kept(mounted: Mount) -> None:
    """Each child commits when it exits, while others write through the same descriptor."""
    path = mounted.sessions / "root/attachments/out.txt"
    script = 'for i in $(seq 300); do /bin/echo "line number $i" & done >> "$0"; wait'
    for _ in range(3):
        subprocess.run(["sh", "-c", script, path], check=True, stderr=subprocess.DEVNULL)
        assert sorted(path.read_text().splitlines()) == sorted(f"line number {i}" for i in range(1, 301))
        path.unlink()


def test_two_mounts_store_and_clear_rejects_concurrently(filled: Path, mount_home: MountHome) -> None:
    """Rule 3: a valid save returns 0 and an invalid one EBADMSG, whatever the other mount does to the rejects."""
    one, other = mount_home(filled), mount_home(filled)
    bad, good = one.sessions / "root/session.json", other.sessions / "root/session.json"
    answers: list[int] = []
    stop = threading.Event()

    def refuse() -> None:
        while not stop.is_set():
            try:
                bad.write_text("{")
            except OSError as error:
                answers.append(error.errno or -1)

    thread = threading.Thread(target=refuse)
    thread.start()
    try:
        for number in range(60):
            document = json.loads(good.read_text())
            document["title"] = f"Good {number}"
            good.write_text(json.dumps(document))
    finally:
        stop.set()
        thread.join()
    assert set(answers) <= {errno.EBADMSG, errno.ESTALE}, set(answers)
    assert title(good) == "Good 59"


def test_temp_file_older_than_a_commit_is_merged_after_dropped_caches(mounted: Mount) -> None:
    """Rule 8 holds even if the kernel forgot the node: the writer of the file is still known."""
    path = mounted.sessions / "root/session.json"
    temporary = path.with_name(".begun")
    temporary.write_text(path.read_text().replace("The root", "From an old copy"))
    with mounted.store() as store:
        store.append("root", [Message.user("meanwhile")])
    Path("/proc/sys/vm/drop_caches").write_text("2")
    temporary.rename(path)
    assert "meanwhile" in path.read_text()
    assert title(path) == "From an old copy"


def test_version_saved_while_hidden_is_not_deleted_by_rmdir(filled: Path, mount_home: MountHome) -> None:
    """Rule 8: rmdir deletes only the version that was unlinked."""
    one, other = mount_home(filled), mount_home(filled)
    directory = one.sessions / "root/children/grandchild"
    (directory / "session.json").unlink()
    edit(other.sessions / "root/children/grandchild/session.json", "A grandchild", "By a rival")
    for name in os.listdir(directory):
        subprocess.run(["rm", "-rf", directory / name], check=True)
    with pytest.raises(OSError, match="Directory not empty"):
        directory.rmdir()
    assert title(directory / "session.json") == "By a rival"


def test_save_after_rename_away_is_stale_if_another_writer_committed(filled: Path, mount_home: MountHome) -> None:
    """vim renames the old file away and writes a new one. A version committed in between is kept."""
    one, other = mount_home(filled), mount_home(filled)
    path = one.sessions / "root/session.json"
    text = path.read_text()
    path.rename(path.with_name("session.json~"))
    edit(other.sessions / "root/session.json", "The root", "By a rival")
    with pytest.raises(OSError, match="Stale file handle"):
        path.write_text(text.replace("The root", "By the late one"))
    assert title(path) == "By a rival"
    path.with_name("session.json~").unlink()


def test_readers_never_fail_while_an_agent_writes(mounted: Mount) -> None:
    """Each of several readers of one document gets the version reported at its own open."""
    path = mounted.sessions / "root/session.json"
    command: list[str | Path] = [sys.executable, "-c", "import sys\nwhile True: open(sys.argv[1]).read()", path]
    readers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(5)]
    try:
        with mounted.store() as store:
            for number in range(150):
                store.append("root", [Message.user(str(number))])
        assert [reader.poll() for reader in readers] == [None] * 5, [r.stderr.read() for r in readers if r.stderr]
    finally:
        for reader in readers:
            reader.kill()
            reader.communicate()


def test_change_during_a_large_listing_is_not_cached_away(mounted: Mount) -> None:
    """The listing is built in a thread; a concurrent change must keep it out of the cache."""
    raw = mounted.home / "sessions/root/big"
    raw.mkdir()
    for number in range(4000):
        (raw / f"{number:04}-{'x' * 40}").touch()
    big = mounted.sessions / "root/big"
    wait_until(big.exists, SOON_S)
    for number in range(10):
        lister = threading.Thread(target=os.listdir, args=(big,))
        lister.start()
        time.sleep(0.002 * number)
        (big / f"new{number}").touch()
        lister.join()
        assert f"new{number}" in os.listdir(big)
    subprocess.run(["rm", "-r", big], check=True)


def test_recreated_directory_is_watched_again(mounted: Mount) -> None:
    """It is removed and recreated directly in the home, often with the same inode number."""
    raw, shown = mounted.home / "sessions/root/d", mounted.sessions / "root/d"
    raw.mkdir()
    wait_until(shown.exists, SOON_S)
    assert os.listdir(shown) == []
    assert not (shown / "foo").exists()
    raw.rmdir()
    raw.mkdir()
    (raw / "early").touch()
    wait_until(lambda: (shown / "early").exists(), SOON_S)
    (raw / "foo").touch()
    wait_until(lambda: (shown / "foo").exists(), SOON_S)
    wait_until(lambda: sorted(os.listdir(shown)) == ["early", "foo"], SOON_S)
    subprocess.run(["rm", "-r", raw], check=True)


def test_locked_session_does_not_delay_others(mounted: Mount) -> None:
    """It is indexed when its lock is released; changes of other sessions are announced at once."""
    run("ls", "-lR", mounted.sessions)
    with mounted.store() as store:
        location = store.location("root")
        assert location is not None
        with store.names.core.locked(location):
            raw = mounted.home / "sessions/root/session.json"
            raw.write_text(raw.read_text() + "\n")
            (mounted.home / "sessions/pinned/late.txt").touch()
            wait_until(lambda: "late.txt" in os.listdir(mounted.sessions / "pinned"), TIMEOUT_S * 0.8)
    (mounted.home / "sessions/pinned/late.txt").unlink()


def test_names_created_or_removed_outside_can_be_opened(mounted: Mount) -> None:
    """O_CREAT opens a file created since the lookup, and creates one removed since."""
    shown, raw = mounted.sessions / "root/notes", mounted.home / "sessions/root/notes"
    assert not shown.exists()
    raw.write_text("theirs")
    with shown.open("a") as file:
        file.write(" and ours")
    assert raw.read_text() == "theirs and ours"
    assert shown.read_text() == "theirs and ours"
    raw.unlink()
    shown.write_text("again")
    assert raw.read_text() == "again"
    shown.unlink()


def test_rewinddir_shows_new_entries(mounted: Mount) -> None:
    """rewinddir(3)."""
    directory = mounted.sessions / "root"
    fd = os.open(directory, os.O_RDONLY)
    try:
        before = os.listdir(fd)
        (directory / "came").touch()
        assert set(os.listdir(fd)) == {*before, "came"}
    finally:
        os.close(fd)
        (directory / "came").unlink()


def test_deletion_survives_unmount_while_hidden(filled: Path, mount_home: MountHome) -> None:
    """Rule 2: rm has reported success."""
    mount = mount_home(filled)
    (mount.sessions / "root/session.json").unlink()
    subprocess.run(["fusermount3", "-u", mount.path], check=True)
    wait_until(lambda: not daemons_of(mount.path), SOON_S)  # umount returns before the daemon has exited
    assert not (filled / "sessions/root/session.json").exists()
    with Store.open(filled, background=False) as store:
        assert store.entry("root") is None


def test_hidden_name_stays_hidden_in_a_renamed_directory(mounted: Mount) -> None:
    (mounted.sessions / "root/session.json").unlink()
    (mounted.sessions / "root").rename(mounted.sessions / "other")
    assert "session.json" not in os.listdir(mounted.sessions / "other")


@pytest.mark.parametrize("name", [b"\xff\xfe.bin", "naïve 漢字\n.bin".encode()])
def test_attachment_can_have_any_name(mounted: Mount, name: bytes) -> None:
    path = os.path.join(os.fsencode(mounted.sessions), b"root/attachments", name)
    with open(path, "wb") as file:
        file.write(b"bytes")
    with open(path, "rb") as file:
        assert file.read() == b"bytes"
    os.rename(path, path + b"2")
    os.unlink(path + b"2")


def test_views_have_no_non_unicode_names(mounted: Mount) -> None:
    for view in ("views/by-title", "views/pinned", "transcripts", "search"):
        with pytest.raises(FileNotFoundError):
            os.stat(os.path.join(os.fsencode(mounted.path), view.encode(), b"\xe9"))
