"""Backup: the files of a home copied to another place, each session as it was at one moment, only what has changed.

A session's files are opened under its lock and read after it is let go: whatever is committed meanwhile is another
file, so what was opened stays what it was (rule 4), and nobody waits for a slow disk. A log is copied as long as it
was then. What others change in place while it is read is read again. What the home has no more goes from the backup
with the session it belonged to; but a conversation that is spoiled, or lost from among its files, takes no copy along.
The copy is announced before it is moved into place, see `store.backup_tree`.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from store import layout
from store.commit.core import Core
from store.disk.file import Stamp
from store.disk.file_io import iter_chunks
from store.errors import Busy, Conflict, Corrupt, NotFound
from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.backup import tree as backup_tree
from store.transfer.backup import writer as backup_writer
from store.transfer.backup.manifest import BackupFile, BackupSession
from store.transfer.backup.tree import Damage, Progress
from store.transfer.backup.units import FileSeen, files_of, iter_units, location_of, lock_of, unit_of
from store.transfer.backup.writer import BackupWriter, Move

ATTEMPTS = 5  # at a session whose files are changed in place while they are read
HELD_FILES = 256  # open at once: a process may have 1,024
BATCH_UNITS = 256
BATCH_BYTES = 64 << 20  # copied again at most after an interruption
STAYS = "its copy of before stays"
_ROUNDS = 3  # of looking for sessions that came, or moved, meanwhile


class BackupProblem(NamedTuple):
    """What could not be backed up; what the backup had of it before, it still has."""

    path: str
    reason: str


@dataclass
class BackupSummary:
    """What a backup did."""

    dest: str
    sessions: int = 0  # that the backup holds
    copied_sessions: int = 0
    gone_sessions: int = 0
    copied_files: int = 0
    copied_bytes: int = 0
    unchanged_files: int = 0
    gone_files: int = 0
    repaired: list[Damage] = field(default_factory=list)  # found damaged by `verify`, and copied anew
    problems: list[BackupProblem] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # pipes and the like


@dataclass(frozen=True)
class Backups:
    core: Core

    def run(
        self,
        dest: str | os.PathLike[str],
        *,
        verify: bool = False,
        keep_deleted: bool = False,
        force: bool = False,
        progress: Progress | None = None,
    ) -> BackupSummary:
        """Make the backup at `dest`, or bring it up to date. It can be restored whenever this is interrupted.

        `verify` reads all of it back and copies what differs anew; `keep_deleted` leaves sessions there that are gone;
        `force` takes the place of a backup of another home, and lets one go that would become empty.
        """
        with backup_writer.new_writer(dest, self.core.home, self.core.disk.step) as writer:
            if not force:
                self._check_meant(writer)
            run = _BackupRun(self.core, writer, verify=verify)
            try:
                return run.run(keep_deleted=keep_deleted, progress=progress)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                text = (
                    f"{error.strerror}: the backup was not finished; each session in it is whole, as before or as now"
                )
                raise OSError(error.errno, text, str(writer.place)) from error

    def _check_meant(self, writer: BackupWriter) -> None:
        before = writer.manifest
        if before.files and before.home != str(self.core.home.resolve()):
            raise Conflict(
                f"{writer.place} holds a backup of {before.home}, and this is {self.core.home}; nothing was changed. "
                "Name another place, or say --force if the home has moved"
            )
        if before.sessions and not self.core.index.count():
            raise Conflict(
                f"there is no session in {self.core.home}, and {len(before.sessions)} in the backup at "
                f"{writer.place}; nothing was changed. Say --force if they shall go"
            )


def check(source: str | os.PathLike[str], progress: Progress | None = None) -> list[Damage]:
    """Every file of a backup that is not what was backed up. It needs no home."""
    with backup_tree.reading(source) as tree:
        if not tree.has_manifest:
            raise NotFound(f"{tree.place} has no manifest to be checked against: it was made by other means")
        return list(tree.damages(tree.manifest.files, progress))


class _Changed(Exception):
    """A file is no longer what it was when its unit was looked at."""


@dataclass
class _Batch:
    """Units that are complete under tmp/, and are to be moved into place as one."""

    moves: list[Move] = field(default_factory=list)
    files: dict[str, BackupFile] = field(default_factory=dict)
    sessions: dict[str, BackupSession] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    units: int = 0

    @property
    def size_bytes(self) -> int:
        return sum(self.files[move.path].size for move in self.moves)

    def add(self, other: _Batch) -> None:
        self.moves += other.moves
        self.files |= other.files
        self.sessions |= other.sessions
        self.gone += other.gone
        self.forgotten += other.forgotten
        self.units += 1


class _BackupRun:
    """One run of a backup."""

    def __init__(self, core: Core, writer: BackupWriter, *, verify: bool) -> None:
        self._core = core
        self._writer = writer
        self._verify = verify
        self._suspect: set[str] = set()
        self._summary = BackupSummary(str(writer.place))
        self._batch = _Batch()
        self._bytes = 0
        self._started_at = Timestamp.now()
        writer.manifest.home = str(core.home.resolve())
        self._known: dict[str, set[str]] = {}
        for path in writer.manifest.files:
            self._known.setdefault(unit_of(path), set()).add(path)

    def run(self, *, keep_deleted: bool, progress: Progress | None) -> BackupSummary:
        if self._verify:
            self._summary.repaired = list(self._writer.damages(list(self._writer.manifest.files), progress))
            self._suspect = {found.path for found in self._summary.repaired}
        done: set[str] = set()
        closed: dict[str, str] = {}
        for _ in range(_ROUNDS):  # again for what came meanwhile: a session that was renamed must not be missing
            units = [unit for unit in iter_units(self._core.disk, closed) if unit not in done]
            if not units:
                break
            for number, unit in enumerate(units, start=1):
                self._copy_if_changed(unit)
                if progress is not None:
                    progress(number, len(units))
            done |= {*units, ""}
        self._summary.problems += [BackupProblem(path, f"{why}; {STAYS}") for path, why in closed.items()]
        if not keep_deleted:
            for unit in sorted(self._known.keys() - done):
                if not any(unit.startswith(f"{path}/") for path in closed):
                    self._drop_unit(unit)
        self._flush()
        return self._finish()

    def _finish(self) -> BackupSummary:
        manifest = self._writer.manifest
        manifest.started_at, manifest.finished_at = self._started_at, Timestamp.now()
        self._writer.seal()
        self._summary.sessions = len(manifest.sessions)
        self._summary.repaired = [found for found in self._summary.repaired if found.path in manifest.files]
        return self._summary

    # -- one unit ------------------------------------------------------------------------------------------

    def _copy_if_changed(self, unit: str) -> None:
        """A unit as it is now; if that cannot be had, what the backup has of it stays."""
        reason = ""
        for _ in range(ATTEMPTS):
            try:
                # First without the lock: a commit under way shows in the stamps, and then it is looked at with it.
                return self._copy(unit) if self._has_changed(unit) else None
            except _Changed as changed:
                reason = f"{changed} changes faster than it can be copied"
            except (_Unreadable, Corrupt, Busy) as error:
                reason = str(error)
                break
        self._summary.problems.append(BackupProblem(unit or layout.INDEX_EXPORT, f"{reason}; {STAYS}"))

    def _has_changed(self, unit: str) -> bool:
        seen, others = self._look(unit)
        if seen.keys() != self._known.get(unit, set()) or any(map(self._differs, seen, seen.values())):
            return True
        self._summary.unchanged_files += len(seen)
        self._summary.left_out += others
        return False

    def _look(self, unit: str) -> tuple[dict[str, FileSeen], list[str]]:
        try:
            return files_of(self._core.disk, unit)
        except OSError as error:
            raise _Unreadable(f"it cannot be looked into: {error.strerror}") from error

    def _differs(self, path: str, seen: FileSeen) -> bool:
        """Whether a file is not known to be in the backup as it is now."""
        item = self._writer.manifest.files.get(path)
        if item is None or path in self._suspect:
            return True
        if seen.is_link:
            return item.link != self._link(path)
        return item.stamp != seen.stamp or item.mode != seen.mode or not self._is_there(path, item)

    def _is_there(self, path: str, item: BackupFile) -> bool:
        info = self._writer.disk.stat(path)
        if info is None or item.link is not None:
            return info is not None and stat.S_ISLNK(info.st_mode) and item.link is not None
        return stat.S_ISREG(info.st_mode) and info.st_size == item.size

    def _link(self, path: str) -> str:
        try:
            return backup_tree.read_link(self._core.disk, path)
        except OSError as error:
            raise _Changed(path) from error

    def _copy(self, unit: str) -> None:
        location = lock_of(unit)
        unit_batch = _Batch()
        with ExitStack() as held:
            with self._alone(location):
                before_ns = time.time_ns()
                seen, others = self._look(unit)
                differing = sorted((path for path in seen if self._differs(path, seen[path])), key=_documents_first)
                opened = {path: self._open(path, held) for path in differing[:HELD_FILES] if not seen[path].is_link}
                self._note(unit, seen, unit_batch)
            try:
                for path in differing:
                    stamp = seen[path].stamp.if_settled(before_ns)
                    self._copy_file(path, seen[path], stamp, opened.get(path), unit_batch)
            except BaseException:
                for move in unit_batch.moves:
                    self._writer.discard(move.temp)
                raise
        unit_batch.gone = sorted(self._known.get(unit, set()) - seen.keys())
        self._summary.left_out += others
        self._summary.unchanged_files += len(seen) - len(unit_batch.moves)
        self._summary.copied_sessions += len(unit_batch.sessions) if unit_batch.moves else 0
        self._add(unit_batch)

    @contextmanager
    def _alone(self, location: Location | None) -> Iterator[None]:
        with ExitStack() as held:
            try:
                if location is not None:
                    held.enter_context(self._core.locked(location))
            except OSError as error:  # an interrupted commit that a full disk keeps from being finished
                raise _Unreadable(str(error)) from error
            yield

    def _note(self, unit: str, seen: dict[str, FileSeen], batch: _Batch) -> None:
        """Which version of a session this is, for who looks into the manifest. Its lock is held."""
        location = location_of(unit)
        if location is None:
            return
        path, row = location.path(layout.SESSION), None
        if path in seen:
            self._core.refresh(location)
            row = self._core.index.find(location)
        if row is not None:
            batch.sessions[str(location)] = BackupSession(row.entry.updated_at, row.entry.title)
        elif str(location) in self._writer.manifest.sessions and seen:
            found = "cannot be read any more" if path in seen else "is gone, but not what lies beside it"
            raise _Unreadable(f"{path} {found} (`grovefs check` tells more, `grovefs restore` brings it back)")
        elif str(location) in self._writer.manifest.sessions:
            batch.forgotten.append(str(location))

    def _open(self, path: str, held: ExitStack) -> int:
        try:
            fd = self._core.disk.open_to_read(path)
        except FileNotFoundError as error:
            raise _Changed(path) from error
        except OSError as error:
            raise _Unreadable(f"{path} cannot be read: {error.strerror}") from error
        held.callback(os.close, fd)
        return fd

    def _copy_file(self, path: str, seen: FileSeen, stamp: Stamp, fd: int | None, batch: _Batch) -> None:
        if seen.is_link:
            text = self._link(path)
            batch.moves.append(Move(self._writer.write_link(text), path))
            batch.files[path] = BackupFile(0, seen.stamp.mtime_ns, seen.mode, "", stamp, text)
            return
        with ExitStack() as held:
            fd = self._open(path, held) if fd is None else fd
            chunks = _chunks(fd, seen.stamp, path)
            temp, sha256 = self._writer.write(chunks, seen.mode, seen.stamp.mtime_ns)
        item = BackupFile(seen.stamp.size, seen.stamp.mtime_ns, seen.mode, sha256, stamp)
        known = self._writer.manifest.files.get(path)
        batch.files[path] = item
        if known is not None and known[:4] == item[:4] and path not in self._suspect and self._is_there(path, known):
            self._writer.discard(temp)  # only its inode is another: nothing to move
            return
        batch.moves.append(Move(temp, path))
        if self._verify and self._writer.digest(temp) != sha256:
            text = "what was written cannot be read back as it was; the disk is not to be trusted"
            raise OSError(errno.EIO, text, str(self._writer.place / path))

    # -- many ----------------------------------------------------------------------------------------------

    def _drop_unit(self, unit: str) -> None:
        """A unit that the home has no more."""
        location = location_of(unit)
        batch = _Batch(gone=sorted(self._known[unit]))
        if location is not None and str(location) in self._writer.manifest.sessions:
            batch.forgotten.append(str(location))
        self._add(batch)

    def _add(self, batch: _Batch) -> None:
        self._summary.copied_files += len(batch.moves)
        self._bytes += batch.size_bytes
        self._summary.copied_bytes += batch.size_bytes
        self._summary.gone_files += len(batch.gone)
        self._summary.gone_sessions += len(batch.forgotten)
        self._batch.add(batch)
        if self._batch.units >= BATCH_UNITS or self._bytes >= BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        batch = self._batch
        if batch.units:
            self._writer.commit(batch.moves, batch.files, batch.sessions, batch.gone, batch.forgotten)
        self._batch, self._bytes = _Batch(), 0


class _Unreadable(Exception):
    """A file of the home that the disk, or its mode, does not let us read."""


def _documents_first(path: str) -> tuple[bool, str]:
    """What must be of one version is opened before the many that never change."""
    return path.rpartition("/")[2] not in (*layout.DOCUMENTS, *layout.RECORDS), path


def _chunks(fd: int, stamp: Stamp, path: str) -> Iterator[bytes]:
    """A file as long as it was; _Changed if someone has written in it since. A log may have grown."""
    left = stamp.size
    try:
        for chunk in iter_chunks(fd, stamp.size):
            yield chunk
            left -= len(chunk)
    except OSError as error:
        raise _Unreadable(f"{path} cannot be read: {error.strerror}") from error
    if left:
        raise _Changed(path)
    now = os.fstat(fd)
    may_grow = path.endswith(".jsonl") and now.st_size > stamp.size
    if now.st_ino != stamp.inode or (not may_grow and (now.st_size, now.st_mtime_ns) != (stamp.size, stamp.mtime_ns)):
        raise _Changed(path)
