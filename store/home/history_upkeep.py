"""Upkeep of the history: dropping, thinning and purging versions, each lineage under its session's lock.

One transaction per lineage, so that no save waits long. A lineage whose session is locked is left for
the next time.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from store import layout
from store.commit.core import Core
from store.disk import trash
from store.disk.rejects import Rejects
from store.errors import Busy, Corrupt
from store.history import drafts, lineages, purge, reading, snapshots, thinning
from store.history.retention import DAY_NS, KeptVersion, Retention, all_of, halve, named, protected
from store.history.versions import owner_of
from store.sessions.delete import DeleteOperations

log = logging.getLogger("grovefs.store")

THIN_EVERY_S = 3600.0
RETRY_LOCKED_S = 5.0
LOG_BYTES = 1 << 20  # a longer write-ahead log is truncated when idle
_HALVINGS = 6

Progress = Callable[[int, int], None]
Select = Callable[[list[KeptVersion], list[int]], set[int]]


@dataclass
class PurgeReport:
    """What was removed, and what could not be."""

    versions: int = 0
    drafts: int = 0
    rejected: int = 0
    trash_slots: int = 0
    names: int = 0  # of programs and snapshots
    set_aside: int = 0  # damaged databases
    present: list[str] = field(default_factory=list)  # paths whose present files match
    skipped: list[str] = field(default_factory=list)  # paths that are locked or do not decode
    is_log_erased: bool = True  # False: another process is reading, and a database may still hold the texts

    @property
    def is_complete(self) -> bool:
        return self.is_log_erased and not self.present and not self.skipped


@dataclass
class HistoryUpkeep:
    core: Core
    deleter: DeleteOperations
    retention: Retention = field(default_factory=Retention)
    _thin_at: float = 0.0

    # -- when idle ---------------------------------------------------------------------------------

    def tidy(self) -> float | None:
        """Catch up, drop what belongs to nothing, store whole texts, thin out once an hour, truncate the log.

        Returns after how many seconds to come again, if the history does not work now.
        """
        history = self.core.history
        if not history.is_on or not history.database.path.exists():
            return None
        if not self.catch_up():
            return history.retry_in_s or RETRY_LOCKED_S
        self._drop_erased()
        with history.database.write() as db:
            drafts.trim(db)
        self._store_whole_texts()
        if time.monotonic() >= self._thin_at:
            self._thin_at = time.monotonic() + THIN_EVERY_S
            self.thin()
        self._truncate_log()
        return None

    def catch_up(self) -> bool:
        """Record the versions that the history missed while it did not work. False if some are still missing."""
        missed = self.core.journal.missed
        is_complete = missed.repeat_moves()
        for version in missed.versions() if is_complete else ():
            try:
                with self._locked(version.lineage):
                    is_complete &= missed.record(version)
            except Busy:  # a save of this session records them as well
                is_complete = False
        return is_complete and self._record_edits()

    def _record_edits(self) -> bool:
        """Record edits on disk that were indexed while the history did not work. False if some are still missing."""
        missed, history = self.core.journal.missed, self.core.history
        at_ns = missed.edits_at_ns()
        if not at_ns:
            return True
        changed = history.changed_paths()
        is_complete = changed is not None
        for path in changed or ():
            try:
                with self._locked(path):
                    is_complete &= history.observe(path)
            except Busy:
                is_complete = False
        if is_complete:
            missed.forget_edits(at_ns)
        return is_complete

    def _drop_erased(self) -> None:
        """Delete lineages of trash slots that no longer exist, unless a snapshot names them."""
        database = self.core.history.database
        for key, path in lineages.at_or_below(database.reader, os.fsencode(layout.TRASH)):
            if self._is_erased(os.fsdecode(path)) and not snapshots.is_named(database.reader, key):
                with database.write() as db:
                    lineages.delete_lineage(db, key)

    def _is_erased(self, path: str) -> bool:
        """Whether a lineage has no files: its trash slot no longer exists, or another lineage has its path."""
        slot = "/".join(path.split("/")[:3])
        return path.startswith(f"{layout.PRIVATE}/") and self.core.disk.stat(slot) is None

    def _snapshots_ns(self) -> list[int]:
        return [snapshot.at_ns for snapshot in self.core.history.snapshots()]

    def _store_whole_texts(self) -> None:
        database = self.core.history.database
        for key, path in thinning.long_runs(database.reader):
            with _skipping_busy(), self._locked(os.fsdecode(path)), database.write(durable=True) as db:
                last = db.execute("SELECT last FROM lineages WHERE key = ?", (key,)).get
                texts = {role: reading.read_text(db, key, last, role) for role in thinning.ROLES}
                thinning.store_whole(db, key, texts)

    def _truncate_log(self) -> None:
        path = f"{self.core.history.database.path}-wal"
        if os.path.exists(path) and os.path.getsize(path) > LOG_BYTES:
            purge.erase_log(self.core.history.database)

    def _locked(self, path: str) -> AbstractContextManager[None]:
        """The lock that commits of a lineage hold; none is needed for one that no path leads to."""
        location = owner_of(path)
        return nullcontext() if location is None else self.core.locked(location, timeout_s=0)

    # -- thinning ----------------------------------------------------------------------------------

    def thin(self, progress: Progress | None = None) -> int:
        """Remove versions that have grown too old, and more if the history is over its limit."""
        now_ns = time.time_ns()
        horizon_ns = now_ns - int(self.retention.whole_days * DAY_NS)
        reader = self.core.history.database.reader
        query = "SELECT key, dir FROM lineages WHERE key IN (SELECT lineage FROM versions WHERE at_ns < ?)"
        old: list[Any] = reader.execute(query, (horizon_ns,)).fetchall()
        removed = 0
        for done, (key, path) in enumerate(old, 1):
            removed += self._keep(key, path, lambda found, moments: self.retention.select(found, now_ns, moments))
            if progress is not None:
                progress(done, len(old))
        removed += self._shrink()
        if removed:
            purge.erase_log(self.core.history.database)
        return removed

    def _shrink(self) -> int:
        """Bring the history below its limit: the lineages that changed longest ago lose versions first.

        At last those that did not change for long lose all but what snapshots name. Their present
        files are recorded again before they are replaced.
        """
        newest = self.retention.newest
        old_ns = time.time_ns() - int(self.retention.whole_days * DAY_NS)
        steps: list[Select] = [lambda found, moments: halve(found, newest, moments)] * _HALVINGS
        steps.append(lambda found, moments: named(found, moments) | protected(found[-newest:], newest))
        steps.append(lambda found, moments: named(found, moments) if found[-1].at_ns < old_ns else all_of(found))
        removed = 0
        for select in steps:
            if self._used_bytes() <= self.retention.limit_bytes:
                break
            query = "SELECT key, dir FROM lineages ORDER BY at_ns"
            found: list[Any] = self.core.history.database.reader.execute(query).fetchall()
            for key, path in found:
                if self._used_bytes() <= self.retention.limit_bytes:
                    break
                removed += self._keep(key, path, select)
        if self._used_bytes() > self.retention.limit_bytes:
            log.info("the history is over its limit, but all of it is recent")
        return removed

    def _keep(self, key: int, path: bytes, select: Select) -> int:
        """Remove the versions of one lineage that are not selected."""
        moments = self._snapshots_ns()
        removed = 0
        database = self.core.history.database
        with _skipping_busy(), self._locked(os.fsdecode(path)), database.write(durable=True) as db:
            found = thinning.versions_of(db, key)
            if found:
                removed = thinning.keep_only(db, key, select(found, moments))
        return removed

    def _used_bytes(self) -> int:
        reader = self.core.history.database.reader
        pages, free, size = (
            int(reader.execute(f"PRAGMA {name}").get) for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    # -- purging -----------------------------------------------------------------------------------

    def purge(self, paths: Iterable[str] | None = None, matching: str | None = None) -> PurgeReport:
        """Remove past texts permanently: those that match a regular expression, or all but the present ones.

        `paths` are sessions' directories or kept files; None means all. Rejected texts, the trash and
        damaged databases that were set aside are purged too, and deleted text in the search index.
        """
        if paths is None and matching is None:
            raise ValueError("purge: name paths, a regular expression, or both")
        pattern = re.compile(matching.encode()) if matching is not None else None
        wanted = None if paths is None else list(paths)
        report = PurgeReport()
        self._purge_trash(wanted, pattern, report)
        self._purge_rejects(wanted, pattern, report)
        for key, path in self._lineages(wanted):
            self._purge_lineage(key, path, pattern, report)
        self._purge_rest(pattern, report)
        return report

    def _lineages(self, wanted: list[str] | None) -> list[tuple[int, str]]:
        reader = self.core.history.database.reader
        if wanted is None:
            rows: Iterable[Any] = reader.execute("SELECT key, dir FROM lineages").fetchall()
        else:
            names = map(os.fsencode, wanted)
            rows = [row for n in names for row in (*lineages.at_or_below(reader, n), *lineages.gone_from(reader, n))]
        return [(key, os.fsdecode(path)) for key, path in dict.fromkeys(rows)]

    def _purge_lineage(self, key: int, path: str, pattern: re.Pattern[bytes] | None, report: PurgeReport) -> None:
        location = owner_of(path)
        try:
            lock = nullcontext() if location is None else self.core.locked(location)
            with lock, self.core.history.database.write(durable=True) as db:
                purged = purge.purge_lineage(db, key, pattern, has_files=not self._is_erased(path))
        except (Busy, Corrupt) as error:
            log.warning("%s was not purged: %s", path, error)
            report.skipped.append(path)
            return
        report.versions += purged.versions
        report.drafts += purged.drafts
        if purged.is_in_present:
            report.present.append(path)
        if location is not None and (purged.versions or purged.drafts):
            with self.core.db.write() as index:  # mounts drop what they show of the past
                self.core.feed.add(index, [location.owner], "purged")

    def _purge_trash(self, wanted: list[str] | None, pattern: re.Pattern[bytes] | None, report: PurgeReport) -> None:
        disk = self.core.disk
        for name in disk.directories(layout.TRASH):
            slot = trash.find_slot(disk, name)
            originals = [original for original, _ in slot.moves] if slot is not None else []
            is_wanted = wanted is None or any(_is_below(path, wanted) for path in originals)
            if is_wanted and (pattern is None or self._has_match(f"{layout.TRASH}/{name}", pattern)):
                self.deleter.purge_slot(name, keep_snapshots=False)
                report.trash_slots += 1

    def _has_match(self, directory: str, pattern: re.Pattern[bytes]) -> bool:
        for entry in self.core.disk.entries(directory):
            path = f"{directory}/{entry.name}"
            if entry.is_dir and self._has_match(path, pattern):
                return True
            file = self.core.disk.read(path) if entry.is_file else None
            if file is not None and pattern.search(file.data):
                return True
        return False

    def _purge_rejects(self, wanted: list[str] | None, pattern: re.Pattern[bytes] | None, report: PurgeReport) -> None:
        def is_purged(path: str, data: bytes) -> bool:
            is_wanted = wanted is None or _is_below(path, wanted)
            return is_wanted and (pattern is None or pattern.search(data) is not None)

        report.rejected = Rejects(self.core.disk).purge(is_purged)

    def _purge_rest(self, pattern: re.Pattern[bytes] | None, report: PurgeReport) -> None:
        database = self.core.history.database
        if pattern is not None:
            with database.write(durable=True) as db:
                report.names = purge.purge_origins(db, pattern)
        for path in purge.set_aside_files(database):
            path.unlink(missing_ok=True)
            report.set_aside += purge.is_database(path)
        is_index_erased = self.core.db.erase_deleted()
        report.is_log_erased = purge.erase_log(database) and is_index_erased
        self.core.on_commit()


def _is_below(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


@contextmanager
def _skipping_busy() -> Iterator[None]:
    """Skip a lineage whose session is in use, or that does not decode, which `check` reports."""
    try:
        yield
    except (Busy, Corrupt) as error:
        log.info("a lineage is left as it is: %s", error)
