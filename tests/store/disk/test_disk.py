"""Disk: paths stay inside the home, and writes are made whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from store import Closed, Corrupt, InvalidName, layout
from store.disk import syscalls
from store.disk.disk import Disk
from store.disk.file import RACY_NS, File, NewFile, Stamp, Temp


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    home = tmp_path / "home"
    (home / ".grovefs/tmp").mkdir(parents=True)
    (home / "sessions").mkdir()
    opened = Disk(home)
    yield opened
    opened.close()


def temp_files(disk: Disk) -> list[str]:
    return os.listdir(disk.home / ".grovefs/tmp")


CALLS: dict[str, Callable[[Disk, str], object]] = {
    "read": Disk.read,
    "stat": Disk.stat,
    "open_to_read": Disk.open_to_read,
    "entries": Disk.entries,
    "make_dirs": Disk.make_dirs,
    "remove": Disk.remove,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_dot_dot_is_rejected(disk: Disk, call: Callable[[Disk, str], object]) -> None:
    (disk.home.parent / "outside").mkdir()
    with pytest.raises(InvalidName, match=r"'\.\.' is not allowed"):
        call(disk, "../outside/file")


def test_symbolic_links_are_not_followed(disk: Disk) -> None:
    """Neither as the last component nor on the way."""
    outside = disk.home.parent / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"secret")
    (disk.home / "directory").symlink_to(outside)
    (disk.home / "link").symlink_to(outside / "file")
    for path in ("link", "directory/file"):
        with pytest.raises(Corrupt, match="links are not followed"):
            disk.read(path)
    with pytest.raises(Corrupt, match="links are not followed"):
        disk.make_dirs("directory/new")
    assert disk.stat("directory/file") is None
    assert os.listdir(outside) == ["file"]


def test_read_returns_none_for_a_missing_file_and_rejects_other_types(disk: Disk) -> None:
    assert disk.read("missing") is disk.read("missing/file") is None
    os.mkfifo(disk.home / "fifo")
    for path in ("fifo", "sessions"):
        with pytest.raises(Corrupt, match="not a regular file"):
            disk.read(path)


def test_read_is_limited_in_size(disk: Disk) -> None:
    (disk.home / "file").write_bytes(b"12345")
    file = disk.read("file", limit=5)
    assert file is not None
    assert file.data == b"12345"
    with pytest.raises(Corrupt, match="5 bytes are over the limit of 4"):
        disk.read("file", limit=4)


@pytest.mark.parametrize("failing", ["write-temp", "sync-temp"])
def test_failed_write_leaves_no_temp_file(disk: Disk, failing: str) -> None:
    """The second of two files fails; the first is removed too."""
    seen: list[str] = []

    def step(name: str) -> None:
        seen.append(name)
        if seen.count(failing) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.step = step
    with pytest.raises(OSError, match="No space left"):
        disk.write_temps([NewFile("a", [b"a"]), NewFile("b", [b"b"])])
    assert temp_files(disk) == []


def test_files_are_all_written_before_the_first_sync(disk: Disk) -> None:
    seen: list[str] = []
    disk.step = seen.append
    disk.write_temps([NewFile("a", [b"a"]), NewFile("b", [b"b"])])
    assert seen == ["write-temp", "write-temp", "sync-temp", "sync-temp"]


def test_normal_durability_does_not_sync(disk: Disk) -> None:
    seen: list[str] = []
    disk.step, disk.durability = seen.append, "normal"
    disk.put(NewFile("file", [b"x"]))
    disk.sync_dirs([""])
    assert seen == ["write-temp", "move"]


def test_put_takes_mode_and_time(disk: Disk) -> None:
    """The mode of the replaced file, unless another one is given."""
    (disk.home / "file").write_bytes(b"old")
    (disk.home / "file").chmod(0o640)
    disk.put(NewFile("file", [b"n", b"ew"], like=disk.stat_file("file"), mtime_ns=10**18))
    info = (disk.home / "file").stat()
    assert ((disk.home / "file").read_bytes(), stat.S_IMODE(info.st_mode)) == (b"new", 0o640)
    assert info.st_mtime_ns == 10**18
    disk.put(NewFile("file", [b"x"], like=disk.stat_file("file"), mode=0o604))
    assert stat.S_IMODE((disk.home / "file").stat().st_mode) == 0o604
    assert temp_files(disk) == []


def test_make_dirs_removes_what_it_created_when_it_fails(disk: Disk) -> None:
    seen: list[str] = []

    def step(name: str) -> None:
        seen.append(name)
        if len(seen) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.step = step
    with pytest.raises(OSError, match="No space left"):
        disk.make_dirs("a/b/c")
    assert not (disk.home / "a").exists()
    assert disk.make_dirs("a/b") == ["a", "a/b"]
    assert disk.make_dirs("a/b") == []


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK])
def test_link_renames_where_hard_links_are_not_supported(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    (disk.home / "file").write_bytes(b"x")

    def fail(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", fail)
    disk.link("file", "other")
    assert not (disk.home / "file").exists()
    assert (disk.home / "other").read_bytes() == b"x"


def test_exchange_swaps_two_names(disk: Disk) -> None:
    (disk.home / "file").write_bytes(b"x")
    disk.exchange("file", "sessions")
    assert (disk.home / "sessions").read_bytes() == b"x"
    assert (disk.home / "file").is_dir()


def test_error_of_a_sync_says_that_the_change_was_made(disk: Disk) -> None:
    def step(name: str) -> None:
        if name == "sync-dir":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk.step = step
    with pytest.raises(OSError, match="new version is in place") as raised:
        disk.sync_after_change(["sessions"])
    assert raised.value.errno == errno.EIO


def test_rename_check_leaves_no_trace(disk: Disk) -> None:
    """Neither a file nor a new time of sessions/, which a backup tool would notice."""
    before = (disk.home / "sessions").stat().st_mtime_ns
    disk.check_rename_works()
    assert (disk.home / "sessions").stat().st_mtime_ns == before
    assert os.listdir(disk.home / "sessions") == temp_files(disk) == []


def test_rename_check_removes_the_probe_of_a_killed_process(disk: Disk) -> None:
    def step(name: str) -> None:
        if name == "remove":
            raise KeyboardInterrupt

    disk.step = step
    with pytest.raises(KeyboardInterrupt):
        disk.check_rename_works()
    assert os.listdir(disk.home / "sessions") == [layout.PROBE]
    disk.step = lambda name: None
    disk.check_rename_works()
    assert os.listdir(disk.home / "sessions") == temp_files(disk) == []


def test_stamp_of_a_recently_changed_file_matches_nothing() -> None:
    """It may change again within the resolution of its timestamps."""
    stamp = Stamp(1, 2, 10**18, 10**18)
    assert stamp.if_settled(10**18 + RACY_NS + 1) == stamp
    assert stamp.if_settled(10**18 + RACY_NS) != stamp


# -- finished temporary files --------------------------------------------------------------------------


def finished_temp(disk: Disk, content: bytes = b"content") -> Temp:
    temp = disk.open_temp()
    os.write(temp.fd, content)
    os.utime(temp.fd, ns=(1, 1))  # its last write was long ago
    return temp


def test_temp_gets_mode_and_mtime_of_the_request(disk: Disk) -> None:
    """It is not written again: the same file is used."""
    temp = finished_temp(disk)
    inode = os.fstat(temp.fd).st_ino
    assert disk.write_temps([NewFile("sessions/f", temp, mtime_ns=1_700_000_000_123_456_789, mode=0o640)]) == [
        temp.path
    ]
    info = os.fstat(temp.fd)
    assert (stat.S_IMODE(info.st_mode), info.st_mtime_ns) == (0o640, 1_700_000_000_123_456_789)
    assert (info.st_ino, (disk.home / temp.path).read_bytes()) == (inode, b"content")
    os.close(temp.fd)


def test_temp_without_mtime_gets_the_time_of_the_commit(disk: Disk) -> None:
    temp = finished_temp(disk)
    before_ns = time.time_ns() - 10**9  # the clock of a filesystem is coarser
    disk.write_temps([NewFile("sessions/f", temp)])
    assert os.fstat(temp.fd).st_mtime_ns > before_ns
    os.close(temp.fd)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the owner")
def test_temp_gets_mode_and_owner_of_the_replaced_file(disk: Disk) -> None:
    temp = finished_temp(disk)
    replaced = File(b"old", Stamp(1, 2, 3, 4), 0o604, 1234, 4321)
    disk.write_temps([NewFile("sessions/f", temp, replaced)])
    info = os.fstat(temp.fd)
    assert (stat.S_IMODE(info.st_mode), info.st_uid, info.st_gid) == (0o604, 1234, 4321)
    os.close(temp.fd)


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_failure_keeps_the_callers_temp_and_removes_others(disk: Disk, failing: int) -> None:
    """Writing the other file fails, or one of the two syncs. The caller may try again with its file."""
    temp = finished_temp(disk)
    steps: list[str] = []

    def step(name: str) -> None:
        steps.append(name)
        if len(steps) == failing + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    disk.step = step
    with pytest.raises(OSError, match="No space left"):
        disk.write_temps([NewFile("sessions/f", temp), NewFile("sessions/g", [b"other"])])
    assert steps == ["write-temp", "sync-temp", "sync-temp"][: failing + 1]
    assert temp_files(disk) == [temp.path.rpartition("/")[2]]
    assert os.pread(temp.fd, 100, 0) == b"content"
    os.close(temp.fd)


def test_closed_disk_uses_no_descriptor(tmp_path: Path) -> None:
    """Its number may belong to another file by then."""
    disk = Disk(tmp_path)
    (tmp_path / "file").write_bytes(b"x")
    disk.close()
    fds = [os.open("/", os.O_RDONLY | os.O_DIRECTORY) for _ in range(8)]
    try:
        for call in (disk.stat, disk.read, disk.entries, disk.open_to_read, disk.stamp):
            with pytest.raises(Closed, match="is closed"):
                call("file")
    finally:
        for fd in fds:
            os.close(fd)
    disk.close()  # twice is harmless


def test_directories_are_opened_once_in_a_block_that_holds_them(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renames, syncs and stats of one commit share a descriptor, which is closed at its end."""
    (disk.home / "sessions/s1").mkdir()
    opened: list[str] = []

    def open_beneath(fd: int, path: str, *how: Any) -> int:
        opened.append(path)
        return syscalls.open_beneath(fd, path, *how)

    monkeypatch.setattr("store.disk.disk.open_beneath", open_beneath)
    with disk.holding_dirs():
        temps = disk.write_temps([NewFile(f"sessions/s1/{name}", [b"text"]) for name in ("a", "b")])
        for temp, name in zip(temps, ("a", "b"), strict=True):
            disk.move(temp, f"sessions/s1/{name}")
        disk.sync_dirs(["sessions/s1"])
        assert disk.stat("sessions/s1/a") is not None
        assert disk.stat("sessions/s1/missing") is None
        with disk.holding_dirs(), disk.open_dir("sessions/s1") as held:
            pass
    assert opened == [".grovefs/tmp", "sessions/s1"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)


def test_another_thread_does_not_use_held_directories(disk: Disk) -> None:
    """They are closed when the block of their own thread ends."""
    with disk.holding_dirs(), disk.open_dir("sessions") as held, ThreadPoolExecutor() as threads:

        def open_here() -> int:
            with disk.open_dir("sessions") as fd:
                return fd

        assert threads.submit(open_here).result() != held
