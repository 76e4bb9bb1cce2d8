"""Maintenance of the trigram index: changed files are listed at once and indexed later.

Invariant: a path leaves the tables grep_files and grep_changed only if the file does not exist, and moves
from grep_changed to grep_files only while the file has the stamp it was read with. Both are checked inside
the transaction that makes the change. So a process that notices a change and then records it cannot be
overtaken by a merge. A segment becomes valid in the transaction that names it. A crash before that leaves
an orphaned file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from store.disk.disk import Disk
from store.errors import Corrupt
from store.index import changed_files
from store.index.database import Database, now_ns
from store.search.grep import file_stamps, known_files
from store.search.grep.segment_files import FOLDER, Row, SegmentFiles
from store.search.grep.segments import Damaged, Postings
from store.search.grep.throttle import Throttle

log = logging.getLogger("grovefs.store")

SETTLED_NS = 30_000_000_000  # a file that changed more recently is likely to change again
OVERDUE_NS = 120_000_000_000  # index settled files after this time, however few
WORTH_A_SEGMENT = 16  # files; grep reads fewer in no time
MAX_FILE_BYTES = 256 << 20  # larger files are not indexed; grep always reads them
BATCH_FILES = 8_192
BATCH_BYTES = 64 << 20
ROWS_PER_TRANSACTION = 2_000  # a transaction blocks the writers of sessions

T = TypeVar("T")
Progress = Callable[[int, int], None]


class Stopped(Exception):
    """The store is being closed."""


@dataclass
class TrigramIndex:
    """The segments in .grovefs/trigrams/ and the tables grep_files, grep_changed, grep_folders, grep_segments."""

    disk: Disk
    db: Database
    _prefix: bytes = field(init=False)
    _segments: SegmentFiles = field(init=False)
    _stopping: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._prefix = os.fsencode(self.disk.home) + b"/"
        self._segments = SegmentFiles(self.disk, self.db)

    def stop(self) -> None:
        """Abort a running merge, as a crash would. Nothing is lost."""
        self._stopping = True

    def _check_stop(self, throttle: Throttle | None = None) -> None:
        if throttle is not None:
            throttle.pause()
        if self._stopping:
            raise Stopped

    # -- finding changed files ----------------------------------------------------------------------------------

    def sweep(self, top: bytes = known_files.SESSIONS, watch: Callable[[bytes], None] | None = None) -> int:
        """Walk sessions/, or a part of it, and list the files that are new or changed. Returns their number.

        `watch` is called with each directory before it is listed.
        """
        files, changed, folders = self._tables(top)
        seen: set[bytes] = set()
        found: list[bytes] = []
        records: list[tuple[bytes, bytes]] = []
        stack = [top]
        while stack:
            folder = stack.pop()
            if watch is not None:
                watch(folder)
            listed = self.scan_dir(folder)
            if listed is None:
                continue
            stamp, paths, below = listed
            stack += below
            records.append((folder, stamp))
            seen.update(paths)
            found += [p for p in paths if p not in changed and (p not in files or not self.is_unchanged(p, files[p]))]
        self.list_changed(found)
        self._record(records, folders)
        self._forget({*files, *changed} - seen, folders.keys() - {path for path, _ in records})
        return len(found)

    def _tables(self, top: bytes = known_files.SESSIONS) -> tuple[dict[bytes, bytes], set[bytes], dict[bytes, bytes]]:
        """The rows of grep_files, grep_changed and grep_folders for a directory and everything below it."""
        reader = self.db.reader
        where = "WHERE path = ?1 OR (path > ?2 AND path < ?3)"
        below = (top, top + b"/", top + b"0")  # "0" follows "/" in ASCII
        files = dict(reader.execute(f"SELECT path, stamp FROM grep_files {where}", below))
        changed = {path for (path,) in reader.execute(f"SELECT path FROM grep_changed {where}", below)}
        return files, changed, dict(reader.execute(f"SELECT path, stamp FROM grep_folders {where}", below))

    def scan_dir(self, folder: bytes) -> tuple[bytes, list[bytes], list[bytes]] | None:
        """A directory's stamp, regular files and subdirectories; None if it does not exist."""
        before_ns = now_ns()
        try:
            with self.disk.open_dir(os.fsdecode(folder)) as fd, os.scandir(fd) as found:
                stamp = file_stamps.pack_if_settled(os.fstat(fd), before_ns)
                entries = [(e.name, e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False)) for e in found]
        except (FileNotFoundError, NotADirectoryError, Corrupt):
            return None
        except OSError:  # unreadable: never known
            return file_stamps.NEVER, [], []
        files = [folder + b"/" + os.fsencode(name) for name, _, is_file in entries if is_file]
        return stamp, files, [folder + b"/" + os.fsencode(name) for name, is_dir, _ in entries if is_dir]

    def is_unchanged(self, path: bytes, stamp: bytes) -> bool:
        """Whether a file still has a stamp, and has no second hard link through which it could change unnoticed."""
        try:
            info = os.lstat(self._prefix + path)
        except OSError:
            return False
        return file_stamps.pack(info) == stamp and info.st_nlink == 1

    def _is_folder(self, path: bytes, stamp: bytes) -> bool:
        try:
            return file_stamps.pack(os.lstat(self._prefix + path)) == stamp
        except OSError:
            return False

    def is_listed(self, path: bytes) -> bool:
        """Whether a path is in grep_files or grep_changed."""
        tables = "SELECT 1 FROM grep_files WHERE path = ?1 UNION ALL SELECT 1 FROM grep_changed WHERE path = ?1"
        return self.db.reader.execute(tables, (path,)).fetchone() is not None

    def list_changed(self, paths: Iterable[bytes]) -> None:
        """Mark files as changed: grep reads them from now on.

        Always a transaction, because it has to wait for a merge that is about to remove them from the list.
        """
        at_ns = now_ns()
        for rows in _chunks([(path, at_ns) for path in paths]):
            with self.db.write() as db:
                db.executemany(changed_files.UPSERT, rows)

    def _record(self, records: list[tuple[bytes, bytes]], present: dict[bytes, bytes]) -> None:
        """Store directory stamps, innermost first: a row means that everything below it is in the tables."""
        for rows in _chunks([row for row in reversed(records) if present.get(row[0]) != row[1]]):
            with self.db.write() as db:
                db.executemany("INSERT OR REPLACE INTO grep_folders VALUES (?, ?)", rows)

    def _forget(self, files: Iterable[bytes], folders: Iterable[bytes]) -> None:
        for paths in _chunks(sorted(files)):
            with self.db.write() as db:
                deleted = [(path,) for path in paths if not os.path.lexists(self._prefix + path)]
                db.executemany("DELETE FROM grep_changed WHERE path = ?", deleted)
                db.executemany("DELETE FROM grep_files WHERE path = ?", deleted)
        for paths in _chunks(sorted(folders)):
            with self.db.write() as db:
                db.executemany("DELETE FROM grep_folders WHERE path = ?", [(path,) for path in paths])

    # -- indexing changed files ------------------------------------------------------------------------------

    def merge_if_due(self) -> None:
        """Merge with a throttle if enough files have changed and settled, or some are overdue."""
        now = now_ns()
        settled, oldest = self.db.reader.execute(
            "SELECT count(*), min(at_ns) FROM grep_changed WHERE at_ns < ?", (now - SETTLED_NS,)
        ).get
        if settled >= WORTH_A_SEGMENT or (settled and oldest < now - OVERDUE_NS):
            self.merge(before_ns=now - SETTLED_NS, gently=True)

    def merge(self, *, before_ns: int | None = None, gently: bool = False, progress: Progress | None = None) -> int:
        """Index the files that changed, or changed before a time, into segments. Returns the number indexed.

        `gently`: with a throttle. Returns 0 while another process merges.
        """
        with self._merge_lock() as is_locked:
            if not is_locked:
                return 0
            limit = now_ns() + 1 if before_ns is None else before_ns
            found = self.db.reader.execute("SELECT path FROM grep_changed WHERE at_ns < ?", (limit,))
            # Files of the same name share many trigrams. With adjacent numbers their bitmaps stay small.
            paths = sorted((path for (path,) in found), key=lambda path: (path.rpartition(b"/")[2], path))
            throttle = Throttle() if gently else None
            done = at = 0
            while at < len(paths):
                taken, count = self._merge_some(paths[at : at + BATCH_FILES], throttle)
                at += taken
                done += count
                if progress is not None:
                    progress(at, len(paths))
            self._refresh_folders(paths)
            self._compact(throttle)
            return done

    @contextmanager
    def _merge_lock(self) -> Iterator[bool]:
        """Take the merge lock; yields False if another process holds it and already does the same work."""
        self.disk.make_dirs(FOLDER)
        with self.disk.open_dir(FOLDER) as folder:
            fd = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=folder)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(fd)

    def _merge_some(self, paths: list[bytes], throttle: Throttle | None) -> tuple[int, int]:
        """Write one segment. Returns how many paths were examined and how many of them were indexed."""
        documents: list[tuple[int, bytes, bytes]] = []
        deleted: list[bytes] = []
        postings = Postings()
        number = self._reserve(len(paths))
        size = taken = 0
        for path in paths:
            if size > BATCH_BYTES:
                break
            self._check_stop(throttle)
            taken += 1
            try:
                read = self.read(path)
            except (FileNotFoundError, NotADirectoryError):
                deleted.append(path)
                continue
            if read is None:
                continue
            data, stamp = read
            postings.add(number, data)
            documents.append((number, path, stamp))
            number += 1
            size += len(data)
        if documents:
            self._add_segment(postings, documents, throttle)
        self._forget(deleted, [])
        return taken, len(documents)

    def _reserve(self, count: int) -> int:
        with self.db.write() as db:
            first = db.execute("SELECT value FROM meta WHERE key = 'grep_next'").get or 0
            db.execute("INSERT OR REPLACE INTO meta VALUES ('grep_next', ?)", (first + count,))
        return int(first)

    def read(self, path: bytes) -> tuple[bytes, bytes] | None:
        """A file's bytes and stamp; None if it cannot be indexed and grep has to read it every time."""
        try:
            fd = self.disk.open_to_read(os.fsdecode(path))
        except (FileNotFoundError, NotADirectoryError):
            raise
        except (OSError, Corrupt):  # grep reports the reason
            return None
        try:
            before_ns = now_ns()
            info = os.fstat(fd)
            stamp = file_stamps.pack_if_settled(info, before_ns)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or info.st_size > MAX_FILE_BYTES:
                return None
            data = b"".join(iter(lambda: os.read(fd, 1 << 20), b""))
            is_same = file_stamps.pack(os.fstat(fd)) == stamp and len(data) == info.st_size
            return (data, stamp) if is_same else None
        finally:
            os.close(fd)

    def _add_segment(
        self, postings: Postings, documents: list[tuple[int, bytes, bytes]], throttle: Throttle | None
    ) -> None:
        name, size = self._segments.write(self._throttled(postings.rows(), throttle))
        self.disk.step("index")
        with self.db.write() as db:
            still = [row for row in documents if self.is_unchanged(row[1], row[2])]
            db.executemany("DELETE FROM grep_files WHERE path = ?", [(path,) for _, path, _ in still])
            db.executemany("INSERT INTO grep_files VALUES (?, ?, ?)", still)
            db.executemany("DELETE FROM grep_changed WHERE path = ?", [(path,) for _, path, _ in still])
            db.execute("INSERT INTO grep_segments VALUES (?, ?, ?)", (name, len(documents), size))

    def _refresh_folders(self, paths: list[bytes]) -> None:
        """Store the stamps of the directories around the indexed files, and list unknown files in them."""
        files, changed, folders = self._tables()
        stack = sorted({b"/".join(p.split(b"/")[:n]) for p in paths for n in range(1, p.count(b"/") + 1)})
        records: list[tuple[bytes, bytes]] = []
        found: list[bytes] = []
        visited: set[bytes] = set()
        while stack:
            folder = stack.pop()
            is_known = folder in visited or (folder in folders and self._is_folder(folder, folders[folder]))
            listed = None if is_known else self.scan_dir(folder)
            visited.add(folder)
            if listed is None:
                continue
            records.append((folder, listed[0]))
            found += [path for path in listed[1] if path not in files and path not in changed]
            stack += [path for path in listed[2] if path not in folders]
        self.list_changed(found)
        records.sort()  # `_record` goes backwards: innermost first
        self._record(records, folders)

    def _compact(self, throttle: Throttle | None) -> None:
        try:
            self._segments.compact(lambda rows: self._throttled(rows, throttle))
        except Damaged as error:
            log.warning("trigram segment damaged, indexing all files again: %s", error)
            self.forget_all()
        self._segments.remove_orphans()

    def _throttled(self, rows: Iterable[Row], throttle: Throttle | None) -> Iterator[Row]:
        for row in rows:
            self._check_stop(throttle)
            yield row

    # -- rebuilding -------------------------------------------------------------------------------------------

    def forget_all(self) -> None:
        """List every indexed file as changed: grep reads all of them until they are indexed again."""
        with self.db.write() as db:
            db.execute("INSERT OR IGNORE INTO grep_changed SELECT path, 0 FROM grep_files")
            db.execute("DELETE FROM grep_files; DELETE FROM grep_segments")

    def rebuild(self, progress: Progress | None = None) -> int:
        self.forget_all()
        self.sweep()
        return self.merge(progress=progress)


def _chunks(rows: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(rows), ROWS_PER_TRANSACTION):
        yield rows[start : start + ROWS_PER_TRANSACTION]
