"""Modes and owners of files and directories made through the mount, and the deepest paths."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mount.conftest import Mount, wait_until
from tests.mount.test_other_users import as_user
from tests.mount.test_other_users import user as user

MountHome = Callable[..., Mount]
SPECIAL = stat.S_ISUID | stat.S_ISGID
# One directory of each kind that holds files without a meaning to the store.
DIRECTORIES = ("sessions/root", "sessions/root/attachments", "sessions/root/foreign", "state/notes")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def places(mounted: Mount) -> list[tuple[Path, Path]]:
    """Each directory in the mount, and on disk."""
    for name in DIRECTORIES:
        (mounted.path / name).mkdir(exist_ok=True)
    return [(mounted.path / name, mounted.home / name) for name in DIRECTORIES]


@pytest.mark.parametrize("name", ["new.md", "new.bin"])
def test_b1_setuid_and_setgid_are_never_stored(places: list[tuple[Path, Path]], name: str) -> None:
    """Neither by open, nor by chmod of a name or a descriptor, whatever the caller asks for."""
    for directory, on_disk in places:
        path, kept = directory / name, on_disk / name
        with umask(0):
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o6755)
        try:
            os.write(fd, b"#!/bin/sh\n")
            os.fchmod(fd, 0o6711)
        finally:
            os.close(fd)
        assert mode_of(path) == mode_of(kept) == 0o711, path
        path.chmod(0o6755)
        assert mode_of(path) == mode_of(kept) == 0o755, path
        path.unlink()


def test_b1_directories_get_no_setuid_or_setgid(places: list[tuple[Path, Path]]) -> None:
    for directory, on_disk in places:
        path = directory / "made"
        with umask(0):
            os.mkdir(path, 0o6777)
        assert mode_of(path) == mode_of(on_disk / "made") == 0o777
        path.chmod(0o7750)
        assert mode_of(path) == mode_of(on_disk / "made") == 0o1750
        path.rmdir()


def test_b1_setgid_set_on_disk_stays_on_a_directory(mounted: Mount) -> None:
    """Shared homes set it, and chmod repeats the bit it sees."""
    path, on_disk = mounted.sessions / "root/shared", mounted.home / "sessions/root/shared"
    on_disk.mkdir()
    on_disk.chmod(0o2770)
    wait_until(lambda: path.exists() and mode_of(path) == 0o2770)
    path.chmod(0o2750)
    assert mode_of(on_disk) == 0o2750
    (path / "below").mkdir()
    assert mode_of(on_disk / "below") & stat.S_ISGID


def test_b5_modes_are_those_of_the_caller(filled: Path, mount_home: MountHome) -> None:
    """The umask of the daemon does not count, that of the caller does; mkdir uses its mode."""
    with umask(0o077):
        mount = mount_home(filled)
    for name in DIRECTORIES:
        directory = mount.path / name
        directory.mkdir(exist_ok=True)
        with umask(0o002):
            os.close(os.open(directory / "file.md", os.O_WRONLY | os.O_CREAT, 0o666))
            (directory / "file.md").write_text("x")
            os.mkdir(directory / "made", 0o775)
        assert mode_of(directory / "file.md") == mode_of(mount.home / name / "file.md") == 0o664, name
        assert mode_of(directory / "made") == mode_of(mount.home / name / "made") == 0o775, name


def test_b5_a_new_file_without_write_permission_can_be_written(places: list[tuple[Path, Path]]) -> None:
    """git creates its objects with mode 0444."""
    for directory, on_disk in places:
        fd = os.open(directory / "object.md", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o444)
        os.write(fd, b"content")
        os.close(fd)
        assert (on_disk / "object.md").read_bytes() == b"content"
        assert mode_of(directory / "object.md") == 0o444


def test_root_may_change_the_owner_of_foreign_files_and_attachments(
    filled: Path, mount_home: MountHome, user: int
) -> None:
    """The owner is kept on disk and by later writes. Documents keep theirs; other users get EPERM."""
    mount = mount_home(filled, "--allow-other")
    for name in ("sessions/root/attachments/a.bin", "sessions/root/foreign.txt"):
        path, on_disk = mount.path / name, mount.home / name
        path.write_bytes(b"one")
        os.chown(path, user, user)
        assert (on_disk.stat().st_uid, on_disk.stat().st_gid) == (user, user)
        path.write_bytes(b"two")
        assert (path.stat().st_uid, on_disk.stat().st_uid, on_disk.read_bytes()) == (user, user, b"two")
        fd = os.open(path, os.O_RDWR)
        os.fchown(fd, 0, 0)
        os.close(fd)
        assert on_disk.stat().st_uid == path.stat().st_uid == 0
    with pytest.raises(PermissionError):
        os.chown(mount.sessions / "root/session.json", user, user)
    with pytest.raises(PermissionError):
        os.chown(mount.sessions / "root", user, user)


def test_other_users_cannot_change_owners(filled: Path, mount_home: MountHome, user: int) -> None:
    for directory in (filled, filled / "sessions", filled / "sessions/root", filled / "sessions/root/attachments"):
        directory.chmod(0o755)
    mount = mount_home(filled, "--allow-other")
    path = mount.sessions / "root/attachments/theirs"
    path.write_bytes(b"x")
    os.chown(path, user, user)
    mount.path.parent.chmod(0o755)
    done = as_user(user, "chown", "0:0", path)
    assert done.returncode != 0
    assert "Operation not permitted" in done.stderr
    assert as_user(user, "chmod", "4700", path).returncode == 0
    assert mode_of(path) == 0o700


def test_b9_directories_deeper_than_path_max_can_be_removed(mounted: Mount) -> None:
    """A program reaches them step by step."""
    name, depth = "d" * 200, 0
    fds = [os.open(mounted.sessions / "root", os.O_RDONLY | os.O_DIRECTORY)]
    try:
        while depth < 25:
            os.mkdir(name, dir_fd=fds[-1])
            fds.append(os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fds[-1]))
            depth += 1
        fd = os.open("file", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=fds[-1])
        os.write(fd, b"deep")
        assert os.pread(fd, 10, 0) == b"deep"
        os.close(fd)
        assert os.listdir(fds[-1]) == ["file"]
        os.unlink("file", dir_fd=fds[-1])
        while depth:
            os.close(fds.pop())
            os.rmdir(name, dir_fd=fds[-1])
            depth -= 1
    finally:
        for fd in fds:
            os.close(fd)
    assert name not in os.listdir(mounted.home / "sessions/root")


def test_b9_a_name_that_is_too_long_is_still_refused(mounted: Mount) -> None:
    with pytest.raises(OSError, match="too long") as raised:
        (mounted.sessions / "root" / ("x" * 256)).mkdir()
    assert raised.value.errno == errno.ENAMETOOLONG


def test_b6_a_directory_in_attachments_is_not_damage(mounted: Mount) -> None:
    """`git init` and `rsync --delay-updates` create some."""
    subprocess.run(["git", "init", "-q", mounted.sessions / "root/attachments"], check=True)
    with mounted.store() as store:
        assert not [f for f in store.check().findings if "attachments" in f.path]
