"""Core of an open home: disk, index and locks, and the operations that every package builds on.

`locked` is the only way to take a session's lock. It first finishes a commit that a crash
interrupted, so no caller sees one half done. `reread` is the only way from files to index. Both
can be called at any time. `reindex` applies them to the whole home.

The history and the code that reads documents are loaded on first use: `grovefs ls` reads the index only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from store import layout
from store.commit.agreement import Agreement, Alone
from store.commit.commit import WHOLE_TREE, IndexRefresh
from store.commit.journal import Journal
from store.disk.disk import Disk
from store.disk.locks import Locks
from store.errors import Ambiguous, Busy
from store.index.catalog import Catalog, Version, read_version
from store.index.change_feed import ChangeFeed, What
from store.index.database import Database
from store.layout import Location

if TYPE_CHECKING:
    from store.commit.session_reader import DocumentPair, LoadedSession, SessionScan
    from store.history.history import History

log = logging.getLogger("grovefs.store")


@dataclass
class Core:
    disk: Disk
    db: Database
    locks: Locks
    new_history: Callable[[], History]  # called once, by the first use of `history`
    limit_bytes: int
    check_writable: Callable[[], None]  # raises if the home cannot be written now
    on_commit: Callable[[], None]  # called after every commit
    on_use: Callable[[Location], None]  # called with every session that is read or written
    index: Catalog = field(init=False)
    feed: ChangeFeed = field(init=False)
    journal: Journal = field(init=False)
    agreement: Agreement = field(init=False, default_factory=Alone)
    # By top directory: updates what is derived from that area's files; returns True if it had to.
    area_refreshers: dict[str, Callable[[Location], bool]] = field(init=False, default_factory=dict)
    # Indexes state documents again, given their paths or those of directories.
    index_documents: Callable[[apsw.Connection, Sequence[str]], None] = field(init=False)
    _history: History | None = field(init=False, default=None)
    _opening: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.index = Catalog(self.db)
        self.feed = ChangeFeed(self.db)
        self.journal = Journal(
            self.disk,
            self.db,
            self.feed,
            self.read_again,
            self._refresh_rows,
            lambda: self.history,
            lambda: self.agreement,
        )

    @property
    def home(self) -> Path:
        return self.disk.home

    @property
    def history(self) -> History:
        """The versions of all kept files."""
        if self._history is None:
            with self._opening:
                if self._history is None:
                    self._history = self.new_history()
        return self._history

    def close(self) -> None:
        """Close the databases."""
        self.db.close()
        if self._history is not None:
            self._history.close()

    # -- locks and recovery ------------------------------------------------------------------------

    @contextmanager
    def locked(self, location: Location, *, timeout_s: float | None = None) -> Iterator[None]:
        """Lock one session and finish its interrupted commit.

        Raises Busy if the lock is not granted in time.
        """
        while True:
            with self.locks.session(location, timeout_s=timeout_s):
                pending = self.journal.pending(location.root)
                if WHOLE_TREE not in pending or self._holds_tree(location.root):
                    self._recover(location.root, [c for c in pending if c == (location.child or "")])
                    yield
                    return
            with self.locked_tree(location.root, timeout_s=timeout_s):
                pass  # taking this lock finished the commit that concerned the whole tree

    @contextmanager
    def locked_tree(self, root: str, *, timeout_s: float | None = None) -> Iterator[None]:
        """Lock a root and all its descendants, and finish their interrupted commits."""
        with self.locks.tree(root, timeout_s=timeout_s):
            self._recover(root, self.journal.pending(root))
            yield

    def _holds_tree(self, root: str) -> bool:
        return self.locks.holds(Location(root, WHOLE_TREE))

    def _recover(self, root: str, children: list[str]) -> None:
        for child in children:
            log.info("finishing an interrupted commit of %s", Location(root, child or None))
            self.journal.recover(root, child)
            self.on_commit()

    def recover_all(self) -> None:
        """Finish every interrupted commit, except those of sessions that are locked."""
        for root, child in self.journal.all_pending():
            location = Location(root, child or None)
            with ExitStack() as stack:
                try:
                    if child == WHOLE_TREE:
                        stack.enter_context(self.locks.tree(root, timeout_s=0))
                    else:
                        stack.enter_context(self.locks.session(location, timeout_s=0))
                except Busy:
                    continue  # the journal entry of a writer that is still running
                self._recover(root, [child])

    # -- finding and reading -----------------------------------------------------------------------

    def locate(self, session_id: str) -> Location | None:
        """Find a session by its id or by `root/child`; None if there is none."""
        exact = layout.parse_location(session_id)
        if exact is not None:
            return exact if self.disk.stat(exact.path(layout.SESSION)) is not None else None
        layout.check_id(session_id)
        found = self.index.locate(session_id)
        recovery_error: OSError | None = None
        if not found and self.journal.all_pending():  # it may be saved but not indexed yet
            try:
                self.recover_all()
            except OSError as error:  # a full disk: a session in the directory of its id can still be read
                recovery_error = error
            found = self.index.locate(session_id)
        if Location(session_id) in found:  # an id names the root, even if children of other roots share it
            return Location(session_id)
        if len(found) > 1:
            raise Ambiguous(session_id, map(str, found))
        if found:
            return found[0]
        return self._find_root_on_disk(session_id, recovery_error)

    def _find_root_on_disk(self, session_id: str, recovery_error: OSError | None) -> Location | None:
        """Find a root that is not indexed: another program may have written it directly."""
        root = Location(session_id)
        if self.disk.stat(root.path(layout.SESSION)) is None:
            if recovery_error is not None:  # an unfinished commit may contain it: do not report it as missing
                raise recovery_error
            return None
        if recovery_error is None:
            self.refresh(root)
        return root

    def read(self, location: Location) -> DocumentPair:
        """Read both documents of one version. Waits for a commit in progress."""
        from store.commit import session_reader

        self.on_use(location)
        for _ in range(session_reader.READ_ATTEMPTS):
            pair = session_reader.read(self.disk, location, self.limit_bytes)
            if self.locks.holds(location):
                return pair
            pending = self.journal.pending(location.root)
            if (location.child or "") in pending or WHOLE_TREE in pending:
                return self._read_locked(location, pair)
            # A commit renames the sidecar first. One that ended since the pair was read may have
            # replaced the sidecar before it was read, and session.json after.
            if self.disk.stamp(location.path(layout.SESSION)) == (pair.main.stamp if pair.main else None):
                return pair
        return self._read_locked(location, pair)

    def _read_locked(self, location: Location, unlocked: DocumentPair) -> DocumentPair:
        from store.commit import session_reader

        try:
            with self.locked(location):
                return session_reader.read(self.disk, location, self.limit_bytes)
        except OSError as error:  # a full disk prevents recovery but not reading
            log.warning("cannot finish an interrupted commit of %s now: %s", location, error)
            return unlocked

    def load(self, location: Location) -> LoadedSession | None:
        from store.commit import session_reader

        pair = self.read(location)
        if pair.main is None:
            return None
        loaded = session_reader.parse(pair)
        session_reader.check_identity(loaded)
        return loaded

    def version(self, location: Location) -> Version:
        return read_version(self.disk, location)

    # -- files → index -----------------------------------------------------------------------------

    def refresh(self, location: Location) -> bool:
        """Index a session again if its files changed since it was indexed.

        Returns whether they had.
        """
        if not location.is_session:
            return self._refresh_area(location)
        if self.is_current(location):  # without the lock first: in most calls nothing has changed
            return False
        with self.locked(location):
            if self.is_current(location):
                return False
            self.reread(location)
        return True

    def is_current(self, location: Location) -> bool:
        """Whether a session was indexed from its files as they are now."""
        known = self.index.find_version(location)
        version = self.version(location)
        return version.main is None if known is None else known == version

    def reread(self, location: Location, what: What = "reread") -> None:
        """Make index and search match the files, whatever these contain.

        The caller holds the lock.
        """
        scans = self.read_again([location])
        if scans:
            with self.db.write() as db:
                self.put_scans(db, scans, what)
            self.on_commit()

    def read_again(self, locations: Sequence[Location]) -> list[SessionScan]:
        """Bring areas up to date, and scan sessions for the index. The caller holds the locks.

        Called before the transaction that writes the scans: what other programs changed is recorded in
        the history first, and nothing waits for the history while it holds the lock of index.db.
        """
        from store.commit import session_reader

        for location in locations:
            if not location.is_session:
                self._reread_area(location)
        sessions = [location for location in locations if location.is_session]
        scans = [session_reader.scan(self.disk, location, self.limit_bytes) for location in sessions]
        self.observe(scans)
        return scans

    def _refresh_rows(self, db: apsw.Connection, rows: IndexRefresh, scans: Sequence[SessionScan]) -> None:
        """Update the rows of a commit whose files are in place, inside its transaction.

        `scans` are those of `read_again`.
        """
        from store.commit import session_reader

        for location in rows.gone:
            self.index.remove(db, location)
        if scans:
            self.put_scans(db, scans, rows.what)
        if rows.gone:
            self.feed.add(db, rows.gone, "deleted")
        if rows.documents:
            self.index_documents(db, rows.documents)
        for location, is_added in rows.attachments.items():
            self.note_attachments(db, location, present=is_added or session_reader.has_attachments(self.disk, location))

    def note_attachments(self, db: apsw.Connection, location: Location, *, present: bool) -> None:
        """Index whether a session has attachments."""
        row = self.index.find(location)
        if row is not None and row.entry.has_attachments != present:
            self.index.put_entry(db, row, row.entry.model_copy(update={"has_attachments": present}))

    def observe(self, batch: Sequence[SessionScan], *, only_known: bool = False) -> None:
        """Record changes that other programs made, before they are indexed. The caller holds the locks.

        After a crash in between, the index still differs from the files, and the next sweep comes here
        again. `only_known` leaves out sessions without any version: the first commit that replaces one
        records it.
        """
        is_complete = True
        for scan in batch:
            path = scan.location.dir
            if scan.pair is None:
                continue
            if only_known or scan.pair.main is None:
                is_known = self.history.has_lineage(path)
                is_complete &= is_known is not None
                if not is_known:
                    continue
            main, side = scan.pair.main, scan.pair.side
            files = [(f"{path}/{layout.SESSION}", False, main), (f"{path}/{layout.RUNTIME}", True, side)]
            is_complete &= self.history.observe(path, files)
        self.journal.missed.note_observed(is_complete=is_complete)

    def observe_known(self, paths: Iterable[str]) -> None:
        """Record changes of kept files with versions that other programs made, before they are indexed."""
        self.journal.missed.note_observed(is_complete=self.history.observe_known(paths))

    def put_scans(self, db: apsw.Connection, batch: Sequence[SessionScan], what: What = "reread") -> None:
        """Write scanned sessions to the index and the feed."""
        for scan in batch:
            if scan.damage is not None:
                self.index.put_damaged(db, scan.location, *scan.damage)
                self.feed.add(db, [scan.location], "reread")
            elif scan.facts is None and self.index.remove(db, scan.location):
                self.feed.add(db, [scan.location], "deleted")
        present = [scan.facts for scan in batch if scan.facts is not None]
        self.feed.add(db, [facts.location for facts in present], what)
        self.index.put(db, *present)

    def _refresh_area(self, location: Location) -> bool:
        with self.locked(location):
            is_changed = self._sync_area(location)
            if is_changed:
                self._announce(location)
        return is_changed

    def _reread_area(self, location: Location) -> None:
        self._sync_area(location)
        self._announce(location)

    def _sync_area(self, location: Location) -> bool:
        if location != location.owner:
            return False
        refresher = self.area_refreshers.get(location.dir.partition("/")[0])
        return refresher is not None and refresher(location)

    def _announce(self, location: Location) -> None:
        with self.db.write() as db:
            self.feed.add(db, [location.owner], "reread")
        self.on_commit()
