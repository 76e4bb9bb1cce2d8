"""A disk that records what reaches it: every write and every flush, in order.

The disk is the only file of a small FUSE filesystem, in a process of its own, and a loop device is
set up on it. The page cache of the file writes through, so each request of the loop device arrives
here: its writes as writes, its flushes as fsync. `Recording` reads the log and makes the image that
a power cut would have left: all that was flushed, and of the rest any part.
"""

from __future__ import annotations

import mmap
import os
import random
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyfuse3
import trio

from tests.mount.conftest import wait_until

DISK = b"disk"
_DISK_INODE = pyfuse3.ROOT_INODE + 1
_HEADER = struct.Struct("=qq")  # offset and size of a write; offset -1 for a flush
_COUNT = struct.Struct("=q")
_FLUSH = -1
SECTOR = 512  # what a disk writes at once
PATIENCE_S = 60.0


class Event(NamedTuple):
    """A write, or a flush if `offset` is -1. `at` is where its bytes begin in the log."""

    offset: int
    size: int
    at: int


class _RecordedDisk(pyfuse3.Operations):
    """One file in memory. Everything that changes it goes to the log first."""

    def __init__(self, image: bytearray, log: Path, count: Path) -> None:
        super().__init__()
        self.image = image
        self.log = log.open("ab", buffering=0)
        with count.open("r+b") as file:
            self.count = mmap.mmap(file.fileno(), _COUNT.size)
        self.events = 0

    def _record(self, offset: int, data: bytes) -> None:
        self.log.write(_HEADER.pack(offset, len(data)) + data)
        self.events += 1
        _COUNT.pack_into(self.count, 0, self.events)

    async def getattr(self, inode: int, ctx: object = None) -> pyfuse3.EntryAttributes:
        entry = pyfuse3.EntryAttributes()
        is_root = inode == pyfuse3.ROOT_INODE
        entry.st_ino = inode
        entry.st_mode = 0o40700 if is_root else 0o100600
        entry.st_size = 0 if is_root else len(self.image)
        entry.st_nlink = 1
        return entry

    async def lookup(self, parent: int, name: bytes, ctx: object = None) -> pyfuse3.EntryAttributes:
        if name != DISK:
            raise pyfuse3.FUSEError(2)
        return await self.getattr(_DISK_INODE)

    async def setattr(
        self, inode: int, attr: object, fields: object, fh: object, ctx: object
    ) -> pyfuse3.EntryAttributes:
        return await self.getattr(inode)

    async def open(self, inode: int, flags: int, ctx: object) -> pyfuse3.FileInfo:
        return pyfuse3.FileInfo(fh=inode, keep_cache=True)

    async def read(self, fh: int, offset: int, size: int) -> bytes:
        return bytes(self.image[offset : offset + size])

    async def write(self, fh: int, offset: int, data: bytes) -> int:
        self._record(offset, data)
        self.image[offset : offset + len(data)] = data
        return len(data)

    async def fsync(self, fh: int, datasync: bool) -> None:
        self._record(_FLUSH, b"")

    async def flush(self, fh: int) -> None:
        """Nothing: closing a descriptor makes nothing durable."""

    async def release(self, fh: int) -> None:
        """Nothing to do."""


def serve(image: Path, log: Path, count: Path, mountpoint: str) -> None:
    pyfuse3.init(_RecordedDisk(bytearray(image.read_bytes()), log, count), mountpoint, {"fsname=recorded"})
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close(unmount=True)


# -- recording -------------------------------------------------------------------------------------


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr.strip()}"
    return done.stdout.strip()


def unmount(path: Path) -> None:
    """Unmount, once the last process that uses it has ended."""
    wait_until(lambda: subprocess.run(["umount", path], capture_output=True).returncode == 0, PATIENCE_S)


class RecordedDisk:
    """A mounted ext4 filesystem on a disk that records. `position` counts what has reached the disk."""

    def __init__(self, place: Path, size_bytes: int) -> None:
        self.image, self.log, self._count = place / "image", place / "log", place / "count"
        self.path, self._layer = place / "disk", place / "layer"
        self.path.mkdir()
        self._layer.mkdir()
        with self.image.open("wb") as file:
            file.truncate(size_bytes)
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image)
        self.log.touch()
        self._count.write_bytes(bytes(_COUNT.size))
        with self._count.open("r+b") as shared:
            self._shared = mmap.mmap(shared.fileno(), _COUNT.size)

    @property
    def position(self) -> int:
        found: int = _COUNT.unpack_from(self._shared, 0)[0]
        return found

    @contextmanager
    def mounted(self) -> Iterator[None]:
        words = [sys.executable, "-m", "tests.torture.block_layer", self.image, self.log, self._count, self._layer]
        server = subprocess.Popen(list(map(str, words)), cwd=Path(__file__).parents[2])
        disk = self._layer / os.fsdecode(DISK)
        try:
            wait_until(disk.exists, PATIENCE_S)
            device = _run("losetup", "--find", "--show", disk)
            try:
                _run("mount", "-t", "ext4", device, self.path)
                try:
                    yield
                finally:
                    unmount(self.path)
            finally:
                _run("losetup", "--detach", device)
        finally:
            wait_until(lambda: not _run("losetup", "--associated", disk), PATIENCE_S)
            unmount(self._layer)
            server.wait(PATIENCE_S)


# -- cutting ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recording:
    """What reached a disk, and the image it began with."""

    image: Path
    log: Path
    events: list[Event]

    @classmethod
    def of(cls, disk: RecordedDisk) -> Recording:
        events, at, size = list[Event](), 0, disk.log.stat().st_size
        with disk.log.open("rb") as file:
            while at < size:
                file.seek(at)
                offset, length = _HEADER.unpack(file.read(_HEADER.size))
                events.append(Event(offset, length, at + _HEADER.size))
                at += _HEADER.size + length
        return cls(disk.image, disk.log, events)

    def cut(self, target: Path, position: int, chance: random.Random) -> None:
        """Write the image that a power cut after `position` events leaves.

        Sectors written since the last flush are there or not, each on its own.
        """
        flushes = (number for number in range(position, 0, -1) if self.events[number - 1].offset == _FLUSH)
        flushed = next(flushes, 0)
        share = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))  # of the unflushed sectors that are there
        _run("cp", "--sparse=always", self.image, target)
        with self.log.open("rb") as log, target.open("r+b") as disk:
            for number, event in enumerate(self.events[:position]):
                if event.offset == _FLUSH:
                    continue
                log.seek(event.at)
                data = log.read(event.size)
                step = event.size if number < flushed else SECTOR
                for start in range(0, event.size, step):
                    if number < flushed or chance.random() < share:
                        disk.seek(event.offset + start)
                        disk.write(data[start : start + step])


@contextmanager
def mounted_image(image: Path, path: Path) -> Iterator[None]:
    """The image as a filesystem, after its journal was replayed."""
    _run("mount", "-t", "ext4", "-o", "loop", image, path)
    try:
        yield
    finally:
        unmount(path)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
