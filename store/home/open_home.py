"""An open home: the lifecycle of a store's files, index, locks and background threads.

Opening takes a presence lock, recovers what a crash left and builds the services. Closing stops
the threads, exports sessions.json and records a clean shutdown if no other process has the home
open. `store.Store` is the public interface on top of it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import apsw

from store import layout
from store.commit.agreement import Agreement, Alone
from store.commit.core import Core
from store.disk import reserve
from store.disk.disk import Disk, Durability, Step, no_step
from store.disk.locks import TIMEOUT_S, HomePresence, Locks
from store.disk.trash import TrashExpiry
from store.documents import json_text
from store.errors import Closed, StoreError
from store.history.authors import Author, this_process
from store.home.bamboo_server import BambooServer
from store.home.housekeeping import Housekeeper
from store.home.opening import make_home, new_freshness_server, new_watcher, open_database, set_up
from store.home.services import Services
from store.home.sessions_json import SessionsJson
from store.layout import Location

if TYPE_CHECKING:
    from store.history.history import History
    from store.home.history_upkeep import HistoryUpkeep
    from store.home.watcher import HomeWatcher
    from store.search.grep.freshness import FreshnessServer
    from store.sessions.prune import AutoPrune

log = logging.getLogger("grovefs.store")

Progress = Callable[[int, int], None]  # called with the number done and the total
Attach = Callable[[Core], Agreement]  # finds the grove of a home


def stay_alone(core: Core) -> Agreement:
    """The default `attach`: the home belongs to no grove."""
    return Alone()


class HomeOptions(TypedDict, total=False):
    """The keyword arguments of OpenHome; `Store.open` documents them."""

    durability: Durability
    background: bool
    beside_bamboo: bool
    limit_bytes: int
    lock_timeout_s: float
    auto_prune: AutoPrune | None
    author: str | Author | None
    history: bool
    progress: Progress | None
    step: Step
    attach: Attach


class OpenHome:
    """Opens a home in its constructor, alone or together with other processes; `close` releases it."""

    def __init__(
        self,
        home: str | os.PathLike[str],
        *,
        durability: Durability = "full",
        background: bool = True,
        beside_bamboo: bool = False,
        limit_bytes: int = json_text.MAX_DOCUMENT_BYTES,
        lock_timeout_s: float = TIMEOUT_S,
        auto_prune: AutoPrune | None = None,
        author: str | Author | None = None,
        history: bool = True,
        progress: Progress | None = None,
        step: Step = no_step,
        attach: Attach = stay_alone,
    ) -> None:
        self.path = Path(home).expanduser().absolute()
        self._is_closing = self._is_closed = False
        self._auto_prune = auto_prune
        self._watcher: HomeWatcher | None = None
        self._freshness: FreshnessServer | None = None
        if self.path.is_dir():
            reserve.release_if_full(self.path)
        make_home(self.path)
        reserve.renew(self.path)
        self.presence = HomePresence(self.path / layout.OPEN_LOCK)
        try:
            alone = self.presence.enter()
            self.disk = Disk(self.path, durability, step)
            self.bamboo = BambooServer(self.path, tolerated=beside_bamboo)
            self._core = Core(
                self.disk,
                open_database(self.path / layout.INDEX_DB, alone=alone),
                Locks(self.path / layout.SESSION_LOCKS, lock_timeout_s),
                partial(_open_history, self.disk, _author(author), is_on=history),
                limit_bytes,
                check_writable=self.check_writable,
                on_commit=self._on_commit,
                on_use=self._on_use,
            )
            self._core.agreement = attach(self._core)
            if self._core.agreement.is_joined:
                self._core.history.is_shared = True
            self._services = Services(self._core)
            self._expiry = TrashExpiry(self.disk)
            self._sessions_json = SessionsJson(self._core, self.bamboo)
            self._housekeeper = Housekeeper([self.export, self.tidy, self._tidy_history]) if background else None
            self._recover(alone=alone, progress=progress)
            self.presence.ready()
            self._watcher = new_watcher(self._core) if background else None
            self._freshness = new_freshness_server(self._services.trigrams) if background else None
        except BaseException:
            self.release()
            raise

    @property
    def core(self) -> Core:
        self._check_open()
        return self._core

    @property
    def services(self) -> Services:
        self._check_open()
        return self._services

    @cached_property
    def upkeep(self) -> HistoryUpkeep:
        """Drops, thins out and purges versions. Built on first use, in the housekeeping thread or by a caller."""
        from store.home.history_upkeep import HistoryUpkeep

        return HistoryUpkeep(self._core, self.services.deleter)

    @property
    def sessions_json(self) -> SessionsJson:
        self._check_open()
        return self._sessions_json

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed(f"the store of {self.path} is closed")

    # -- closing ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the threads, export sessions.json, record a clean shutdown. A second call does nothing."""
        if self._is_closing:
            return
        self._is_closing = True
        try:
            self._stop_threads()
            self.export()
            if self.presence.is_last() and not self._core.journal.all_pending():
                self._core.db.set_meta(clean=1)
            self._core.db.checkpoint()
        except (apsw.Error, OSError, StoreError) as error:  # commits are safe; the next opening recovers the rest
            log.warning("%s: not closed cleanly: %s", self.path, error)
        finally:
            self.release()

    def _stop_threads(self) -> None:
        for thread in (self._freshness, self._watcher, self._housekeeper):
            if thread is not None:
                thread.stop()

    def release(self) -> None:
        """Close the database and the disk and give up the presence lock, without any housekeeping."""
        self._is_closing = self._is_closed = True
        if hasattr(self, "_core"):  # opening may have failed before
            self._core.agreement.close()
            self._core.close()
        if hasattr(self, "disk"):
            self.disk.close()
        self.presence.leave()

    # -- opening ---------------------------------------------------------------------------------------

    def _recover(self, *, alone: bool, progress: Progress | None) -> None:
        """Make index and files agree. After a clean shutdown no session is read."""
        if not alone:
            self._core.recover_all()
            return
        previous = set_up(self._core)
        foreign = self.sessions_json.is_foreign()
        if not previous.was_clean or foreign:
            self._sweep(progress)
        if foreign:
            self.sessions_json.keep_unknown_keys()
        if not previous.was_clean or self.disk.stamp(layout.INDEX_EXPORT) is None:
            self.export()  # Bamboo expects the file from the start; a crash may have prevented the last export

    # -- while it is open ------------------------------------------------------------------------------

    def check_writable(self) -> None:
        """Raise BambooAtWork while a Bamboo server uses this home, Unreachable while its grove does not answer."""
        self._check_open()
        self._core.agreement.check()
        if self._sessions_json.is_foreign():
            self._reconcile()
        self.bamboo.check()

    def _reconcile(self) -> None:
        """Take over a sessions.json that another program wrote: a Bamboo server is running."""
        self.bamboo.note_rewrite()
        self._sweep()  # first: unknown keys are stored in the rows of their sessions
        self.sessions_json.keep_unknown_keys()

    def _sweep(self, progress: Progress | None = None) -> None:
        from store.commit.reindex import sweep

        sweep(self._core, progress)

    def export(self) -> None:
        """Bring sessions.json up to date, unless a Bamboo server uses this home."""
        if self.sessions_json.is_foreign():
            self._reconcile()
        try:
            self.bamboo.check()
        except StoreError as error:
            log.info("sessions.json not exported: %s", error)
            return
        self.sessions_json.export()

    def tidy(self) -> None:
        """Do the background housekeeping: recovery, index merges, feed, trash, automatic pruning."""
        core = self.core
        core.recover_all()
        while core.db.merge_search():
            pass
        core.feed.trim()
        self.services.deleter.purge(self._expiry.expired())
        if self._auto_prune is not None:
            self.services.pruner.run_if_due(self._auto_prune)
        core.db.checkpoint()

    def _tidy_history(self) -> float | None:
        return self.upkeep.tidy()

    def _on_commit(self) -> None:
        if self._housekeeper is not None:
            self._housekeeper.notify()

    def _on_use(self, location: Location) -> None:
        if self._watcher is not None:
            self._watcher.use(location)


def _open_history(disk: Disk, author: Author, *, is_on: bool) -> History:
    from store.history.history import History

    return History(disk, author, is_on=is_on)


def _author(given: str | Author | None) -> Author:
    """The author of changes that no other author is named for: this process, under the given name."""
    return given if isinstance(given, Author) else this_process("api", given)
