"""Keeping the trigrams in step with the files: what changed is listed, and read when there is time.

The one law: a path leaves the tables grep_files and grep_changed only when no file is there, and moves from
grep_changed to grep_files only while the file has the stamp it was read with; both are looked at inside the
transaction that does it. So whoever notices a change and writes it down afterwards cannot be overtaken. A
segment counts from the transaction that names it; a crash before leaves a file that belongs to no one.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from pyroaring import BitMap

from store.disk.disk import Disk
from store.disk.file import NewFile
from store.errors import Corrupt
from store.index import changed_files
from store.index.database import Database, now_ns
from store.search.grep import file_stamps, known_files
from store.search.grep.regex_trigrams import ANY
from store.search.grep.segments import Damaged, Postings, Segment, candidates, merged, render
from store.search.grep.throttle import Throttle

log = logging.getLogger("grovefs.store")

FOLDER = os.fsdecode(known_files.SEGMENTS).rstrip("/")
SETTLED_NS = 30_000_000_000  # a file that changed since may well change again
OVERDUE_NS = 120_000_000_000  # … but not for ever
WORTH_A_SEGMENT = 16  # files; fewer are read by grep in no time
LARGEST_BYTES = 256 << 20  # of a file that is indexed; larger ones are always read
BATCH_FILES = 8_192
BATCH_BYTES = 64 << 20
FEWEST_MERGED = 4  # segments at a time
MOST_SEGMENTS = 16
ROWS_A_TRANSACTION = 2_000  # writers of sessions are waiting
ORPHANED_S = 60.0  # a segment that nobody names may be one that is being made, or read

T = TypeVar("T")
Progress = Callable[[int, int], None]


class Stopped(Exception):
    """The store is being closed."""


@dataclass
class TrigramIndex:
    disk: Disk
    db: Database
    _prefix: bytes = field(init=False)
    _stopping: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._prefix = os.fsencode(self.disk.home) + b"/"

    def stop(self) -> None:
        """Leave off what is being done, as a crash would; nothing is lost by it."""
        self._stopping = True

    def _check_stop(self, leisure: Throttle | None = None) -> None:
        if leisure is not None:
            leisure.pause()
        if self._stopping:
            raise Stopped

    # -- noticing ----------------------------------------------------------------------------------------

    def sweep(self, top: bytes = known_files.SESSIONS, watch: Callable[[bytes], None] | None = None) -> int:
        """Walk sessions/, or a part of it, and list what is not known as it is; returns how many files that are.

        `watch` is told of each directory before it is looked into.
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
        """What is known of a directory and all below it."""
        reader = self.db.reader
        where = "WHERE path = ?1 OR (path > ?2 AND path < ?3)"
        below = (top, top + b"/", top + b"0")  # which is the character behind the slash
        files = dict(reader.execute(f"SELECT path, stamp FROM grep_files {where}", below))
        changed = {path for (path,) in reader.execute(f"SELECT path FROM grep_changed {where}", below)}
        return files, changed, dict(reader.execute(f"SELECT path, stamp FROM grep_folders {where}", below))

    def scan_dir(self, folder: bytes) -> tuple[bytes, list[bytes], list[bytes]] | None:
        """A directory's stamp, plain files and directories; None if there is none to look into."""
        before_ns = now_ns()
        try:
            with self.disk.open_dir(os.fsdecode(folder)) as fd, os.scandir(fd) as found:
                stamp = file_stamps.pack_if_settled(os.fstat(fd), before_ns)
                entries = [(e.name, e.is_dir(follow_symlinks=False), e.is_file(follow_symlinks=False)) for e in found]
        except (FileNotFoundError, NotADirectoryError, Corrupt):
            return None
        except OSError:  # not to be looked into: never known
            return file_stamps.NEVER, [], []
        files = [folder + b"/" + os.fsencode(name) for name, _, is_file in entries if is_file]
        return stamp, files, [folder + b"/" + os.fsencode(name) for name, is_dir, _ in entries if is_dir]

    def is_unchanged(self, path: bytes, stamp: bytes) -> bool:
        """Whether a file is the version a stamp is of, and nobody could change it by another name."""
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
        """Whether a path is in sight: known, or to be read."""
        tables = "SELECT 1 FROM grep_files WHERE path = ?1 UNION ALL SELECT 1 FROM grep_changed WHERE path = ?1"
        return self.db.reader.execute(tables, (path,)).fetchone() is not None

    def list_changed(self, paths: Iterable[bytes]) -> None:
        """From now on these are read. Always a transaction: it waits for one that is about to strike them off."""
        at_ns = now_ns()
        for rows in _chunks([(path, at_ns) for path in paths]):
            with self.db.write() as db:
                db.executemany(changed_files.NOTE, rows)

    def _record(self, records: list[tuple[bytes, bytes]], present: dict[bytes, bytes]) -> None:
        """Directories, the innermost first: a row says that all below it is in the tables."""
        for rows in _chunks([row for row in reversed(records) if present.get(row[0]) != row[1]]):
            with self.db.write() as db:
                db.executemany("INSERT OR REPLACE INTO grep_folders VALUES (?, ?)", rows)

    def _forget(self, files: Iterable[bytes], folders: Iterable[bytes]) -> None:
        for paths in _chunks(sorted(files)):
            with self.db.write() as db:
                gone = [(path,) for path in paths if not os.path.lexists(self._prefix + path)]
                db.executemany("DELETE FROM grep_changed WHERE path = ?", gone)
                db.executemany("DELETE FROM grep_files WHERE path = ?", gone)
        for paths in _chunks(sorted(folders)):
            with self.db.write() as db:
                db.executemany("DELETE FROM grep_folders WHERE path = ?", [(path,) for path in paths])

    # -- reading what changed --------------------------------------------------------------------------------

    def merge_if_due(self) -> None:
        """What may be done now, gently: nothing while little has changed, or while it is still changing."""
        now = now_ns()
        settled, oldest = self.db.reader.execute(
            "SELECT count(*), min(at_ns) FROM grep_changed WHERE at_ns < ?", (now - SETTLED_NS,)
        ).get
        if settled >= WORTH_A_SEGMENT or (settled and oldest < now - OVERDUE_NS):
            self.merge(before_ns=now - SETTLED_NS, gently=True)

    def merge(self, *, before_ns: int | None = None, gently: bool = False, progress: Progress | None = None) -> int:
        """Read the files that changed, or changed before a time, into segments; returns how many were read."""
        with self._alone() as is_alone:
            if not is_alone:
                return 0
            limit = now_ns() + 1 if before_ns is None else before_ns
            found = self.db.reader.execute("SELECT path FROM grep_changed WHERE at_ns < ?", (limit,))
            # Files of one name have much in common: side by side they make sets without gaps, which take no room.
            paths = sorted((path for (path,) in found), key=lambda path: (path.rpartition(b"/")[2], path))
            leisure = Throttle() if gently else None
            done = at = 0
            while at < len(paths):
                taken, count = self._merge_some(paths[at : at + BATCH_FILES], leisure)
                at += taken
                done += count
                if progress is not None:
                    progress(at, len(paths))
            self._refresh_folders(paths)
            self._compact(leisure)
            return done

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """One process merges at a time; another would only do the same again."""
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

    def _merge_some(self, paths: list[bytes], leisure: Throttle | None) -> tuple[int, int]:
        """One segment; returns how many paths were looked at, and how many of them are known now."""
        documents: list[tuple[int, bytes, bytes]] = []
        gone: list[bytes] = []
        postings = Postings()
        number = self._reserve(len(paths))
        size = taken = 0
        for path in paths:
            if size > BATCH_BYTES:
                break
            self._check_stop(leisure)
            taken += 1
            try:
                read = self.read(path)
            except (FileNotFoundError, NotADirectoryError):
                gone.append(path)
                continue
            if read is None:
                continue
            data, stamp = read
            postings.add(number, data)
            documents.append((number, path, stamp))
            number += 1
            size += len(data)
        if documents:
            self._add_segment(postings, documents, leisure)
        self._forget(gone, [])
        return taken, len(documents)

    def _reserve(self, count: int) -> int:
        with self.db.write() as db:
            first = db.execute("SELECT value FROM meta WHERE key = 'grep_next'").get or 0
            db.execute("INSERT OR REPLACE INTO meta VALUES ('grep_next', ?)", (first + count,))
        return int(first)

    def read(self, path: bytes) -> tuple[bytes, bytes] | None:
        """A file and its stamp; None if it is to be read by grep every time."""
        try:
            fd = self.disk.open_to_read(os.fsdecode(path))
        except (FileNotFoundError, NotADirectoryError):
            raise
        except (OSError, Corrupt):  # grep shall say why
            return None
        try:
            before_ns = now_ns()
            info = os.fstat(fd)
            stamp = file_stamps.pack_if_settled(info, before_ns)
            if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1 or info.st_size > LARGEST_BYTES:
                return None
            data = b"".join(iter(lambda: os.read(fd, 1 << 20), b""))
            is_same = file_stamps.pack(os.fstat(fd)) == stamp and len(data) == info.st_size
            return (data, stamp) if is_same else None
        finally:
            os.close(fd)

    def _add_segment(
        self, postings: Postings, documents: list[tuple[int, bytes, bytes]], leisure: Throttle | None
    ) -> None:
        name, size = self._write_segment(self._while_open(postings.rows(), leisure))
        self.disk.step("index")
        with self.db.write() as db:
            still = [row for row in documents if self.is_unchanged(row[1], row[2])]
            db.executemany("DELETE FROM grep_files WHERE path = ?", [(path,) for _, path, _ in still])
            db.executemany("INSERT INTO grep_files VALUES (?, ?, ?)", still)
            db.executemany("DELETE FROM grep_changed WHERE path = ?", [(path,) for _, path, _ in still])
            db.execute("INSERT INTO grep_segments VALUES (?, ?, ?)", (name, len(documents), size))

    def _write_segment(self, rows: Iterable[tuple[int, BitMap]]) -> tuple[str, int]:
        name = uuid.uuid4().hex
        target = f"{FOLDER}/{name}"
        temp = self.disk.write_temps([NewFile(target, render(rows), mode=0o600)])[0]
        self.disk.move(temp, target)
        return name, (self.disk.home / target).stat().st_size

    def _refresh_folders(self, paths: list[bytes]) -> None:
        """What lies around the files that were read: their directories are known from now on."""
        files, changed, folders = self._tables()
        stack = sorted({b"/".join(p.split(b"/")[:n]) for p in paths for n in range(1, p.count(b"/") + 1)})
        records: list[tuple[bytes, bytes]] = []
        found: list[bytes] = []
        looked: set[bytes] = set()
        while stack:
            folder = stack.pop()
            is_known = folder in looked or (folder in folders and self._is_folder(folder, folders[folder]))
            listed = None if is_known else self.scan_dir(folder)
            looked.add(folder)
            if listed is None:
                continue
            records.append((folder, listed[0]))
            found += [path for path in listed[1] if path not in files and path not in changed]
            stack += [path for path in listed[2] if path not in folders]
        self.list_changed(found)
        records.sort()  # so that, from behind, what is inside comes first
        self._record(records, folders)

    # -- fewer segments ---------------------------------------------------------------------------------------

    def _compact(self, leisure: Throttle | None) -> None:
        """Merge segments of like size, so that their number grows with the logarithm of what there is."""
        found = self.db.reader.execute("SELECT name, documents, bytes FROM grep_segments ORDER BY bytes")
        rows = [(str(name), int(documents), int(size)) for name, documents, size in found]
        live = BitMap(document for (document,) in self.db.reader.execute("SELECT document FROM grep_files"))
        chosen = _worth_merging([size for _, _, size in rows])
        if sum(documents for _, documents, _ in rows) > 2 * len(live) + BATCH_FILES:
            chosen = len(rows)  # most of them are no more
        if chosen:
            try:
                self._replace([name for name, _, _ in rows[:chosen]], live, leisure)
            except Damaged as error:
                log.warning("%s; its files are read again", error)
                self.forget_all()
        self._remove_orphans()

    def _replace(self, names: list[str], live: BitMap, leisure: Throttle | None) -> None:
        segments: list[Segment] = []
        try:
            segments = [Segment(str(self.disk.home / FOLDER / name)) for name in names]
            count = len(candidates(ANY, segments) & live)
            name, size = self._write_segment(self._while_open(merged(segments, live), leisure))
        finally:
            for segment in segments:
                segment.close()
        with self.db.write() as db:
            left = {row[0] for row in db.execute("SELECT name FROM grep_segments")}
            if left >= set(names):
                db.executemany("DELETE FROM grep_segments WHERE name = ?", [(old,) for old in names])
                db.execute("INSERT INTO grep_segments VALUES (?, ?, ?)", (name, count, size))

    def _while_open(self, rows: Iterable[tuple[int, BitMap]], leisure: Throttle | None) -> Iterator[tuple[int, BitMap]]:
        for row in rows:
            self._check_stop(leisure)
            yield row

    def _remove_orphans(self) -> None:
        named = {name for (name,) in self.db.reader.execute("SELECT name FROM grep_segments")}
        for entry in self.disk.entries(FOLDER):
            info = self.disk.stat(f"{FOLDER}/{entry.name}")
            if entry.name == "lock" or entry.name in named or info is None:
                continue
            if time.time() - info.st_mtime > ORPHANED_S:
                self.disk.remove_tree(f"{FOLDER}/{entry.name}")

    # -- beginning anew ---------------------------------------------------------------------------------------

    def forget_all(self) -> None:
        """Every file is read again, and until then whatever is asked for. None is ever out of sight."""
        with self.db.write() as db:
            db.execute("INSERT OR IGNORE INTO grep_changed SELECT path, 0 FROM grep_files")
            db.execute("DELETE FROM grep_files; DELETE FROM grep_segments")

    def rebuild(self, progress: Progress | None = None) -> int:
        self.forget_all()
        self.sweep()
        return self.merge(progress=progress)


def _chunks(rows: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(rows), ROWS_A_TRANSACTION):
        yield rows[start : start + ROWS_A_TRANSACTION]


def _worth_merging(sizes: list[int]) -> int:
    """How many of the smallest segments to make one of: as long as the next is not much larger than all before."""
    chosen = total = 0
    for size in sizes:
        if chosen and size > 2 * total:
            break
        chosen += 1
        total += size
    if len(sizes) > MOST_SEGMENTS:
        return max(chosen, FEWEST_MERGED)
    return chosen if chosen >= FEWEST_MERGED else 0
