"""The services of an open home: one object per family of operations, all sharing one Core.

`build_services` is the only place that wires them together. Building them touches neither files
nor the index.
"""

from __future__ import annotations

from dataclasses import dataclass

from store import layout
from store.commit.commits import Commits
from store.commit.core import Core
from store.disk.rejects import Rejects
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
from store.undo.reverse_merge import ReverseMerge
from store.undo.revert import RevertOperation
from store.undo.undo import UndoOperation
from store.undo.version_lookup import VersionLookup
from store.workspace.agent_records import Agents
from store.workspace.mailbox import Mailboxes
from store.workspace.project_moves import ProjectMover
from store.workspace.projects import Projects
from store.workspace.state import State


@dataclass(frozen=True)
class Services:
    """Everything a home can do, grouped by package."""

    saver: SaveOperations
    appender: AppendOperation
    putter: PutOperation
    deleter: DeleteOperations
    relocator: RenameOperation
    attachments: Attachments
    logs: Logs
    records: Records
    trajectory: Trajectory
    cleanup: Cleanup
    pruner: Pruner
    mail: Mailboxes
    state: State
    agents: Agents
    projects: Projects
    summaries: Summaries
    transcripts: Transcripts
    pages: SessionPages
    browser: SessionBrowser
    trigrams: TrigramIndex
    names: Namespace
    moves: Moves
    imports: Imports
    exports: Exports
    backups: Backups
    restores: Restores
    versions: VersionLookup
    moments: Moments
    reverter: RevertOperation
    undoer: UndoOperation


def build_services(core: Core) -> Services:
    commits = Commits(core)
    saver = SaveOperations(core, commits)
    putter = PutOperation(core, commits)
    deleter = DeleteOperations(core)
    relocator = RenameOperation(core)
    attachments = Attachments(core, commits)
    logs = Logs(core, commits)
    records = Records(core, commits)
    mail = Mailboxes(core, commits)
    state = State(core, commits)
    projects = Projects(core, commits)
    core.area_refreshers.update({layout.STATE: state.sync_index, layout.PROJECTS: projects.sync_index})
    transcripts = Transcripts(core)
    mover = ProjectMover(core, commits, projects)
    dispatcher = Dispatcher(core, mail, records, state, projects, mover)
    names = Namespace(core, attachments, logs, putter, deleter, relocator, Rejects(core.disk), dispatcher)
    reverter = RevertOperation(core, commits, names)
    return Services(
        saver=saver,
        appender=AppendOperation(core, commits, saver),
        putter=putter,
        deleter=deleter,
        relocator=relocator,
        attachments=attachments,
        logs=logs,
        records=records,
        trajectory=Trajectory(core, logs),
        cleanup=Cleanup(core, deleter),
        pruner=Pruner(core, deleter),
        mail=mail,
        state=state,
        agents=Agents(core, commits, state),
        projects=projects,
        summaries=Summaries(core),
        transcripts=transcripts,
        pages=SessionPages(core, transcripts),
        browser=SessionBrowser(core),
        trigrams=TrigramIndex(core.disk, core.db),
        names=names,
        moves=Moves(core, names),
        imports=Imports(core, commits, deleter),
        exports=Exports(core),
        backups=Backups(core),
        restores=Restores(core, commits, dispatcher),
        versions=VersionLookup(core),
        moments=Moments(core),
        reverter=reverter,
        undoer=UndoOperation(core, reverter, ReverseMerge(core, reverter)),
    )
