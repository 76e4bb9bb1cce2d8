"""One home, opened: the pieces below wired together, and the few moves that all of the store is made of.

`locked` is the only way to a session's lock, and it finishes what a crash has left there before anyone
looks. `reread` is the only way back from files to index. Both are safe to call at any time.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw

from store import layout
from store.commit import session_reader
from store.commit.journal import WHOLE_TREE, Journal
from store.commit.session_reader import DocumentPair, LoadedSession
from store.disk.disk import Disk
from store.disk.locks import Locks
from store.errors import Ambiguous, Busy, Corrupt, StoreError
from store.index import fulltext
from store.index.catalog import Catalog, SessionFacts, Version
from store.index.change_feed import ChangeFeed, What
from store.index.database import Database, now_ns
from store.layout import Location

log = logging.getLogger("grovefs.store")

# What one file's fault is, and must not keep a whole home shut.
UNREADABLE = (errno.EACCES, errno.EPERM, errno.EIO)
# Sessions indexed in one transaction: others wait for them meanwhile, for about a second at most.
BATCH = 512
BATCH_BYTES = 8 << 20


@dataclass
class Core:
    disk: Disk
    db: Database
    locks: Locks
    limit_bytes: int
    check_writable: Callable[[], None]  # raises while nothing may be written here
    on_commit: Callable[[], None]  # told after every commit
    on_use: Callable[[Location], None]  # told of every session that something was asked of
    index: Catalog = field(init=False)
    feed: ChangeFeed = field(init=False)
    journal: Journal = field(init=False)
    # Brings what is derived from another part of the home in step with its files; True if it was not.
    area_refreshers: dict[str, Callable[[Location], bool]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.index = Catalog(self.db)
        self.feed = ChangeFeed(self.db)
        self.journal = Journal(self.disk, self.db, self.reread)

    @property
    def home(self) -> Path:
        return self.disk.home

    # -- locks and recovery ----------------------------------------------------------------------------

    @contextmanager
    def locked(self, location: Location, *, timeout_s: float | None = None) -> Iterator[None]:
        """Alone with one session, in a state that no crash has left half-way. Busy if not granted in time."""
        while True:
            with self.locks.session(location, timeout_s=timeout_s):
                pending = self.journal.pending(location.root)
                if WHOLE_TREE not in pending or self._holds_tree(location.root):
                    self._recover(location.root, [c for c in pending if c == (location.child or "")])
                    yield
                    return
            with self.locked_tree(location.root, timeout_s=timeout_s):
                pass  # which finishes what concerned the whole tree

    @contextmanager
    def locked_tree(self, root: str, *, timeout_s: float | None = None) -> Iterator[None]:
        """Alone with a root and all its descendants."""
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
        """Finish every interrupted commit whose session nobody is working on."""
        for root, child in self.journal.all_pending():
            location = Location(root, child or None)
            with ExitStack() as stack:
                try:
                    if child == WHOLE_TREE:
                        stack.enter_context(self.locks.tree(root, timeout_s=0))
                    else:
                        stack.enter_context(self.locks.session(location, timeout_s=0))
                except Busy:
                    continue  # a live writer's own mark
                self._recover(root, [child])

    # -- finding and reading ----------------------------------------------------------------------------

    def locate(self, session_id: str) -> Location | None:
        """Where a session lies, by its id or by `root/child`; None if there is none."""
        exact = layout.parse_location(session_id)
        if exact is not None:
            return exact if self.disk.stat(exact.path(layout.SESSION)) is not None else None
        layout.check_id(session_id)
        found = self.index.locate(session_id)
        stuck: OSError | None = None
        if not found and self.journal.all_pending():  # it may be saved, and only its row be missing yet
            try:
                self.recover_all()
            except OSError as error:  # a full disk; what lies where its name says can be read all the same
                stuck = error
            found = self.index.locate(session_id)
        if Location(session_id) in found:  # a root's id is its exact name, whoever else bears it
            return Location(session_id)
        if len(found) > 1:
            raise Ambiguous(session_id, map(str, found))
        if found:
            return found[0]
        root = Location(session_id)  # written behind our back, perhaps
        if self.disk.stat(root.path(layout.SESSION)) is None:
            if stuck is not None:  # it would be untrue to say that there is none
                raise stuck
            return None
        if stuck is None:
            self.refresh(root)
        return root

    def read(self, location: Location) -> DocumentPair:
        """Both documents of one version. A commit under way is waited for, not looked into."""
        self.on_use(location)
        pair = session_reader.read(self.disk, location, self.limit_bytes)
        if self.locks.holds(location):
            return pair
        pending = self.journal.pending(location.root)
        if (location.child or "") in pending or WHOLE_TREE in pending:
            try:
                with self.locked(location):
                    return session_reader.read(self.disk, location, self.limit_bytes)
            except OSError as error:  # a full disk keeps it from being finished, but not from being read
                log.warning("an interrupted commit of %s cannot be finished now: %s", location, error)
        return pair

    def load(self, location: Location) -> LoadedSession | None:
        pair = self.read(location)
        if pair.main is None:
            return None
        loaded = session_reader.parse(pair)
        session_reader.check_identity(loaded)
        return loaded

    # -- files → index ------------------------------------------------------------------------------------

    def refresh(self, location: Location) -> bool:
        """Read a session again if its files are not those its row was made from."""
        if not location.is_session:
            return self._refresh_area(location)
        if self._is_current(location):  # looked at without the lock first: it mostly is
            return False
        with self.locked(location):
            if self._is_current(location):
                return False
            self.reread(location)
        return True

    def _is_current(self, location: Location) -> bool:
        known = self.index.find_version(location)
        version = self.version(location)
        return version.main is None if known is None else known == version

    def version(self, location: Location) -> Version:
        return Version(self.disk.stamp(location.path(layout.SESSION)), self.disk.stamp(location.path(layout.RUNTIME)))

    def reread(self, location: Location, what: What = "reread") -> None:
        """Make index and search say what the files say, whatever that is. The lock is held."""
        if not location.is_session:
            return self._reread_area(location)
        seen = self._scan(location)
        with self.db.write() as db:
            self._put(db, [seen], what)
        self.on_commit()

    def _scan(self, location: Location) -> SessionScan:
        """Read a session's files. The lock is held."""
        before_ns = now_ns()
        try:
            pair = session_reader.read(self.disk, location, self.limit_bytes)
            if pair.main is None:
                return SessionScan(location)
            loaded = session_reader.parse(pair)
        except (Corrupt, Busy) as error:  # Busy: its version is not settled, so the next sweep reads it again
            return self._damaged(location, error)
        except OSError as error:
            if error.errno not in UNREADABLE:
                raise
            return self._damaged(location, error)
        version = session_reader.settled_version(pair.version, before_ns)
        facts = session_reader.facts_on_disk(self.disk, loaded, version)
        return SessionScan(location, facts, size_bytes=len(pair.main.data))

    def _damaged(self, location: Location, error: StoreError | OSError) -> SessionScan:
        log.warning("not indexed: %s", error)
        version = session_reader.settled_version(self.version(location), now_ns())
        return SessionScan(location, damage=(version, str(error)))

    def _put(self, db: apsw.Connection, batch: list[SessionScan], what: What = "reread") -> None:
        for seen in batch:
            if seen.damage is not None:
                self.index.put_damaged(db, seen.location, *seen.damage)
                self.feed.add(db, [seen.location], "reread")
            elif seen.facts is None and self.index.remove(db, seen.location):
                self.feed.add(db, [seen.location], "deleted")
        present = [seen.facts for seen in batch if seen.facts is not None]
        self.feed.add(db, [facts.location for facts in present], what)
        self.index.put(db, *present)

    def _refresh_area(self, location: Location) -> bool:
        with self.locked(location):
            is_other = self._sync_area(location)
            if is_other:
                self._announce(location)
        return is_other

    def _reread_area(self, location: Location) -> None:
        self._sync_area(location)
        self._announce(location)

    def _sync_area(self, location: Location) -> bool:
        follow = self.area_refreshers.get(location.dir.partition("/")[0]) if location == location.owner else None
        return follow is not None and follow(location)

    def _announce(self, location: Location) -> None:
        with self.db.write() as db:
            self.feed.add(db, [location.owner], "reread")
        self.on_commit()

    # -- the sweep ------------------------------------------------------------------------------------------

    def iter_on_disk(self) -> Iterator[Location]:
        """Every directory that holds, or could hold, a session. The only scan there is."""
        for root in self.disk.directories(layout.SESSIONS):
            if layout.is_session_dir(root):
                yield Location(root)
                yield from self._children_on_disk(root)

    def _children_on_disk(self, root: str) -> Iterator[Location]:
        try:
            children = self.disk.directories(f"{layout.SESSIONS}/{root}/{layout.CHILDREN}")
        except Corrupt:  # something else bears the name; `check` tells of it
            return
        except PermissionError as error:
            log.warning("not looked into: %s", error)
            return
        yield from layout.children_among(root, children)

    def sweep(self, progress: Callable[[int, int], None] | None = None) -> int:
        """Compare every session's stamps with its row and read again what differs; returns how many."""
        known = dict(self.index.versions())
        attached = dict(self.index.attachment_flags())
        differing = []
        for location in self.iter_on_disk():
            try:
                version = self.version(location)
            except PermissionError as error:  # what is known of it stays known
                log.warning("not looked into: %s", error)
                known.pop(location, None)
                continue
            if version.main is None:
                continue  # incoming: no session yet
            row = known.pop(location, None)
            if row != version or attached.get(location) != session_reader.has_attachments(self.disk, location):
                differing.append((version.main.mtime_ns, location))
        # In the order of time, so that search has the newest last; and those whose files are gone.
        differing.sort(key=lambda found: (found[0], found[1].root, found[1].child or ""))
        self._reread_all([*(location for _, location in differing), *known], progress)
        for part in self.area_refreshers:
            self.refresh(Location(f"/{part}"))
        return len(differing) + len(known)

    def rebuild(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Make every row anew from the files. None is missing meanwhile."""
        locations = list(dict.fromkeys([*self.iter_on_disk(), *(loc for loc, _ in self.index.versions())]))
        self._reread_all(locations, progress, anew=True)
        with self.db.write() as db:
            fulltext.purge_strays(db)

    # -- many at once ---------------------------------------------------------------------------------------

    def _reread_all(
        self, locations: list[Location], progress: Callable[[int, int], None] | None, *, anew: bool = False
    ) -> None:
        """As `reread`, but many sessions in one transaction: that is what makes a first index quick.

        A crash leaves out whole transactions, and the next sweep finds what they should have said.
        """
        waiting = deque(locations)
        while waiting:
            with ExitStack() as held:
                batch = self._gather(waiting, held)
                with self.db.write() as db:
                    if anew:
                        self._purge(db, batch)
                    self._put(db, batch)
            self.on_commit()
            if progress is not None:
                progress(len(locations) - len(waiting), len(locations))

    def _purge(self, db: apsw.Connection, batch: list[SessionScan]) -> None:
        for row in filter(None, (self.index.find(seen.location) for seen in batch)):
            fulltext.purge_session(db, row.key)

    def _gather(self, waiting: deque[Location], held: ExitStack) -> list[SessionScan]:
        """Some sessions, read and kept locked until they are indexed.

        Only the first is waited for. Who waits for a lock while holding others may be waited for himself; and
        nobody may wait for one inside a transaction, because those who hold it need the database to finish.
        """
        held.enter_context(self.locked(waiting[0]))
        batch = [self._scan(waiting.popleft())]
        size_bytes = batch[0].size_bytes
        while waiting and len(batch) < BATCH and size_bytes < BATCH_BYTES:
            try:
                held.enter_context(self.locked(waiting[0], timeout_s=0))
            except Busy:
                break  # it is the first of the next batch
            batch.append(self._scan(waiting.popleft()))
            size_bytes += batch[-1].size_bytes
        return batch


@dataclass(frozen=True)
class SessionScan:
    """What the index shall say of a session: facts, or its damage; neither, if there is no session."""

    location: Location
    facts: SessionFacts | None = None
    damage: tuple[Version, str] | None = None
    size_bytes: int = 0
