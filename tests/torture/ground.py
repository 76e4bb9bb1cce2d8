"""Where attacks take place: directories that go at the end, disks that become full, and one that fails."""

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
from tests.crash.scenarios import make_lived_in_home

DISK, MEMORY = Path("/var/tmp"), Path("/dev/shm")  # in memory a sync costs nothing
PAGE_BYTES = 4096

Tree = dict[str, bytes | None]


def new_place(*, in_memory: bool = False) -> Path:
    """A directory of its own; mounts lie outside /tmp, where editors save in other ways."""
    base = MEMORY if in_memory and os.access(MEMORY, os.W_OK) else DISK
    return Path(tempfile.mkdtemp(prefix=f"{_prefix(os.getsid(0))}-", dir=base))


def places_of(session: int) -> list[Path]:
    """Those that the processes of a session have made and not taken away."""
    return [place for base in (DISK, MEMORY) for place in base.glob(f"{_prefix(session)}-*")]


def _prefix(session: int) -> str:
    return f"grovefs-torture-{session}"


@contextmanager
def scratch(*, in_memory: bool = False) -> Iterator[Path]:
    """A place that goes at the end."""
    place = new_place(in_memory=in_memory)
    try:
        yield place
    finally:
        shutil.rmtree(place)


def tree_below(home: Path) -> Tree:
    """Every file that is somebody's, by its path, and every directory (None): to show that nothing was changed."""
    parts = (home / "sessions", home / "projects", home / "state")
    found = [path for part in parts for path in sorted(part.rglob("*"))]
    return {str(path.relative_to(home)): None if path.is_dir() else path.read_bytes() for path in found}


def files_of(tree: Tree) -> Tree:
    """What says something: a kill may leave a directory in which no session is, and a log without a line."""
    return {path: data for path, data in tree.items() if data}


class Ground:
    """Where cases take place: a home that is lived in, which all are copies of."""

    def __init__(self, place: Path, aside: Path | None = None) -> None:
        self.place = place
        self.origin = (aside or place) / "origin"
        make_lived_in_home(self.origin)
        self.before = tree_below(self.origin)


def flaws(store: Store) -> list[Finding]:
    """What `check` finds, but for the foreign files that are meant to be there."""
    return [finding for finding in store.check().findings if finding.kind != "foreign-file"]


def _sh(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr.strip()}"


class SmallDisk:
    """A filesystem of a few megabytes and names, of which all may be taken but some."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self, pages_left: int) -> None:
        """No room for more than so many pages."""
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
        """Room, but no file can be made beyond so many."""
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
    """An ext4 filesystem in a file, which can be made to find itself damaged: it becomes read-only then.

    As a real one does, with files open for writing, where `mount -o remount,ro` would be refused.
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
        """This one alone: other disks of the machine, and the mounts on them, are none of ours."""
        _sh("sync", "-f", self.path)

    def fail(self) -> None:
        """What was there before is on the disk; from now on nothing reaches it."""
        found = subprocess.run(["findmnt", "-no", "SOURCE", self.path], check=True, capture_output=True, text=True)
        Path(f"/sys/fs/ext4/{Path(found.stdout.strip()).name}/trigger_fs_error").write_text("1")
        with pytest.raises(OSError, match="Read-only file system"):
            (self.path / "probe").touch()

    def mend(self) -> None:
        """What is on it now, on a new disk: the kernel may hold on to the old one a while, and to its damage."""
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
