"""Scratch directories, disks that fill up, and a disk that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from store import Store
from store.check.finding import Finding
from tests.crash.scenarios import make_home_after_mount

DISK, MEMORY = Path("/var/tmp"), Path("/dev/shm")  # in memory a sync costs nothing
PAGE_BYTES = 4096

Tree = dict[str, bytes | None]


def new_place(*, in_memory: bool = False) -> Path:
    """Create a scratch directory; those for mounts are outside /tmp, where editors save differently."""
    base = MEMORY if in_memory and os.access(MEMORY, os.W_OK) else DISK
    return Path(tempfile.mkdtemp(prefix=f"{_prefix(os.getsid(0))}-", dir=base))


def places_of(session: int) -> list[Path]:
    """The scratch directories that the processes of a session have not removed yet."""
    return [place for base in (DISK, MEMORY) for place in base.glob(f"{_prefix(session)}-*")]


def _prefix(session: int) -> str:
    return f"grovefs-torture-{session}"


@contextmanager
def scratch(*, in_memory: bool = False) -> Iterator[Path]:
    """A scratch directory that is removed at the end."""
    place = new_place(in_memory=in_memory)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def tree_below(home: Path) -> Tree:
    """Every user file by path, and every directory (None): to show that nothing changed."""
    parts = (home / "sessions", home / "projects", home / "state")
    found = [path for part in parts for path in sorted(part.rglob("*"))]
    return {str(path.relative_to(home)): None if path.is_dir() else path.read_bytes() for path in found}


def files_of(tree: Tree) -> Tree:
    """Non-empty content: a kill may leave a directory without a session, or an empty log."""
    return {path: data for path, data in tree.items() if data}


class Ground:
    """A populated home and copies of it, one per case."""

    def __init__(self, place: Path, aside: Path | None = None) -> None:
        self.place = place
        self.origin = (aside or place) / "origin"
        make_home_after_mount(self.origin)
        self.before = tree_below(self.origin)


def flaws(store: Store) -> list[Finding]:
    """The findings of `check`, except for the foreign files that belong to the home."""
    return [finding for finding in store.check().findings if finding.kind != "foreign-file"]


def require_sound(store: Store) -> None:
    """Nothing is damaged. A file may be newer than the history, which never stops a save, and is recorded now."""
    found = [finding for finding in flaws(store) if finding.kind != "history-behind"]
    assert not found, found
    store.check(repair=True)
    assert not flaws(store), flaws(store)


def _sh(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr.strip()}"


class SmallDisk:
    """A filesystem of a few megabytes and inodes, which can be filled up."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self, pages_left: int) -> None:
        """Leave only this number of free pages."""
        info = os.statvfs(self.path)
        fd = os.open(self._ballast, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            taken = info.f_bavail * info.f_bsize - pages_left * PAGE_BYTES
            if taken > 0:
                os.posix_fallocate(fd, 0, taken)
        finally:
            os.close(fd)
        assert os.statvfs(self.path).f_bavail * info.f_bsize == pages_left * PAGE_BYTES

    def fill_names(self, left: int) -> None:
        """Leave free pages, but only this number of inodes."""
        self._ballast.mkdir()
        for number in range(os.statvfs(self.path).f_favail - left):
            (self._ballast / str(number)).touch()
        assert os.statvfs(self.path).f_favail == left

    def free(self) -> None:
        if self._ballast.is_dir():
            shutil.rmtree(self._ballast)
        else:
            self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(place: Path, size: str = "16m", names: int = 1000) -> Iterator[SmallDisk]:
    path = place / "small"
    path.mkdir()
    _sh("mount", "-t", "tmpfs", "-o", f"size={size},nr_inodes={names},mode=700", "tmpfs", path)
    try:
        yield SmallDisk(path)
    finally:
        _sh("umount", path)


class FailingDisk:
    """An ext4 filesystem in a file that can be made to detect damage, which turns it read-only.

    This works like a real failure, with files open for writing, where `mount -o remount,ro` would be refused.
    """

    def __init__(self, place: Path) -> None:
        self._image, self.path = place / "image", place / "disk"
        self.path.mkdir()
        with self._image.open("wb") as file:
            file.truncate(64 << 20)
        _sh("mkfs.ext4", "-q", self._image)

    def mount(self) -> None:
        _sh("mount", "-o", "loop,errors=remount-ro", self._image, self.path)

    def sync(self) -> None:
        """Sync only this filesystem, not the other disks of the machine."""
        _sh("sync", "-f", self.path)

    def fail(self) -> None:
        """Fail: existing data is on the disk, but nothing more is written to it."""
        found = subprocess.run(["findmnt", "-no", "SOURCE", self.path], check=True, capture_output=True, text=True)
        Path(f"/sys/fs/ext4/{Path(found.stdout.strip()).name}/trigger_fs_error").write_text("1")
        with pytest.raises(OSError, match="Read-only file system"):
            (self.path / "probe").touch()

    def replace_disk(self) -> None:
        """Copy its content to a new disk: the kernel may keep the old one, and its damage, for a while."""
        _sh("umount", self.path)
        copy = self._image.with_name("copy")
        _sh("cp", "--sparse=always", self._image, copy)
        copy.replace(self._image)
        assert subprocess.run(["e2fsck", "-fy", self._image], capture_output=True).returncode in (0, 1)
        self.mount()


@contextmanager
def failing_disk(place: Path) -> Iterator[FailingDisk]:
    disk = FailingDisk(place)
    disk.mount()
    try:
        yield disk
    finally:
        _sh("umount", disk.path)
