"""All that `from store import …` gives. Imported when something of it is first asked for: see `store/__init__.py`."""

from store.backend import Backend
from store.check.finding import Finding, Report
from store.check.health import Health
from store.errors import (
    AlreadyExists,
    Ambiguous,
    BambooAtWork,
    Busy,
    Conflict,
    Corrupt,
    Flaw,
    Generated,
    InvalidContent,
    InvalidName,
    InvalidQuery,
    MustBeCopied,
    NotEmpty,
    NotFound,
    Protected,
    ReadOnly,
    StoreError,
    TooLarge,
)
from store.index.catalog import Version
from store.index.change_feed import Change, Changes, Cursor
from store.layout import Location
from store.memory_store import MemoryStore
from store.model.session import (
    AgentRuntimeState,
    IndexEntry,
    Message,
    PendingQuestion,
    Session,
    TaskItem,
    TaskList,
    ToolCall,
)
from store.model.timestamp import Timestamp
from store.search.results import EmptyQuery, Hit
from store.search.summaries import Summary
from store.sessions.artifacts import ArtifactSet, ToolArtifact, TraceEvent, VerificationCheck, VerificationReport
from store.sessions.attachments import Attachment
from store.sessions.prune import AutoPrune
from store.sessions.prune_plan import CleanupResult, Keep, Plan, PrunePlan
from store.sessions.trajectory import StepRange, TrajectoryStep
from store.store import Store
from store.transfer.backup.restore import DamagedBackup
from store.workspace.mail_message import AdmittedSet, InboxMessage
from store.workspace.mailbox import Delivered, Mailbox
from store.workspace.project_records import ChildEntry, ChildFields, Extractor, Member, RootEntry, RootFields
from store.workspace.projects import Projects
from store.workspace.state import State

__all__ = [
    "AdmittedSet",
    "AgentRuntimeState",
    "AlreadyExists",
    "Ambiguous",
    "ArtifactSet",
    "Attachment",
    "AutoPrune",
    "Backend",
    "BambooAtWork",
    "Busy",
    "Change",
    "Changes",
    "ChildEntry",
    "ChildFields",
    "CleanupResult",
    "Conflict",
    "Corrupt",
    "Cursor",
    "DamagedBackup",
    "Delivered",
    "EmptyQuery",
    "Extractor",
    "Finding",
    "Flaw",
    "Generated",
    "Health",
    "Hit",
    "InboxMessage",
    "IndexEntry",
    "InvalidContent",
    "InvalidName",
    "InvalidQuery",
    "Keep",
    "Location",
    "Mailbox",
    "Member",
    "MemoryStore",
    "Message",
    "MustBeCopied",
    "NotEmpty",
    "NotFound",
    "PendingQuestion",
    "Plan",
    "Projects",
    "Protected",
    "PrunePlan",
    "ReadOnly",
    "Report",
    "RootEntry",
    "RootFields",
    "Session",
    "State",
    "StepRange",
    "Store",
    "StoreError",
    "Summary",
    "TaskItem",
    "TaskList",
    "Timestamp",
    "TooLarge",
    "ToolArtifact",
    "ToolCall",
    "TraceEvent",
    "TrajectoryStep",
    "VerificationCheck",
    "VerificationReport",
    "Version",
]
