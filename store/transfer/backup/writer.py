"""Writing a backup: new files gather, are announced in one line, and only then take their names.

Who is killed in between leaves a backup that is what the announcements say, see `store.backup_tree`: the next run
begins by doing what was announced and letting go of what was not. One writes at a time.
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
from store.transfer.backup.tree import JOURNAL, PRIVATE, TMP, BackupTree, check_apart, flock, is_grove

HARMLESS = ("lost+found",)  # what a new disk holds
_CREATE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)


class Move(NamedTuple):
    """A file that is complete, and where it belongs."""

    temp: str
    path: str


class BackupWriter(BackupTree):
    """A backup that is being made or brought up to date, by one alone."""

    def __init__(self, place: Path, step: Step = no_step) -> None:
        super().__init__(place, step)
        self._number = 0
        self._redo()

    def _locked(self) -> int | None:
        self.disk.make_dirs(TMP)
        with self.disk.open_dir(PRIVATE) as parent:
            fd = os.open("lock", _CREATE, 0o600, dir_fd=parent)
        return flock(fd, fcntl.LOCK_EX, self.place)

    def _redo(self) -> None:
        """Finish what an interrupted run has announced, and let go of what it has not."""
        if self.disk.stat(JOURNAL) is not None:
            gone = [path for line in self._journal() for path in line["gone"] if path not in self.manifest.files]
            self._remove(gone)
            self._move(Move(temp, path) for path, temp in self._outstanding.items())
            self._outstanding.clear()
            self.seal()
        for entry in self.disk.entries(TMP):
            self.disk.remove_tree(f"{TMP}/{entry.name}")

    # -- writing -------------------------------------------------------------------------------------------

    def write(self, chunks: Iterable[bytes], mode: int, mtime_ns: int) -> tuple[str, str]:
        """A new file under tmp/, not synced yet; returns its path and its digest."""
        temp = self._temp()
        digest = hashlib.sha256()
        self.disk.step("backup-write")
        with self.disk.open_dir(TMP) as parent:
            fd = os.open(temp.rpartition("/")[2], _CREATE | os.O_EXCL, 0o600, dir_fd=parent)
        try:
            for chunk in chunks:
                digest.update(chunk)
                write_all(fd, [chunk])
            with suppress(PermissionError):  # a filesystem without modes: the manifest knows them
                os.fchmod(fd, mode)
            os.utime(fd, ns=(mtime_ns, mtime_ns))
        except BaseException:
            self.discard(temp)
            raise
        finally:
            os.close(fd)
        return temp, digest.hexdigest()

    def write_link(self, text: str) -> str:
        temp = self._temp()
        self.disk.step("backup-write")
        with self.disk.open_dir(TMP) as parent:
            os.symlink(text, temp.rpartition("/")[2], dir_fd=parent)
        return temp

    def _temp(self) -> str:
        self._number += 1
        return f"{TMP}/{os.getpid()}-{self._number}"

    def digest(self, temp: str) -> str:
        """What a new file says when it is read back, from the disk itself where the kernel lets go of it."""
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
        """Some sessions in one step: announced first, then moved to their names."""
        self._sync_all("backup-sync")
        line = {
            "home": self.manifest.home,
            "moves": moves,
            "files": {path: item.as_json() for path, item in files.items()},
            "sessions": {name: note._asdict() for name, note in sessions.items()},
            "gone": gone,
            "forgotten": forgotten,
        }
        self._announce(json.dumps(line).encode() + b"\n")
        self._remove(gone)  # first: a file may come where a directory was
        self._move(moves)
        for path in gone:
            self.manifest.files.pop(path, None)
        for name in forgotten:
            self.manifest.sessions.pop(name, None)
        self.manifest.files |= files
        self.manifest.sessions |= sessions

    def _announce(self, line: bytes) -> None:
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
                self._make_way(path.rpartition("/")[0])
            self._clear_way(path)
            self.disk.move(temp, path)

    def _make_way(self, directory: str) -> None:
        """Its directories. Where the home has one now and had a file before, that file goes first."""
        parts = directory.split("/")
        for length in range(2, len(parts) + 1):  # "sessions" itself may be a link: that is not for us to remove
            way = "/".join(parts[:length])
            info = self.disk.stat(way)
            if info is not None and not stat.S_ISDIR(info.st_mode):
                self.disk.remove(way)
        self.disk.make_dirs(directory)

    def _clear_way(self, path: str) -> None:
        """A directory where a file is to be: the home has it no more."""
        info = self.disk.stat(path)
        if info is not None and stat.S_ISDIR(info.st_mode):
            self.disk.remove_tree(path)

    def _remove(self, paths: Iterable[str]) -> None:
        """Files that the home has no more, and the directories they leave empty."""
        for path in paths:
            with suppress(Corrupt):  # something else has taken its directory's place
                self.disk.remove(path)
            directory = path.rpartition("/")[0]
            while "/" in directory and self._remove_empty(directory):
                directory = directory.rpartition("/")[0]

    def _remove_empty(self, directory: str) -> bool:
        above, _, name = directory.rpartition("/")
        try:
            with self.disk.open_dir(above) as parent:
                os.rmdir(name, dir_fd=parent)
        except (OSError, Corrupt):  # it holds something, or is gone already
            return False
        return True

    def seal(self) -> None:
        """The manifest says it all now: the journal is no longer needed."""
        self._sync_all("backup-sync")  # the moves must last before the journal goes
        temp = self._temp()
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
        """All new files at once: a sync for each of many small ones would take most of a backup's time."""
        self.disk.step(name)
        with self.disk.open_dir("") as fd:
            if _libc.syncfs(fd):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(self.place))


def new_writer(dest: str | os.PathLike[str], home: Path, step: Step = no_step) -> BackupWriter:
    """A backup at `dest`, begun or gone on with; each reason not to is one line, and nothing was written."""
    place = Path(dest).expanduser().absolute()
    check_apart(place, home)
    if not place.exists():
        if not place.parent.is_dir():
            raise NotFound(f"there is no directory {place.parent}; is the disk mounted?")
        if is_grove(place.parent):
            raise InvalidName(f"{place} lies in a mount of GroveFS; a backup belongs on another disk")
        place.mkdir(0o700)
    if not place.is_dir():
        raise InvalidName(f"{place} is not a directory")
    if is_grove(place):
        raise InvalidName(f"{place} lies in a mount of GroveFS; a backup belongs on another disk")
    names = {entry.name for entry in os.scandir(place)} - {*HARMLESS}
    if names and not names & {manifest.NAME, PRIVATE}:
        raise NotEmpty(f"{place} is not empty, and no backup; nothing was written. Name an empty or a new directory")
    return BackupWriter(place, step)
