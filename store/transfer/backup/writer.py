"""Write a backup: copy files to tmp/, journal them, then rename them to their paths.

A run that is killed leaves a backup in the state that manifest and journal describe, see `store.transfer.backup.tree`.
The next run first completes the moves in the journal and deletes files that are not in it. An exclusive lock
admits one writer at a time.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from store.disk.disk import Step, no_step
from store.disk.file_io import write_all
from store.errors import Corrupt, InvalidName, NotEmpty, NotFound
from store.transfer.backup import manifest
from store.transfer.backup.manifest import BackupFile, BackupSession
from store.transfer.backup.tree import (
    JOURNAL,
    PRIVATE,
    TMP,
    BackupTree,
    check_not_nested,
    is_grovefs_mount,
    lock_or_raise,
)
from store.transfer.digests import HashedChunks

IGNORED_NAMES = ("lost+found",)  # present on a newly formatted disk
_CREATE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


class Move(NamedTuple):
    """A complete file under tmp/ and its final path."""

    temp: str
    path: str


class BackupWriter(BackupTree):
    """A backup open for writing, under an exclusive lock."""

    def __init__(self, place: Path, step: Step = no_step) -> None:
        super().__init__(place, step)
        self._number = 0
        self._recover()

    def _take_lock(self) -> int | None:
        self.disk.make_dirs(TMP)
        with self.disk.open_dir(PRIVATE) as parent:
            fd = os.open("lock", _CREATE, 0o600, dir_fd=parent)
        return lock_or_raise(fd, fcntl.LOCK_EX, self.path)

    def _recover(self) -> None:
        """Complete the moves that an interrupted run has journaled, and delete all other temporary files."""
        if self.disk.stat(JOURNAL) is not None:
            gone = [path for line in self._journal() for path in line["gone"] if path not in self.manifest.files]
            self._remove(gone)
            self._move(Move(temp, path) for path, temp in self._pending_moves.items())
            self._pending_moves.clear()
            self.write_manifest()
        for entry in self.disk.entries(TMP):
            self.disk.remove_tree(f"{TMP}/{entry.name}")

    # -- writing -------------------------------------------------------------------------------------------

    def write(self, chunks: Iterable[bytes], mode: int, mtime_ns: int) -> tuple[str, str]:
        """Write a new file under tmp/ without syncing it; return its path and its digest."""
        temp = self._new_temp()
        hashed = HashedChunks(chunks)
        self.disk.step("backup-write")
        with self.disk.open_dir(TMP) as parent:
            fd = os.open(temp.rpartition("/")[2], _CREATE | os.O_EXCL, 0o600, dir_fd=parent)
        try:
            write_all(fd, hashed)
            with suppress(PermissionError):  # the filesystem has no modes; the manifest stores them
                os.fchmod(fd, mode)
            os.utime(fd, ns=(mtime_ns, mtime_ns))
        except BaseException:
            self.discard(temp)
            raise
        finally:
            os.close(fd)
        return temp, hashed.hexdigest()

    def write_link(self, text: str) -> str:
        temp = self._new_temp()
        self.disk.step("backup-write")
        with self.disk.open_dir(TMP) as parent:
            os.symlink(text, temp.rpartition("/")[2], dir_fd=parent)
        return temp

    def _new_temp(self) -> str:
        self._number += 1
        return f"{TMP}/{os.getpid()}-{self._number}"

    def read_back_digest(self, temp: str) -> str:
        """The digest of a new file as read back, from the disk itself if the kernel drops the cached pages."""
        fd = self.disk.open_to_read(temp)
        with os.fdopen(fd, "rb") as file:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            return hashlib.file_digest(file, "sha256").hexdigest()

    def discard(self, temp: str) -> None:
        self.disk.remove(temp)

    def commit(
        self,
        moves: list[Move],
        files: dict[str, BackupFile],
        sessions: dict[str, BackupSession],
        gone: list[str],
        forgotten: list[str],
    ) -> None:
        """Apply one batch: sync the new files, journal the moves, then rename the files into place."""
        self._sync_all("backup-sync")
        line = {
            "home": self.manifest.home,
            "moves": moves,
            "files": {path: item.to_json() for path, item in files.items()},
            "sessions": {name: note._asdict() for name, note in sessions.items()},
            "gone": gone,
            "forgotten": forgotten,
        }
        self._append_journal(json.dumps(line).encode() + b"\n")
        self._remove(gone)  # first: a new file may replace a removed directory
        self._move(moves)
        for path in gone:
            self.manifest.files.pop(path, None)
        for name in forgotten:
            self.manifest.sessions.pop(name, None)
        self.manifest.files |= files
        self.manifest.sessions |= sessions

    def _append_journal(self, line: bytes) -> None:
        self.disk.step("backup-announce")
        with self.disk.open_dir(PRIVATE) as parent:
            fd = os.open("journal.jsonl", _CREATE | os.O_APPEND, 0o600, dir_fd=parent)
            with os.fdopen(fd, "wb") as file:
                file.write(line)
                file.flush()
                os.fsync(fd)
            os.fsync(parent)

    def _move(self, moves: Iterable[Move]) -> None:
        for temp, path in moves:
            if "/" in path:
                self._make_parents(path.rpartition("/")[0])
            self._remove_directory_at(path)
            self.disk.move(temp, path)

    def _make_parents(self, directory: str) -> None:
        """Create the parent directories. A file at the path of one is removed: the home has a directory there now."""
        parts = directory.split("/")
        for length in range(2, len(parts) + 1):  # "sessions" itself may be a link that the user made
            way = "/".join(parts[:length])
            info = self.disk.stat(way)
            if info is not None and not stat.S_ISDIR(info.st_mode):
                self.disk.remove(way)
        self.disk.make_dirs(directory)

    def _remove_directory_at(self, path: str) -> None:
        """Remove a directory at the path of a new file: the home no longer has it."""
        info = self.disk.stat(path)
        if info is not None and stat.S_ISDIR(info.st_mode):
            self.disk.remove_tree(path)

    def _remove(self, paths: Iterable[str]) -> None:
        """Remove files that the home no longer has, and the directories they leave empty."""
        for path in paths:
            with suppress(Corrupt):  # its directory has been replaced by something else
                self.disk.remove(path)
            directory = path.rpartition("/")[0]
            while "/" in directory and self._remove_empty(directory):
                directory = directory.rpartition("/")[0]

    def _remove_empty(self, directory: str) -> bool:
        above, _, name = directory.rpartition("/")
        try:
            with self.disk.open_dir(above) as parent:
                os.rmdir(name, dir_fd=parent)
        except (OSError, Corrupt):  # not empty, or already removed
            return False
        return True

    def write_manifest(self) -> None:
        """Write the manifest and delete the journal, which it supersedes."""
        self._sync_all("backup-sync")  # the moves must be durable before the journal is deleted
        temp = self._new_temp()
        self.disk.step("backup-manifest")
        with self.disk.open_dir(TMP) as parent:
            fd = os.open(temp.rpartition("/")[2], _CREATE | os.O_EXCL, 0o600, dir_fd=parent)
            with os.fdopen(fd, "wb") as file:
                file.writelines(manifest.render(self.manifest))
                file.flush()
                os.fsync(fd)
        self.disk.move(temp, manifest.NAME)
        self.disk.sync_dirs([""])
        self.disk.remove(JOURNAL)
        self.disk.sync_dirs([PRIVATE])

    def _sync_all(self, name: str) -> None:
        """Sync the whole filesystem once: one fsync per small file would take most of a backup's time."""
        self.disk.step(name)
        with self.disk.open_dir("") as fd:
            if _libc.syncfs(fd):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(self.path))


