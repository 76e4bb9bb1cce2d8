"""The services of an open home: one object per family of operations, all sharing one Core.

This is the only place that wires them together. Each is built, and its module imported, on first use:
`grovefs ls` must not wait for import, backup and undo. Building one touches neither files nor the index.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from store import layout
from store.commit.core import Core
from store.layout import Location

if TYPE_CHECKING:
    import apsw

    from store.commit.commits import Commits
    from store.namespace.dispatch import Dispatcher
    from store.namespace.moves import Moves
    from store.namespace.namespace import Namespace
    from store.search.browse import SessionBrowser
    from store.search.grep.maintenance import TrigramIndex
    from store.search.page_facts import SessionPages
    from store.search.summaries import Summaries
    from store.search.transcripts import Transcripts
    from store.sessions.append import AppendOperation
    from store.sessions.attachments import Attachments
    from store.sessions.cleanup import Cleanup
    from store.sessions.delete import DeleteOperations
    from store.sessions.logs import Logs, Trajectory
    from store.sessions.prune import Pruner
    from store.sessions.put import PutOperation
    from store.sessions.records import Records
    from store.sessions.rename import RenameOperation
    from store.sessions.save import SaveOperations
    from store.transfer.backup.backup import Backups
    from store.transfer.backup.restore import Restores
    from store.transfer.exports import Exports
    from store.transfer.imports import Imports
    from store.undo.past_tree import Moments
    from store.undo.revert import RevertOperation
    from store.undo.undo import UndoOperation
    from store.undo.version_lookup import VersionLookup
    from store.workspace.agent_records import Agents
    from store.workspace.mailbox import Mailboxes
    from store.workspace.projects import Projects
    from store.workspace.state import State

T = TypeVar("T")


class service(Generic[T]):
    """An attribute that is built on first use, once, whichever thread comes first."""

    def __init__(self, build: Callable[[Any], T]) -> None:
        self._build = build
        self._name = build.__name__

    def __get__(self, services: Services, owner: type | None = None) -> T:
        with services._building:
            if self._name not in services.__dict__:
                services.__dict__[self._name] = self._build(services)
        value: T = services.__dict__[self._name]  # found there from now on: this is not a data descriptor
        return value


class Services:
    """Everything a home can do, grouped by package."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._building = threading.RLock()
        core.area_refreshers.update({layout.STATE: self._sync_state, layout.PROJECTS: self._sync_projects})
        core.index_documents = self._index_documents

    def _sync_state(self, location: Location) -> bool:
        return self.state.sync_index(location)

    def _index_documents(self, db: apsw.Connection, paths: Sequence[str]) -> None:
        self.state.reindex(db, paths)

    def _sync_projects(self, location: Location) -> bool:
        return self.projects.sync_index(location)

    @service
    def commits(self) -> Commits:
        from store.commit.commits import Commits

        return Commits(self._core)

    # -- operations on sessions --------------------------------------------------------------------------

    @service
    def saver(self) -> SaveOperations:
        from store.sessions.save import SaveOperations

        return SaveOperations(self._core, self.commits)

    @service
    def appender(self) -> AppendOperation:
        from store.sessions.append import AppendOperation

        return AppendOperation(self._core, self.commits, self.saver)

    @service
    def putter(self) -> PutOperation:
        from store.sessions.put import PutOperation

        return PutOperation(self._core, self.commits)

    @service
    def deleter(self) -> DeleteOperations:
        from store.sessions.delete import DeleteOperations

        return DeleteOperations(self._core)

    @service
    def relocator(self) -> RenameOperation:
        from store.sessions.rename import RenameOperation

        return RenameOperation(self._core)

    @service
    def attachments(self) -> Attachments:
        from store.sessions.attachments import Attachments

        return Attachments(self._core, self.commits)

    @service
    def logs(self) -> Logs:
        from store.sessions.logs import Logs

        return Logs(self._core, self.commits)

    @service
    def records(self) -> Records:
        from store.sessions.records import Records

        return Records(self._core, self.commits)

    @service
    def trajectory(self) -> Trajectory:
        from store.sessions.logs import Trajectory

        return Trajectory(self._core, self.logs)

    @service
    def cleanup(self) -> Cleanup:
        from store.sessions.cleanup import Cleanup

        return Cleanup(self._core, self.deleter)

    @service
    def pruner(self) -> Pruner:
        from store.sessions.prune import Pruner

        return Pruner(self._core, self.deleter)

    # -- what sessions share -----------------------------------------------------------------------------

    @service
    def mail(self) -> Mailboxes:
        from store.workspace.mailbox import Mailboxes

        return Mailboxes(self._core, self.commits)

    @service
    def state(self) -> State:
        from store.workspace.state import State

        return State(self._core, self.commits)

    @service
    def agents(self) -> Agents:
        from store.workspace.agent_records import Agents

        return Agents(self._core, self.commits, self.state)

    @service
    def projects(self) -> Projects:
        from store.workspace.projects import Projects

        return Projects(self._core, self.commits)

    # -- finding -----------------------------------------------------------------------------------------

    @service
    def summaries(self) -> Summaries:
        from store.search.summaries import Summaries

        return Summaries(self._core)

    @service
    def transcripts(self) -> Transcripts:
        from store.search.transcripts import Transcripts

        return Transcripts(self._core)

    @service
    def pages(self) -> SessionPages:
        from store.search.page_facts import SessionPages

        return SessionPages(self._core, self.transcripts)

    @service
    def browser(self) -> SessionBrowser:
        from store.search.browse import SessionBrowser

        return SessionBrowser(self._core)

    @service
    def trigrams(self) -> TrigramIndex:
        from store.search.grep.maintenance import TrigramIndex

        return TrigramIndex(self._core.disk, self._core.db)

    # -- names in a filesystem ---------------------------------------------------------------------------

    @service
    def dispatcher(self) -> Dispatcher:
        from store.namespace.dispatch import Dispatcher
        from store.workspace.project_moves import ProjectMover

        mover = ProjectMover(self._core, self.commits, self.projects)
        return Dispatcher(self._core, self.mail, self.records, self.state, self.projects, mover)

    @service
    def names(self) -> Namespace:
        from store.disk.rejects import Rejects
        from store.namespace.namespace import Namespace

        rejects = Rejects(self._core.disk)
        sessions = (self.attachments, self.logs, self.putter, self.deleter, self.relocator)
        return Namespace(self._core, *sessions, rejects, self.dispatcher)

    @service
    def moves(self) -> Moves:
        from store.namespace.moves import Moves

        return Moves(self._core, self.names)

    # -- import, export, backup --------------------------------------------------------------------------

    @service
    def imports(self) -> Imports:
        from store.transfer.imports import Imports

        return Imports(self._core, self.commits, self.deleter)

    @service
    def exports(self) -> Exports:
        from store.transfer.exports import Exports

        return Exports(self._core, self.commits)

    @service
    def backups(self) -> Backups:
        from store.transfer.backup.backup import Backups

        return Backups(self._core)

    @service
    def restores(self) -> Restores:
        from store.transfer.backup.restore import Restores

        return Restores(self._core, self.commits, self.dispatcher)

    # -- the past ----------------------------------------------------------------------------------------

    @service
    def versions(self) -> VersionLookup:
        from store.undo.version_lookup import VersionLookup

        return VersionLookup(self._core)

    @service
    def moments(self) -> Moments:
        from store.undo.past_tree import Moments

        return Moments(self._core)

    @service
    def reverter(self) -> RevertOperation:
        from store.undo.revert import RevertOperation

        return RevertOperation(self._core, self.commits, self.names)

    @service
    def undoer(self) -> UndoOperation:
        from store.undo.reverse_merge import ReverseMerge
        from store.undo.undo import UndoOperation

        return UndoOperation(self._core, self.reverter, ReverseMerge(self._core, self.reverter))
