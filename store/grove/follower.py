"""Follower: applies the log of the grove to this home, one process of the home at a time.

The follower holds the lock `.grovefs/grove.lock`, so the others of the home rest. It polls; a NOTIFY
of the database only shortens the wait. Every answer is compared with what this home knows. If the
database has lost history, the grove is frozen and this home writes nothing until it rejoins.

A row that cannot be applied stops nobody: its unit is noted as behind in the transaction that moves
the cursor, is shown by `grovefs grove status`, and is fetched as a whole later.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn, Protocol, TypeVar

import apsw

from store import layout
from store.commit.core import Core
from store.errors import Busy, StoreError, Unreachable
from store.grove import queries
from store.grove.applying import LostHistory, apply_rows, apply_whole, check_order
from store.grove.chains import LongChains
from store.grove.deletions import Deletions
from store.grove.hints import CHANNEL, are_on
from store.grove.log_query import LogPage, lost_history, read_page
from store.grove.outside import OutsideEdits
from store.grove.replica import LogPosition, Replica
from store.grove.row_plan import OutsideEdit
from store.grove.together import Together, waves
from store.grove.units import is_unit, location_of
from store.grove.wire import DELETED, BadRow, LogRow

log = logging.getLogger("grovefs.store")

FOLLOW_LOCK = f"{layout.PRIVATE}/grove.lock"
POLL_S = 0.25
RETRY_S = 1.0  # after a failure, and for a process whose home another one keeps up to date
ELSEWHERE_S = 15.0  # a process that has the lock for so long, longer than an attempt that fails, follows
REPORT_S = 5.0  # how often this home shows that it is there, and units that are behind are tried again
MAX_PAUSE_S = 0.4  # after a page that was the last one
MAX_PAGE_S = 0.5  # a page and its pause; POLL_S and the next page are left of the second of rule 7
CATCHING_UP_S = 0.2  # the longest pause after a full page: the next one is full as well
PAUSE_SHARE = 4  # how many times as long as its page a pause lasts; less after a page of few rows
SWEEP_S = 60.0  # between two sweeps for outside edits that no watcher noted
SWEEP_SHARE = 20  # a sweep takes at most one twentieth of the time
_FETCHES = 5  # attempts to read a unit while this home commits to it
LOCK_TIMEOUT_S = 2.0  # for a session that a writer holds; its row is tried again later

T = TypeVar("T")


class LogServer(Protocol):
    """The database, as a follower needs it."""

    def run(self, work: Callable[[Any], T], *, deadline_s: float | None = None) -> T: ...
    def listen(self, channel: str) -> Any: ...
    def freeze(self, why: str) -> None: ...


class LogFollower:
    """Keeps one home up to date. `catch_up` works in the caller's thread, `start` in one of its own."""

    def __init__(
        self,
        core: Core,
        replica: Replica,
        server: LogServer,
        outside: OutsideEdits,
        deletions: Deletions,
        chains: LongChains,
    ) -> None:
        self._core, self._replica, self._server = core, replica, server
        self._outside, self._deletions, self._chains = outside, deletions, chains
        self._together = Together(core, replica, self._read_chunk)
        self._applied_rows = 0  # of the last page
        self._sweep_at = 0.0
        self._reported_at = 0.0
        self._wake_r, self._wake_w = os.pipe()
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self.problem = ""  # why the log is not followed now

    # -- in the caller's thread ----------------------------------------------------------------------

    def catch_up(self, timeout_s: float) -> bool:
        """Apply what there is, for at most this long. False if the home is not up to date then."""
        deadline = time.monotonic() + timeout_s
        with self._exclusive() as is_mine:
            while is_mine and time.monotonic() < deadline:
                if not self.step():
                    return True
        return False

    def step(self) -> bool:
        """Apply one page of the log. True if there is more."""
        cursors, membership = self._replica.cursors(), self._replica.membership
        acknowledged = self._replica.acknowledged()  # before the query: this home keeps writing meanwhile
        page = self._server.run(lambda connection: read_page(connection, cursors, membership.shards))
        why = lost_history(page, cursors, acknowledged, membership.epoch)
        if why:
            self._freeze(why)
        self._apply_page(page)
        if time.monotonic() - self._reported_at > REPORT_S:
            self._report()
        return page.lag > 0

    def _apply_page(self, page: LogPage) -> None:
        rows = [row for row in page.rows if not self._is_applied(row)]
        self._applied_rows = len(rows)
        for wave in waves(rows):
            if self._is_stopping:
                return  # the cursor stays: what was applied is found to be
            self._together.apply(wave, self._apply_row)
        positions = {row.shard: LogPosition(row.seq, row.token) for row in page.rows}
        if positions:
            self._replica.set_cursors(positions)

    def _is_applied(self, row: LogRow) -> bool:
        """Whether this home has the row, as most often if it made it. Takes no lock: a writer may have that."""
        try:
            known = self._replica.find_unit(row.unit)
            return known is not None and row.version <= known.version and not check_order(known, row)
        except LostHistory as error:
            self._freeze(str(error))

    def _apply_row(self, row: LogRow) -> None:
        """Apply one row, or note why that failed."""
        if self._is_applied(row):  # meanwhile: a writer of this home has recorded it
            return
        try:
            with self._locked(row):
                self._apply_deletions(row)
                edits = apply_rows(self._core, self._replica, [row], self._read_chunk)
        except LostHistory as error:
            self._freeze(str(error))
        except Unreachable:
            raise
        except (StoreError, OSError, apsw.Error) as error:
            log.info("%s: not applied yet: %s", row.unit, error)
            self._replica.note_behind(row.unit, str(error))
        else:
            self._merge(edits)

    def _apply_deletions(self, row: LogRow) -> None:
        """Before a row that deletes a unit, or creates it again after a deletion that could not be applied."""
        known = self._replica.find_unit(row.unit)
        missing = row.version - (known.version if known is not None else 0)
        if (row.ops == DELETED and missing > 0) or (row.generation is not None and missing > 1):
            self._deletions.apply(location_of(row.unit).root, row)

    def _locked(self, row: LogRow) -> AbstractContextManager[None]:
        """The lock of the unit, or of its tree: rows that delete or create a unit need that."""
        if not is_unit(row.unit):
            raise BadRow(f"{row.unit!r} is not the name of a unit")
        location = location_of(row.unit)
        if row.generation is not None or row.ops == DELETED:
            return self._core.locked_tree(location.root, timeout_s=LOCK_TIMEOUT_S)
        return self._core.locked(location, timeout_s=LOCK_TIMEOUT_S)

    def _read_chunk(self, sha256: bytes) -> bytes:
        return self._server.run(lambda connection: queries.chunk(connection, sha256))

    def _merge(self, edits: Sequence[OutsideEdit]) -> None:
        for aside in self._outside.judge_replaced(edits):
            self._outside.merge(aside)

    def _freeze(self, why: str) -> NoReturn:
        """History was lost: nobody may write before that is resolved, and this home must rejoin."""
        self._replica.set_problem(why)
        self._server.freeze(why)
        raise LostHistory(f"{why}; nothing is written here until this home rejoins: `grovefs grove rejoin`")

    # -- units that are behind -----------------------------------------------------------------------

    def fetch_unit(self, unit: str) -> None:
        """Make the files of a unit those of its newest version. Raises BadRow, Busy or OSError.

        The rows are read before the lock is taken. If this home has a newer version then, they are read again: they
        would take back what was committed meanwhile.
        """
        root = location_of(unit).root
        for _ in range(_FETCHES):
            rows = self._rows_of(unit)
            if not rows:
                return self._replica.forget_behind(unit)
            with self._core.locked_tree(root, timeout_s=LOCK_TIMEOUT_S):
                known, head = self._replica.find_unit(unit), rows[-1]
                if known is not None and known.version > head.version:
                    continue
                edits: list[OutsideEdit] = []
                if known is None or (known.version, known.token) != (head.version, head.token):
                    self._deletions.apply(root, head)
                    if head.ops != DELETED:
                        edits = apply_whole(self._core, self._replica, rows, self._read_chunk)
                self._replica.forget_behind(unit)
            return self._merge(edits)
        raise Busy(f"{unit} keeps changing")

    def _rows_of(self, unit: str) -> list[LogRow]:
        """The rows that make up a unit."""
        shards = self._replica.membership.shards
        return self._server.run(lambda c: queries.rows_of_unit(c, unit, location_of(unit).root, shards, 0))

    def retry_behind(self) -> None:
        """Try again what could not be applied."""
        for item in self._replica.behind():
            try:
                self.fetch_unit(item.unit)
            except LostHistory as error:
                self._freeze(str(error))
            except Unreachable:
                raise
            except (StoreError, OSError, apsw.Error) as error:
                self._replica.note_behind(item.unit, str(error))

    def _report(self) -> None:
        self._reported_at = time.monotonic()
        self.retry_behind()
        cursors, membership = self._replica.cursors(), self._replica.membership
        seqs = [cursors[shard].seq if shard in cursors else 0 for shard in range(membership.shards)]
        update = "UPDATE grove.hosts SET seen = now(), cursor = %s WHERE host = %s"
        self._server.run(lambda connection: connection.execute(update, (seqs, membership.host)))

    # -- in a thread -------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="grovefs-follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the rows that are being applied; apply no other."""
        self._is_stopping = True
        os.write(self._wake_w, b"x")
        if self._thread is not None:
            self._thread.join()
        os.close(self._wake_r)
        os.close(self._wake_w)

    def _run(self) -> None:
        mine_at = time.monotonic()
        while not self._is_stopping:
            with self._exclusive() as is_mine:
                if is_mine:
                    self._follow()
                    mine_at = time.monotonic()
                else:
                    self._do_waiting()
            if time.monotonic() - mine_at > ELSEWHERE_S:
                self.problem = ""
            self._wait(None, RETRY_S)

    def _do_waiting(self) -> None:
        """In a process whose home another one follows: do what this one's commits left and its watcher noted."""
        try:
            self._chains.shorten_due()
            self._outside.settle_noted()
        except (StoreError, OSError, apsw.Error) as error:
            log.info("outside edits or long chains wait: %s", error)

    def _follow(self) -> None:
        """Follow until something fails. The next attempt follows after a pause."""
        hints: Any = None
        try:
            hints = self._server.listen(CHANNEL) if are_on() else None
            while not self._is_stopping:
                began = time.monotonic()
                has_more = self.step()
                self._pause(time.monotonic() - began, has_more=has_more)
                if not has_more:
                    self.problem = ""
                    self._do_upkeep()
                    self._wait(hints, POLL_S)
        except (StoreError, OSError, apsw.Error) as error:
            if str(error) != self.problem:
                log.log(logging.INFO if isinstance(error, Unreachable | Busy) else logging.WARNING, "%s", error)
            self.problem = str(error)
        finally:
            if hints is not None:
                hints.close()

    def _pause(self, spent_s: float, *, has_more: bool) -> None:
        """Leave the processor to others in proportion to what the last page took.

        Under load the next page has more rows, which cost less together. There is no pause after a single row: the
        next one, perhaps the answer to it, is to be seen at once.
        """
        longest_s = CATCHING_UP_S if has_more else max(0.0, min(MAX_PAUSE_S, MAX_PAGE_S - spent_s))
        self._wait(None, min(longest_s, spent_s * min(max(self._applied_rows - 1, 0), PAUSE_SHARE)))

    def _do_upkeep(self) -> None:
        """Do what the last commits left, settle outside edits that the watcher noted; sometimes look for all."""
        self._chains.shorten_due()
        self._outside.settle_noted()
        if time.monotonic() < self._sweep_at:
            return
        started = time.monotonic()
        self._outside.sweep()
        spent_s = time.monotonic() - started
        self._sweep_at = time.monotonic() + max(SWEEP_S, spent_s * SWEEP_SHARE)

    def _wait(self, hints: Any, seconds: float) -> None:
        """Wait for a hint, the end, or some time."""
        if self._is_stopping:
            return
        watched = [self._wake_r] if hints is None else [self._wake_r, hints.fileno()]
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0:
            ready, _, _ = select.select(watched, [], [], left_s)
            if self._wake_r in ready or (hints is not None and hints.fileno() in ready and hints.drop()):
                return

    @contextmanager
    def _exclusive(self) -> Iterator[bool]:
        """The lock of the follower; False if another process has it."""
        path = self._core.home / FOLLOW_LOCK
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(fd)
