"""All that `from store import …` gives. Imported when something of it is first asked for: see `store/__init__.py`."""

from store.artifacts import ArtifactSet, ToolArtifact, TraceEvent, VerificationCheck, VerificationReport
from store.backend import Backend
from store.beside import Attachment
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
from store.feed import Change, Changes, Cursor
from store.find import EmptyQuery, Hit
from store.findings import Finding, Report
from store.health import Health
from store.inbox import AdmittedSet, InboxMessage
from store.index import Version
from store.layout import Location
from store.mailbox import Delivered, Mailbox
from store.memory import MemoryStore
from store.models import AgentRuntimeState, IndexEntry, Message, PendingQuestion, Session, TaskItem, TaskList, ToolCall
from store.project_index import ChildEntry, ChildFields, Extractor, Member, RootEntry, RootFields
from store.projects import Projects
from store.prune import CleanupResult, Keep, Plan, PrunePlan
from store.pruning import AutoPrune
from store.restoring import DamagedBackup
from store.state import State
from store.store import Store
from store.summaries import Summary
from store.timestamps import Timestamp
from store.trajectory import StepRange, TrajectoryStep

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
