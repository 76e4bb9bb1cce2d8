"""History: the versions of every kept file of a home.

A query raises HistoryUnusable or OSError if history.db cannot be read, and Corrupt if a version does
not decode. Recording never raises: a failure is shown by `state`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from store import layout
from store.disk.disk import Disk
from store.disk.file import File, Stamp
from store.errors import Busy, StoreError, describe
from store.history import drafts, lineages, purge, reading, schema, snapshots, steps
from store.history.authors import OUTSIDE, Author, current_author
from store.history.database import HistoryDatabase, HistoryUnusable
from store.history.planning import RecordingPlan
from store.history.recording import Recorder
from store.history.versions import (
    FOUND,
    AgreedNumber,
    Draft,
    FileChanges,
    HistoryState,
    PastVersion,
    SavedVersion,
    Snapshot,
    VersionTexts,
    lineage_path,
    mark_of,
)
from store.layout import PRIVATE, RUNTIME, Location

log = logging.getLogger("grovefs.store")

RETRY_S = 30.0  # after a failure, saves skip the history for this long
PATIENCE = 3  # so often in a row it may be locked by another process before that counts as a failure

_FAILURES = (apsw.Error, OSError, StoreError, steps.Error)


class History:
    """The history of an open home. `author` makes the changes that no other author is named for."""

    def __init__(self, disk: Disk, author: Author, *, is_on: bool = True) -> None:
        self.author = author
        self.is_on = is_on
        self.database = HistoryDatabase(disk.home / layout.HISTORY_DB)
        self._recorder = Recorder(disk, self.database)
        self._problem = ""
        self._failed_ns: int | None = None
        self._retry_at = 0.0
        self._times_busy = 0

    def close(self) -> None:
        self.database.close()

    # -- recording, by the journal -----------------------------------------------------------------

    def prepare(self, changes: FileChanges) -> RecordingPlan | None:
        """Call before a commit replaces files, under its lock. None if the history does not work now."""
        plans: list[RecordingPlan] = []
        self._attempt(lambda: plans.append(self._recorder.prepare(changes)))
        return plans[0] if plans else None

    def add(
        self,
        plan: RecordingPlan | None,
        stamps: Mapping[str, Stamp | None],
        agreed: Mapping[str, AgreedNumber] | None = None,
    ) -> bool:
        """Call once the files are in place and have these stamps, by path. False if nothing was recorded.

        `agreed` are the numbers that a grove has given, by directory of a unit.
        """
        if plan is None:
            return False
        if not plan:
            return True
        plan.agreed.update(agreed or {})
        author = current_author(self.author)
        return self._attempt(lambda: self._recorder.add(plan, author, stamps))

    def add_together(
        self, plans: Sequence[tuple[RecordingPlan | None, Author]], stamps: Mapping[str, Stamp | None]
    ) -> bool:
        """The same for commits of several authors, in one transaction. False if nothing was recorded."""
        known = [(plan, author) for plan, author in plans if plan is not None]
        return len(known) == len(plans) and self._attempt(lambda: self._recorder.add_together(known, stamps))

    def note_agreed(self, numbers: Mapping[str, AgreedNumber]) -> None:
        """Give the newest versions of lineages, by path, the numbers that a grove has given them."""
        self._attempt(lambda: self._recorder.note_agreed(numbers))

    def prepend(self, path: str, past: Sequence[PastVersion]) -> int:
        """Add versions from before the first one of a path; returns how many. The caller holds its lock.

        The last one of `past` is that first one. The numbers of this home grow by what is added. 0 if its first version
        did not come from a grove, or was thinned out.
        """
        added: list[int] = []
        self._attempt(lambda: added.append(self._recorder.prepend(path, past)))
        return sum(added)

    def share(self) -> None:
        """The home joins a grove: mark the versions that it has as local."""
        self.is_shared = True
        self._renumber("UPDATE versions SET agreed = -number WHERE agreed IS NULL")

    def unshare(self) -> None:
        """The home leaves its grove: its versions have only their own numbers again."""
        self.is_shared = False
        self._renumber("UPDATE versions SET agreed = NULL WHERE agreed IS NOT NULL")

    def _renumber(self, sql: str) -> None:
        def update() -> None:
            with self.database.write(durable=True) as db:
                db.execute(sql)

        self._attempt(update)

    @property
    def is_shared(self) -> bool:
        """Whether the home belongs to a grove, whose numbers people use."""
        return self._recorder.is_shared

    @is_shared.setter
    def is_shared(self, is_shared: bool) -> None:
        self._recorder.is_shared = is_shared

    def repeat_moves(self, moves: Sequence[tuple[str, str]]) -> bool:
        """Move lineages as a journal entry says; again, if a crash interrupted it. False if that failed."""
        return self._attempt(lambda: self._recorder.repeat_moves(moves))

    def observe(
        self,
        path: str,
        present: Sequence[tuple[str, bool, File | None]] | None = None,
        *,
        author: Author = OUTSIDE,
        what: str = FOUND,
        is_synced: bool = True,
    ) -> bool:
        """Record the files of a lineage if they are not its newest version. The caller holds its lock.

        By default the change is one of another program. `present` are the files, if they have been
        read: path, whether it is the sidecar, content. `is_synced` False leaves the sync to the next
        transaction that is synced. False if the history does not work now.
        """

        def record() -> None:
            found = self._recorder.planner.present(path) if present is None else present
            self._recorder.observe(path, found, author, what=what, is_synced=is_synced)

        return self._attempt(record)

    def mark_now(self, path: str) -> int | None:
        """The mark of a file as it is; None if there is none."""
        return self._recorder.planner.mark(path)

    def observe_known(self, paths: Iterable[str]) -> bool:
        """Like `observe` for several kept files; those without versions are left out."""
        is_complete = True
        for path in paths:
            is_known = self.has_lineage(path)
            is_complete &= is_known is not None and (not is_known or self.observe(path))
        return is_complete

    def observe_below(self, directory: str) -> bool:
        """Like `observe` for all files with versions below a directory, all under the lock of the caller."""
        changed: list[str] = []
        is_complete = self._attempt(lambda: changed.extend(self._recorder.changed_below(directory)))
        for path in changed:
            is_complete &= self.observe(path)
        return is_complete

    def changed_paths(self) -> list[str] | None:
        """The paths whose files are not those of their newest versions, by their stamps.

        None if the history does not work now.
        """
        changed: list[str] = []
        return changed if self._attempt(lambda: changed.extend(self._recorder.changed_paths())) else None

    def make_durable(self, path: str) -> bool:
        """Record the files of a lineage as they are, and sync all its versions to disk. The caller holds its lock.

        False if that failed: what is there now must then not be replaced by anything that lacks it.
        """
        self.observe(path)

        def sync() -> None:
            # A commit that is synced also syncs all commits before it, which are in the same log.
            with self.database.write(durable=True) as db:
                db.execute("UPDATE lineages SET at_ns = at_ns WHERE dir = ?", (os.fsencode(path),))

        return self._attempt(sync)

    def is_behind(self, path: str) -> bool:
        """Whether the files of a lineage are not its newest version. False while the history does not work."""
        found: list[bool] = []
        self._attempt(lambda: found.append(self._recorder.is_behind(path)))
        return found == [True]

    def has_lineage(self, path: str) -> bool | None:
        """Whether anything is recorded of a path. None if the history does not work now."""
        found: list[object] = []
        if not self._attempt(lambda: found.append(lineages.find_lineage(self.database.reader, path))):
            return None
        return found != [None]

    def fork_note(self, source: Location) -> str:
        """The note of a session that begins as a copy of another one."""
        found: list[SavedVersion | None] = []
        self._attempt(lambda: found.append(self.newest(source)))
        number = f"@{found[0].number}" if found and found[0] is not None else ""
        return f"forked from {source}{number}"

    def erase(self, path: str, *, keep_snapshots: bool = True) -> None:
        """Delete the lineages at or below a path that was erased, with all their versions.

        Those that a snapshot names stay until it is deleted, unless `keep_snapshots` is False.
        """

        def delete() -> None:
            with self.database.write() as db:
                for key, _ in lineages.at_or_below(db, os.fsencode(path)):
                    if not keep_snapshots or not snapshots.is_named(db, key):
                        lineages.delete_lineage(db, key)

        self._attempt(delete)

    def _attempt(self, work: Callable[[], object]) -> bool:
        """Do the work. If it fails, note why and leave the history alone for a while; do not raise."""
        if not self.is_on or time.monotonic() < self._retry_at:
            return False
        try:
            work()
        except _FAILURES as error:
            self._note_failure(error)
            return False
        if self._problem:
            log.info("versions are kept again")
            self._problem, self._failed_ns, self._retry_at, self._times_busy = "", None, 0.0, 0
        return True

    def _note_failure(self, error: Exception) -> None:
        self._recorder.forget_origins()
        level = logging.INFO if self._problem == describe(error) else logging.WARNING  # said once
        self._problem = describe(error)
        self._failed_ns = self._failed_ns or time.time_ns()
        self._times_busy = self._times_busy + 1 if isinstance(error, Busy) else PATIENCE
        if self._times_busy < PATIENCE:  # on a busy machine another process may just have been slow
            log.info("a version was not recorded: %s", self._problem)
            return
        self._retry_at = time.monotonic() + RETRY_S
        log.log(level, "versions are not kept: %s; saves still work, next attempt in %d s", self._problem, RETRY_S)

    # -- versions of one path ----------------------------------------------------------------------

    def log(self, path: str | Location, *, limit: int = 20, before: int | None = None) -> list[SavedVersion]:
        """The newest versions of a session's directory or another kept file, newest first."""
        condition, bindings = ("v.number < ?", [before]) if before is not None else ("true", [])
        return self._of(path, f"{condition} ORDER BY v.number DESC LIMIT ?", [*bindings, limit])

    def find(self, path: str | Location, number: int) -> SavedVersion | None:
        return _first(self._of(path, "v.number = ?", [number]))

    def find_shown(self, path: str | Location, number: int) -> SavedVersion | None:
        """The version that people mean by a number: in a grove, its number there.

        A number that changed another file of the same unit means the version of that moment.
        """
        if not self.is_shared:
            return self.find(path, number)
        found = self._of(path, "v.agreed BETWEEN 1 AND ? ORDER BY v.number DESC LIMIT 1", [number])
        is_current = found and found[0].agreed == number
        return _first(found) if is_current or self._of(path, "v.agreed > ? LIMIT 1", [number]) else None

    def made_until(self, path: str | Location, at_ns: int) -> SavedVersion | None:
        """The newest version that was made, on whichever host, until a moment; None before the first."""
        return _first(self._of(path, "coalesce(v.made_ns, v.at_ns) <= ? ORDER BY v.number DESC LIMIT 1", [at_ns]))

    def newest(self, path: str | Location) -> SavedVersion | None:
        return _first(self.log(path, limit=1))

    def at(self, path: str | Location, at_ns: int) -> SavedVersion | None:
        """The version that was current at a moment; None before the first."""
        return _first(self._of(path, "v.at_ns <= ? ORDER BY v.number DESC LIMIT 1", [at_ns]))

    def with_updated_at(self, path: str | Location, name: str, ns: int) -> list[SavedVersion]:
        """Versions that changed the document `name` to one with this updated_at, oldest first."""
        role = _role(name)
        return self._of(path, f"v.{role}_said_ns = ? AND v.{role}_kind IS NOT NULL ORDER BY v.number", [ns])

    def with_stamp(self, path: str | Location, name: str, stamp: Stamp) -> SavedVersion | None:
        """The version whose document `name` was stored as the file with this stamp."""
        role, mark = _role(name), mark_of(stamp)
        # Most often it is the present file, which is found without a look at every older version.
        changed = f"SELECT max(number) FROM versions WHERE lineage = l.key AND {role}_kind IS NOT NULL"
        is_present = f"l.{role}_mark = ? AND v.{role}_mark = l.{role}_mark AND v.number >= ({changed})"
        found = self._of(path, f"{is_present} ORDER BY v.number LIMIT 1", [mark])
        found = found or self._of(path, f"v.{role}_mark = ? ORDER BY v.number LIMIT 1", [mark])
        # Times and modes of the file may have changed since: the lineage has its newest stamp.
        found = found or self._of(path, f"l.{role}_mark = ? AND v.number = l.last", [mark])
        former = "SELECT number FROM former_marks WHERE lineage = l.key AND mark = ?"
        return _first(found or self._of(path, f"v.number = ({former})", [mark]))

    def is_unchanged_since(self, path: str | Location, name: str, stamp: Stamp, at_ns: int) -> bool:
        """Whether the document `name` has not changed since `at_ns`; `stamp` is that of its file now. Rebuilds no text.

        False if that is not known, for example after an edit on disk. True if no version is as old as `at_ns`.
        """
        role = _role(name)
        then = "SELECT number FROM versions WHERE lineage = l.key AND at_ns <= ? ORDER BY number DESC LIMIT 1"
        later = f"SELECT 1 FROM versions WHERE lineage = l.key AND number > ({then}) AND {role}_kind IS NOT NULL"
        query = f"SELECT 1 FROM lineages l WHERE dir = ? AND {role}_mark = ? AND NOT EXISTS ({later})"
        with self._reading() as db:
            return db.execute(query, (os.fsencode(lineage_path(path)), mark_of(stamp), at_ns)).get is not None

    def oldest(self, path: str | Location) -> SavedVersion | None:
        """The oldest version that is kept."""
        return _first(self._of(path, "true ORDER BY v.number LIMIT 1", []))

    def read_run(self, versions: Sequence[SavedVersion]) -> list[VersionTexts]:
        """The texts of several versions of one path: faster than reading each."""
        with self._reading() as db:
            return reading.read_run(db, versions)

    def read_document(self, version: SavedVersion, *, is_side: bool = False) -> bytes | None:
        """One text of a version."""
        with self._reading() as db:
            number = reading.current_number(db, version)
            return reading.read_text(db, version.lineage, number, "side" if is_side else "main")

    def read(self, version: SavedVersion) -> VersionTexts:
        with self._reading() as db:
            return reading.read_texts(db, version)

    def _of(self, path: str | Location, where: str, bindings: Sequence[int]) -> list[SavedVersion]:
        with self._reading() as db:
            return reading.of_path(db, lineage_path(path), where, bindings)

    # -- all lineages ------------------------------------------------------------------------------

    def between(self, since_ns: int, until_ns: int, paths: Sequence[str] | None = None) -> Iterator[SavedVersion]:
        """All versions of a span of time, ends included, in the order of recording."""
        names = None if paths is None else [lineage_path(path) for path in paths]
        with self._reading() as db:
            yield from reading.iter_between(db, since_ns, until_ns, names)

    def paths_at(self, at_ns: int) -> Iterator[tuple[str, SavedVersion]]:
        """Every path that had a version at a moment, as it was named then, with that version."""
        with self._reading() as db:
            for path, version in reading.iter_paths_at(db, at_ns):
                if not path.startswith(f"{PRIVATE}/"):
                    yield path, version

    def paths_below(self, directory: str) -> list[str]:
        """The paths below a directory that have versions now, in order."""
        with self._reading() as db:
            return [os.fsdecode(path) for _, path in lineages.at_or_below(db, os.fsencode(directory))]

    def paths_up_to_date(self, directory: str) -> list[str]:
        """The paths below a directory whose newest version is kept: it was made once, and not thinned out."""
        with self._reading() as db:
            return [os.fsdecode(path) for path in lineages.with_newest(db, os.fsencode(directory))]

    def oldest_ns(self) -> int | None:
        """The time of the oldest version of all; None if there is none."""
        with self._reading() as db:
            oldest_ns: int | None = db.execute("SELECT min(at_ns) FROM versions").get
            return oldest_ns

    # -- drafts and snapshots ----------------------------------------------------------------------

    def drafts(self, path: str | Location, name: str, *, updated_at_ns: int | None = None) -> list[Draft]:
        """Drafts of a document, or those with this updated_at, newest first."""
        with self._reading() as db:
            return drafts.of_path(db, lineage_path(path), name, updated_at_ns)

    def draft(self, key: int) -> Draft | None:
        with self._reading() as db:
            return drafts.find(db, key)

    def add_draft(
        self, path: str | Location, name: str, text: bytes, process: tuple[int, int] | None, uid: int, mount: str
    ) -> int:
        """Keep a text as it was typed; returns its key."""
        with self.database.write() as db:
            return drafts.add(db, lineage_path(path), name, text, process, uid, mount)

    def snapshots(self) -> list[Snapshot]:
        """All snapshots, newest first."""
        with self._reading() as db:
            return snapshots.list_all(db)

    def add_snapshot(self, name: str, at_ns: int | None = None) -> Snapshot:
        """Name a moment, by default this one. Raises AlreadyExists if the name is in use."""
        with self.database.write(durable=True) as db:
            # Inside the transaction: versions get their times in theirs, so none is older and still to come.
            moment_ns = time.time_ns() if at_ns is None else at_ns
            snapshots.add(db, name, moment_ns)
        return Snapshot(name, moment_ns)

    def delete_snapshot(self, name: str) -> None:
        """Raises NotFound if there is no such snapshot."""
        with self.database.write(durable=True) as db:
            snapshots.delete(db, name)

    def query(self, sql: str) -> list[Any]:
        """All rows of a query. For checks."""
        with self._reading() as db:
            return db.execute(sql).fetchall()

    # -- state -------------------------------------------------------------------------------------

    @property
    def retry_in_s(self) -> float:
        """After how many seconds a history that does not work is tried again; 0 if it works."""
        return max(1.0, self._retry_at - time.monotonic()) if self._problem else 0.0

    @property
    def is_working(self) -> bool:
        """Whether versions are being kept."""
        return self.is_on and not self._problem

    def state(self, *, probe: bool = False) -> HistoryState:
        """Whether versions are kept now, and how many there are.

        `probe` tries to write, for a process that has recorded nothing and so knows of no failure.
        """
        count, oldest_ns, problem = 0, None, self._problem or (self._write_problem() if probe else "")
        try:
            with self._reading() as db:
                [(count, oldest_ns)] = db.execute("SELECT count(*), min(at_ns) FROM versions")
        except (StoreError, OSError) as error:
            problem = problem or str(error)
        if not self.is_on:
            problem = "turned off"
        set_aside = tuple(path.name for path in purge.set_aside_files(self.database) if purge.is_database(path))
        return HistoryState(not problem, problem, self._failed_ns, self._size_bytes(), count, oldest_ns, set_aside)

    def _write_problem(self) -> str:
        """Why the history cannot be written; "" if it can. A writer that is only slow gets some patience."""
        problem = ""
        for _ in range(PATIENCE if self.is_on and self.database.path.exists() else 0):
            try:
                with self.database.write(durable=True) as db:
                    db.execute(f"PRAGMA user_version = {schema.VERSION}")  # writes a page: a full disk shows
                return ""
            except _FAILURES as error:
                problem = str(error)
        return problem

    def _size_bytes(self) -> int:
        found = (Path(f"{self.database.path}{suffix}") for suffix in ("", "-wal"))
        return sum(os.path.getsize(path) for path in found if path.exists())

    @contextmanager
    def _reading(self) -> Iterator[apsw.Connection]:
        try:
            yield self.database.reader
        except apsw.Error as error:
            raise HistoryUnusable(f"{self.database.path} cannot be read: {error}") from error


def _role(name: str) -> str:
    return "side" if name == RUNTIME else "main"


def _first(found: list[SavedVersion]) -> SavedVersion | None:
    return found[0] if found else None