def _create(place: Path) -> None:
    try:
        place.mkdir(0o700)
    except OSError as error:
        text = (
            f"cannot create the backup directory {place}: {error.strerror}; nothing was copied. Use another directory"
        )
        raise OSError(error.errno, text) from error


def open_writer(dest: str | os.PathLike[str], home: Path, step: Step = no_step) -> BackupWriter:
    """Open the backup at `dest`, or create one. An unsuitable `dest` raises before anything is written."""
    place = Path(dest).expanduser().absolute()
    check_not_nested(place, home)
    if not place.exists():
        if not place.parent.is_dir():
            raise NotFound(f"no such directory: {place.parent}; is the disk mounted?")
        if is_grovefs_mount(place.parent):
            raise InvalidName(f"{place} is inside a GroveFS mount; use a directory on another disk")
        _create(place)
    if not place.is_dir():
        raise InvalidName(f"{place} is not a directory")
    if is_grovefs_mount(place):
        raise InvalidName(f"{place} is inside a GroveFS mount; use a directory on another disk")
    names = {entry.name for entry in os.scandir(place)} - {*IGNORED_NAMES}
    if names and not names & {manifest.NAME, PRIVATE}:
        raise NotEmpty(f"{place} is not empty and not a backup; nothing was written. Use a new or empty directory")
    return BackupWriter(place, step)
