"""Back up a home: copy changed files to another directory, each session as of one moment.

The files of a session are opened under its lock and read after the lock is released. A later commit replaces files
instead of modifying them, so an open file keeps its content (rule 4), and no writer waits for a slow disk. A log is
copied up to the length it had when it was opened. A file that another program modifies in place is read again.

Files that the home no longer has are removed from the backup with their session. An exception protects the copy: when
session.json is corrupt, or missing while other files of the session exist, the backup keeps what it has.
`store.transfer.backup.tree` describes how the copies are committed.
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
from store.documents.document import parse_document
from store.errors import Busy, Conflict, Corrupt, InvalidContent, NotFound
from store.layout import Location
from store.model.timestamp import Timestamp
from store.transfer.backup import history_copy, ledger_copy
from store.transfer.backup.manifest import BackupFile, BackupSession
from store.transfer.backup.tree import Damage, Progress, open_backup, read_link
from store.transfer.backup.units import FileSeen, iter_units, location_of, lock_of, scan_unit, unit_of
from store.transfer.backup.writer import BackupWriter, Move, open_writer

MAX_ATTEMPTS = 5  # for a unit whose files are modified in place while they are read
MAX_OPEN_FILES = 256  # the usual limit of a process is 1,024
BATCH_UNITS = 256
BATCH_BYTES = 64 << 20  # at most this much is copied again after an interruption
PREVIOUS_COPY_KEPT = "the previous copy is kept"
_MAX_SCANS = 3  # for units that were created or renamed during the backup


class BackupProblem(NamedTuple):
    """A unit that could not be backed up. Its previous copy in the backup is kept."""

    path: str
    reason: str


@dataclass
class BackupSummary:
    """The result of a backup."""

    dest: str
    sessions: int = 0  # in the backup
    copied_sessions: int = 0
    gone_sessions: int = 0
    copied_files: int = 0
    copied_bytes: int = 0
    unchanged_files: int = 0
    gone_files: int = 0
    repaired: list[Damage] = field(default_factory=list)  # found damaged by `verify` and copied again
    problems: list[BackupProblem] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)  # pipes, sockets, devices


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
        history: bool = True,
        progress: Progress | None = None,
    ) -> BackupSummary:
        """Create the backup at `dest`, or update it. An interrupted backup can be restored at any point.

        `verify` reads the whole backup and copies damaged files again. `keep_deleted` keeps sessions in the backup
        that are deleted from the home. `force` allows replacing a backup of another home, or emptying the backup.
        Without `history`, no versions are copied, and a copy of them is removed.
        """
        with open_writer(dest, self.core.home, self.core.disk.step) as writer:
            if not force:
                self._check_target(writer)
            run = _BackupRun(self.core, writer, verify=verify)
            try:
                run.copy_history(is_wanted=history)
                ledger_copy.copy_ledger(self.core, writer)
                return run.run(keep_deleted=keep_deleted, progress=progress)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                text = f"{error.strerror}: backup incomplete; each session in it is complete, old or new"
                raise OSError(error.errno, text, str(writer.path)) from error

    def _check_target(self, writer: BackupWriter) -> None:
        before = writer.manifest
        if before.files and before.home != str(self.core.home.resolve()):
            raise Conflict(
                f"{writer.path} is a backup of {before.home}, not of {self.core.home}; nothing was changed. "
                "Use another directory, or --force if the home was moved"
            )
        if before.sessions and not self.core.index.count():
            raise Conflict(
                f"{self.core.home} has no sessions, but the backup at {writer.path} has {len(before.sessions)}; "
                "nothing was changed. Use --force to remove them from the backup"
            )


def check(source: str | os.PathLike[str], progress: Progress | None = None) -> list[Damage]:
    """List every file of a backup that differs from its manifest. Needs no home."""
    with open_backup(source) as tree:
        if not tree.has_manifest:
            raise NotFound(f"{tree.path} has no manifest, so it cannot be checked")
        damage = history_copy.find_damage(tree)
        return [*tree.iter_damages(tree.manifest.files, progress), *([damage] if damage is not None else [])]


class _Changed(Exception):
    """A file was modified after its unit was scanned."""


@dataclass
class _Batch:
    """Units that are complete under tmp/ and are committed to the backup together."""

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
    """One run of a backup, unit by unit."""

    def __init__(self, core: Core, writer: BackupWriter, *, verify: bool) -> None:
        self._core = core
        self._writer = writer
        self._verify = verify
        self._damaged: set[str] = set()
        self._summary = BackupSummary(str(writer.path))
        self._batch = _Batch()
        self._bytes = 0
        self._started_at = Timestamp.now()
        writer.manifest.home = str(core.home.resolve())
        self._files_by_unit: dict[str, set[str]] = {}
        for path in writer.manifest.files:
            self._files_by_unit.setdefault(unit_of(path), set()).add(path)

    def run(self, *, keep_deleted: bool, progress: Progress | None) -> BackupSummary:
        if self._verify:
            self._summary.repaired = list(self._writer.iter_damages(list(self._writer.manifest.files), progress))
            self._damaged = {found.path for found in self._summary.repaired}
        done: set[str] = set()
        unreadable: dict[str, str] = {}
        for _ in range(_MAX_SCANS):  # repeated: a session renamed during the backup must not be missing
            units = [unit for unit in iter_units(self._core.disk, unreadable) if unit not in done]
            if not units:
                break
            for number, unit in enumerate(units, start=1):
                self._copy_if_changed(unit)
                if progress is not None:
                    progress(number, len(units))
            done |= {*units, ""}
        self._summary.problems += [
            BackupProblem(path, f"{why}; {PREVIOUS_COPY_KEPT}") for path, why in unreadable.items()
        ]
        if not keep_deleted:
            for unit in sorted(self._files_by_unit.keys() - done):
                if not any(unit.startswith(f"{path}/") for path in unreadable):
                    self._drop_unit(unit)
        self._flush()
        return self._finish()

    def copy_history(self, *, is_wanted: bool) -> None:
        """Copy the history, before any file."""
        if not is_wanted:
            return history_copy.drop_history(self._writer)
        why = history_copy.copy_history(self._core, self._writer)
        if why is not None:
            self._summary.problems.append(BackupProblem(layout.HISTORY_DB, f"{why}; {PREVIOUS_COPY_KEPT}"))
        return None

    def _finish(self) -> BackupSummary:
        manifest = self._writer.manifest
        manifest.started_at, manifest.finished_at = self._started_at, Timestamp.now()
        self._writer.write_manifest()
        self._summary.sessions = len(manifest.sessions)
        self._summary.repaired = [found for found in self._summary.repaired if found.path in manifest.files]
        return self._summary

    # -- one unit ------------------------------------------------------------------------------------------

    def _copy_if_changed(self, unit: str) -> None:
        """Copy a unit if it has changed. If that fails, its previous copy is kept and a problem is recorded."""
        reason = ""
        for _ in range(MAX_ATTEMPTS):
            try:
                # First without the lock: a concurrent commit changes the stamps, and then the unit is scanned under it.
                return self._copy(unit) if self._has_changed(unit) else None
            except _Changed as changed:
                reason = f"{changed} is modified faster than it can be copied"
            except (_Unreadable, Corrupt, Busy) as error:
                reason = str(error)
                break
        self._summary.problems.append(BackupProblem(unit or layout.INDEX_EXPORT, f"{reason}; {PREVIOUS_COPY_KEPT}"))

    def _has_changed(self, unit: str) -> bool:
        seen, others = self._scan(unit)
        if seen.keys() != self._files_by_unit.get(unit, set()) or any(map(self._differs, seen, seen.values())):
            return True
        self._summary.unchanged_files += len(seen)
        self._summary.left_out += others
        return False

    def _scan(self, unit: str) -> tuple[dict[str, FileSeen], list[str]]:
        try:
            return scan_unit(self._core.disk, unit)
        except OSError as error:
            raise _Unreadable(f"cannot read the directory: {error.strerror}") from error

    def _differs(self, path: str, seen: FileSeen) -> bool:
        """Whether the backup may not hold the current version of a file."""
        item = self._writer.manifest.files.get(path)
        if item is None or path in self._damaged:
            return True
        if seen.is_link:
            return item.link != self._read_link(path)
        return item.stamp != seen.stamp or item.mode != seen.mode or not self._is_intact(path, item)

    def _is_intact(self, path: str, item: BackupFile) -> bool:
        info = self._writer.disk.stat(path)
        if info is None or item.link is not None:
            return info is not None and stat.S_ISLNK(info.st_mode) and item.link is not None
        return stat.S_ISREG(info.st_mode) and info.st_size == item.size

    def _read_link(self, path: str) -> str:
        try:
            return read_link(self._core.disk, path)
        except OSError as error:
            raise _Changed(path) from error

    def _copy(self, unit: str) -> None:
        location = lock_of(unit)
        unit_batch = _Batch()
        with ExitStack() as stack:
            with self._locked(location):
                before_ns = time.time_ns()
                seen, others = self._scan(unit)
                differing = sorted((path for path in seen if self._differs(path, seen[path])), key=_documents_first)
                self._skip_damaged_sidecar(unit, differing)
                opened = {
                    path: self._open(path, stack) for path in differing[:MAX_OPEN_FILES] if not seen[path].is_link
                }
                self._record_version(unit, seen, unit_batch)
            try:
                for path in differing:
                    stamp = seen[path].stamp.if_settled(before_ns)
                    self._copy_file(path, seen[path], stamp, opened.get(path), unit_batch)
            except BaseException:
                for move in unit_batch.moves:
                    self._writer.discard(move.temp)
                raise
        unit_batch.gone = sorted(self._files_by_unit.get(unit, set()) - seen.keys())
        self._summary.left_out += others
        self._summary.unchanged_files += len(seen) - len(unit_batch.moves)
        self._summary.copied_sessions += len(unit_batch.sessions) if unit_batch.moves else 0
        self._add(unit_batch)

    def _skip_damaged_sidecar(self, unit: str, differing: list[str]) -> None:
        """Keep the backup's copy of a runtime.json that cannot be loaded any more, and record the problem."""
        location = location_of(unit)
        path = location.path(layout.RUNTIME) if location is not None else ""
        if path not in differing or path not in self._writer.manifest.files or path in self._damaged:
            return
        file = self._core.disk.read(path, self._core.limit_bytes)
        try:
            if file is not None:
                parse_document(file.data, path, limit=self._core.limit_bytes)
        except InvalidContent as error:
            differing.remove(path)
            self._summary.problems.append(BackupProblem(path, f"{error.problem}; {PREVIOUS_COPY_KEPT}"))

    @contextmanager
    def _locked(self, location: Location | None) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                if location is not None:
                    stack.enter_context(self._core.locked(location))
            except OSError as error:  # recovery of an interrupted commit failed, e.g. on a full disk
                raise _Unreadable(str(error)) from error
            yield

    def _record_version(self, unit: str, seen: dict[str, FileSeen], batch: _Batch) -> None:
        """Record the version of a session for the manifest. The caller holds its lock.

        Raises _Unreadable if a session that the backup has is now corrupt or missing among its files.
        """
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
            state = "is corrupt" if path in seen else "is missing, but other files of the session exist"
            raise _Unreadable(f"{path} {state}; see `grovefs check`, or run `grovefs restore`")
        elif str(location) in self._writer.manifest.sessions:
            batch.forgotten.append(str(location))

    def _open(self, path: str, stack: ExitStack) -> int:
        try:
            fd = self._core.disk.open_to_read(path)
        except FileNotFoundError as error:
            raise _Changed(path) from error
        except OSError as error:
            raise _Unreadable(f"{path} cannot be read: {error.strerror}") from error
        stack.callback(os.close, fd)
        return fd

    def _copy_file(self, path: str, seen: FileSeen, stamp: Stamp, fd: int | None, batch: _Batch) -> None:
        if seen.is_link:
            text = self._read_link(path)
            batch.moves.append(Move(self._writer.write_link(text), path))
            batch.files[path] = BackupFile(0, seen.stamp.mtime_ns, seen.mode, "", stamp, text)
            return
        with ExitStack() as stack:
            fd = self._open(path, stack) if fd is None else fd
            chunks = _read_unchanged(fd, seen.stamp, path)
            temp, sha256 = self._writer.write(chunks, seen.mode, seen.stamp.mtime_ns)
        item = BackupFile(seen.stamp.size, seen.stamp.mtime_ns, seen.mode, sha256, stamp)
        known = self._writer.manifest.files.get(path)
        batch.files[path] = item
        if known is not None and known[:4] == item[:4] and path not in self._damaged and self._is_intact(path, known):
            self._writer.discard(temp)  # only the inode differs
            return
        batch.moves.append(Move(temp, path))
        if self._verify and self._writer.read_back_digest(temp) != sha256:
            text = "verification failed: data read back differs from data written"
            raise OSError(errno.EIO, text, str(self._writer.path / path))

    # -- batches ----------------------------------------------------------------------------------------------

    def _drop_unit(self, unit: str) -> None:
        """Remove a unit that the home no longer has."""
        location = location_of(unit)
        batch = _Batch(gone=sorted(self._files_by_unit[unit]))
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
    """A file or directory of the home that cannot be read."""


def _documents_first(path: str) -> tuple[bool, str]:
    """Sort key: documents and records, which must be of one version, before files that never change."""
    return path.rpartition("/")[2] not in (*layout.DOCUMENTS, *layout.RECORDS), path


def _read_unchanged(fd: int, stamp: Stamp, path: str) -> Iterator[bytes]:
    """The content of a file at its scanned size. Raises _Changed if it was modified since; a log may have grown."""
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
