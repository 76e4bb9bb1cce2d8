"""The names that `from store import …` provides. `store/__init__.py` imports this module on first use."""

from store.backend import Backend
from store.check.finding import Finding, Report
from store.check.health import Health
from store.documents.merge import MergeConflict, SidecarConflict
from store.errors import (
    AlreadyExists,
    Ambiguous,
    BambooAtWork,
    Busy,
    Closed,
    Conflict,
    Corrupt,
    Generated,
    InvalidContent,
    InvalidName,
    InvalidQuery,
    MustBeCopied,
    NotEmpty,
    NotFound,
    Problem,
    Protected,
    ReadOnly,
    StoreError,
    TooLarge,
)
from store.history.authors import Author
from store.history.versions import HistoryState, SavedVersion, Snapshot, VersionTexts
from store.index.catalog import Version
from store.index.change_feed import Changes, Cursor, FeedChange
from store.layout import Location
from store.memory_store import MemoryStore
from store.model.index_entry import IndexEntry
from store.model.message import Message, ToolCall
from store.model.runtime_state import AgentRuntimeState
from store.model.session import PendingQuestion, Session
from store.model.tasks import TaskItem, TaskList
from store.model.timestamp import Timestamp
from store.search.results import EmptyQuery, Hit
from store.search.summaries import SessionSummary
from store.sessions.append import AppendedMessage
from store.sessions.artifacts import ArtifactSet, ToolArtifact, TraceEvent, VerificationCheck, VerificationReport
from store.sessions.attachments import Attachment
from store.sessions.cleanup import CleanupResult, Plan
from store.sessions.logs import StepRange, TrajectoryStep
from store.sessions.prune import AutoPrune, Keep, PrunePlan
from store.store import Store
from store.transfer.backup.restore import DamagedBackup
from store.undo.difference import Difference
from store.undo.past_tree import PastDir, PastFile, PastTree
from store.undo.undo_plan import UndoItem, UndoPlan, UndoRefusal, UndoResult
from store.workspace.mail_message import InboxMessage, SeenIds
from store.workspace.mailbox import Delivered, Mailbox
from store.workspace.project_records import ChildEntry, ChildFields, Extractor, ProjectSession, RootEntry, RootFields
from store.workspace.projects import Projects
from store.workspace.state import State

__all__ = [
    "AgentRuntimeState",
    "AlreadyExists",
    "Ambiguous",
    "AppendedMessage",
    "ArtifactSet",
    "Attachment",
    "Author",
    "AutoPrune",
    "Backend",
    "BambooAtWork",
    "Busy",
    "Changes",
    "ChildEntry",
    "ChildFields",
    "CleanupResult",
    "Closed",
    "Conflict",
    "Corrupt",
    "Cursor",
    "DamagedBackup",
    "Delivered",
    "Difference",
    "EmptyQuery",
    "Extractor",
    "FeedChange",
    "Finding",
    "Generated",
    "Health",
    "HistoryState",
    "Hit",
    "InboxMessage",
    "IndexEntry",
    "InvalidContent",
    "InvalidName",
    "InvalidQuery",
    "Keep",
    "Location",
    "Mailbox",
    "MemoryStore",
    "MergeConflict",
    "Message",
    "MustBeCopied",
    "NotEmpty",
    "NotFound",
    "PastDir",
    "PastFile",
    "PastTree",
    "PendingQuestion",
    "Plan",
    "Problem",
    "ProjectSession",
    "Projects",
    "Protected",
    "PrunePlan",
    "ReadOnly",
    "Report",
    "RootEntry",
    "RootFields",
    "SavedVersion",
    "SeenIds",
    "Session",
    "SessionSummary",
    "SidecarConflict",
    "Snapshot",
    "State",
    "StepRange",
    "Store",
    "StoreError",
    "TaskItem",
    "TaskList",
    "Timestamp",
    "TooLarge",
    "ToolArtifact",
    "ToolCall",
    "TraceEvent",
    "TrajectoryStep",
    "UndoItem",
    "UndoPlan",
    "UndoRefusal",
    "UndoResult",
    "VerificationCheck",
    "VerificationReport",
    "Version",
    "VersionTexts",
]
