"""A home that is open: recovered, its pieces in order, its housekeeping done a moment later, and closed in the end.

What can be asked of it is `store.Store`; this is everything around that.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw

from store import layout
from store.commit.commits import Commits
from store.commit.core import Core
from store.disk.disk import Disk, Durability, Step, no_step
from store.disk.locks import TIMEOUT_S, HomePresence, Locks
from store.disk.rejects import Rejects
from store.disk.trash import TrashExpiry
from store.documents import json_text
from store.errors import Closed, StoreError
from store.home.bamboo_server import BambooServer
from store.home.housekeeping import Housekeeper
from store.home.opening import make_home, new_freshness_server, new_watcher, open_database, set_up
from store.home.sessions_json import SessionsJson
from store.home.watcher import HomeWatcher
from store.layout import Location
from store.namespace.dispatch import Dispatcher
from store.namespace.namespace import Namespace
from store.search.browse import SessionBrowser
from store.search.grep.freshness import FreshnessServer
from store.search.grep.maintenance import TrigramIndex
from store.search.summaries import Summaries
from store.search.transcripts import Transcripts
from store.sessions.attachments import Attachments
from store.sessions.cleanup import Cleanup
from store.sessions.delete import DeleteOperations
from store.sessions.logs import Logs, Trajectory
from store.sessions.ownership import Ownership
from store.sessions.prune import AutoPrune, Pruner
from store.sessions.put import PutOperation
from store.sessions.records import Records
from store.sessions.rename import RenameOperation
from store.sessions.save import SaveOperations
from store.transfer.backup.backup import Backups
from store.transfer.backup.restore import Restores
from store.transfer.exports import Exports
from store.transfer.imports import Imports
from store.workspace.agent_records import Agents
from store.workspace.mailbox import Mailboxes
from store.workspace.project_moves import ProjectMover
from store.workspace.projects import Projects
from store.workspace.state import State

log = logging.getLogger("grovefs.store")

Progress = Callable[[int, int], None]


class OpenHome:
    """Opens in its constructor, alone or beside others; `close`, or the end of a `with` statement, lets it go."""

    backend_name = "local"
    home: Path
    names: Namespace  # what a filesystem asks for
    records: Records  # artifacts, traces and verification reports of a session
    pruner: Pruner  # old sessions, by a plan
    trigrams: TrigramIndex  # what `grovefs grep` goes by
    trajectory: Trajectory  # what the agent of a session did, step by step
    imports: Imports  # sessions from elsewhere
    exports: Exports  # and to elsewhere
    backups: Backups  # all of it, to another disk
    restores: Restores  # and back
    transcripts: Transcripts  # transcripts
    mail: Mailboxes  # messages between sessions
    browser: SessionBrowser  # sessions to leaf through
    state: State  # plain documents by category and name
    agents: Agents  # the agent records among them, and which may go
    projects: Projects  # opaque payloads by project and session

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
        progress: Progress | None = None,
        step: Step = no_step,
    ) -> None:
        self.home = Path(home).expanduser().absolute()
        self._closed = self._is_shut = False
        self._auto_prune = auto_prune
        self._watcher: HomeWatcher | None = None
        self._freshness: FreshnessServer | None = None
        make_home(self.home)
        self._presence = HomePresence(self.home / layout.OPEN_LOCK)
        try:
            alone = self._presence.enter()
            self._disk = Disk(self.home, durability, step)
            self._bamboo = BambooServer(self.home, tolerated=beside_bamboo)
            self._opened = Core(
                self._disk,
                open_database(self.home / layout.INDEX_DB, alone=alone),
                Locks(self.home / layout.SESSION_LOCKS, lock_timeout_s),
                limit_bytes,
                check_writable=self._check_writable,
                on_commit=self._on_commit,
                on_use=self._on_use,
            )
            self._assemble(Commits(self._core))
            self._sessions_json = SessionsJson(self._core, self._bamboo)
            self._housekeeper = Housekeeper([self._export, self._tidy]) if background else None
            self._recover(alone=alone, progress=progress)
            self._presence.ready()
            self._watcher = new_watcher(self._core) if background else None
            self._freshness = new_freshness_server(self.trigrams) if background else None
        except BaseException:
            self._close_after_failed_open()
            raise

    @classmethod
    def open(cls, home: str | os.PathLike[str], **options: Any) -> Self:
        """Open a home, creating it if need be. Options: durability="full"|"normal", background,
        beside_bamboo, limit_bytes, lock_timeout_s, auto_prune (nothing is pruned without it), progress."""
        return cls(home, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Export, tidy up, and note that all is well. May be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._freshness is not None:
                self._freshness.stop()
            if self._watcher is not None:
                self._watcher.stop()
            if self._housekeeper is not None:
                self._housekeeper.stop()
            self._export()
            if self._presence.is_last() and not self._core.journal.all_pending():
                self._core.db.set_meta(clean=1)
            self._core.db.checkpoint()
        except (apsw.Error, OSError, StoreError) as error:  # what was committed is safe, and the next opening tidies up
            log.warning("%s is not tidied up: %s", self.home, error)
        finally:
            self._is_shut = True
            self._opened.db.close()
            self._disk.close()
            self._presence.leave()

    def _close_after_failed_open(self) -> None:
        """Let go of what a failed opening has taken."""
        self._closed = self._is_shut = True
        if hasattr(self, "_opened"):
            self._opened.db.close()
        if hasattr(self, "_disk"):
            self._disk.close()
        self._presence.leave()

    @property
    def _core(self) -> Core:
        if self._is_shut:
            raise Closed(f"the store of {self.home} is closed")
        return self._opened

    # -- opening ---------------------------------------------------------------------------------------

    def _assemble(self, commits: Commits) -> None:
        """All that can be done with a home, each family of operations an object of its own."""
        self._saver = SaveOperations(self._core, commits)
        self._ownership = Ownership(self._core, self._saver)
        self._putter = PutOperation(self._core, commits)
        self._attachments = Attachments(self._core, commits)
        self._logs = Logs(self._core, commits)
        self.records = Records(self._core, commits)
        self.trajectory = Trajectory(self._core, self._logs)
        self._summaries = Summaries(self._core)
        self._deleter = DeleteOperations(self._core)
        self._expiry = TrashExpiry(self._disk)
        self._cleanup = Cleanup(self._core, self._deleter)
        self.pruner = Pruner(self._core, self._deleter)
        self.mail = Mailboxes(self._core, commits)
        self.state = State(self._core, commits)
        self.agents = Agents(self._core, commits, self.state)
        self.projects = Projects(self._core, commits)
        self._core.area_refreshers.update(
            {layout.STATE: self.state.sync_index, layout.PROJECTS: self.projects.sync_index}
        )
        mover = ProjectMover(self._core, commits, self.projects)
        self.names = Namespace(
            self._core,
            self._attachments,
            self._logs,
            self._putter,
            self._deleter,
            RenameOperation(self._core),
            Rejects(self._disk),
            Dispatcher(self._core, self.mail, self.records, self.state, self.projects, mover),
        )
        self.imports = Imports(self._core, commits)
        self.exports = Exports(self._core)
        self.backups = Backups(self._core)
        self.restores = Restores(self._core, commits, self.names.parts)
        self.transcripts = Transcripts(self._core)
        self.browser = SessionBrowser(self._core)
        self.trigrams = TrigramIndex(self._core.disk, self._core.db)

    def _recover(self, *, alone: bool, progress: Progress | None) -> None:
        """Bring index and files together, looking at as little as the way things ended allows."""
        if not alone:
            self._core.recover_all()
            return
        ended = set_up(self._core)
        foreign = self._sessions_json.is_foreign()
        if not ended.was_clean or foreign:
            self._core.sweep(progress)
        if foreign:
            self._sessions_json.keep_unknown_keys()
        if not ended.was_clean or self._disk.stamp(layout.INDEX_EXPORT) is None:
            self._export()  # Bamboo expects the file to be there from the start; and a crash may have kept it back

    def check_writable(self) -> None:
        """Raise, with the reason, while nothing may be written to this home."""
        self._check_writable()

    def _check_writable(self) -> None:
        if self._sessions_json.is_foreign():
            self._reconcile()
        self._bamboo.check()

    def _reconcile(self) -> None:
        """Someone else rewrote sessions.json while we have the home open: a server is at work here."""
        self._bamboo.note_rewrite()
        self._core.sweep()  # first, for the rows that the unknown keys of new entries belong to
        self._sessions_json.keep_unknown_keys()

    def _on_commit(self) -> None:
        if self._housekeeper is not None:
            self._housekeeper.notify()

    def _on_use(self, location: Location) -> None:
        if self._watcher is not None:
            self._watcher.use(location)

    def _export(self) -> None:
        if self._sessions_json.is_foreign():
            self._reconcile()
        try:
            self._bamboo.check()
        except StoreError as error:
            log.info("no export now: %s", error)
            return
        self._sessions_json.export()

    def _tidy(self) -> None:
        self._core.recover_all()
        while self._core.db.merge_search():
            pass
        self._core.feed.trim()
        self._deleter.purge(self._expiry.names())
        if self._auto_prune is not None:
            self.pruner.run_if_due(self._auto_prune)
        self._core.db.checkpoint()
