"""GroveFS's session store: sessions on disk that survive anything.

    from store import Message, Session, Store

    with Store.open("~/.grovefs") as store:
        store.save(Session.new("s1", "some-model"))
        store.append("s1", [Message.user("hello")])

The rules everything here keeps; code and tests cite them by number.

1.  Files are the truth. `index.db` and `sessions.json` can be deleted and come back the same, but for the
    change feed, which starts a new epoch, and unknown keys found in sessions.json.
2.  What reported success survives: after a call returned, the change survives kill -9 of any process and,
    with durability "full" (the default), loss of power.
3.  What reported failure changed nothing, and what the user had typed is still somewhere.
4.  A reader sees one version of a document from open to close, never a mixture, never half a write.
5.  Bytes that were given are stored as they are. Unknown fields survive every rewrite, in their place;
    timestamps keep their digits, numbers their form. One exception: a document arriving where another one
    belongs and none is yet (a fork) is made to say who it is now.
6.  A commit that succeeds leaves a document the owning agent can load.
7.  Index and search follow within the same commit; there is no moment, and no crash, after which they stay
    wrong. Other processes learn of it within a second.
8.  No update is lost silently. Who writes from an outdated copy is told so instead of winning.
9.  Path and identity are one: `id`, `kind` and `root_session_id` agree with where a document lies.
10. The cost of a save does not grow with the number of sessions.
"""

from store.artifacts import ArtifactSet, ToolArtifact, TraceEvent, VerificationCheck, VerificationReport
from store.backend import Backend
from store.beside import Attachment
from store.check import Finding, Report
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
    NotEmpty,
    NotFound,
    Protected,
    ReadOnly,
    StoreError,
    TooLarge,
)
from store.feed import Change, Changes, Cursor
from store.find import EmptyQuery, Hit
from store.health import Health
from store.inbox import AdmittedSet, InboxMessage
from store.index import Version
from store.layout import Location
from store.mailbox import Delivered, Mailbox
from store.memory import MemoryStore
from store.models import AgentRuntimeState, IndexEntry, Message, PendingQuestion, Session, TaskItem, TaskList, ToolCall
from store.prune import CleanupResult, Keep, Plan, PrunePlan
from store.pruning import AutoPrune
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
    "CleanupResult",
    "Conflict",
    "Corrupt",
    "Cursor",
    "Delivered",
    "EmptyQuery",
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
    "MemoryStore",
    "Message",
    "NotEmpty",
    "NotFound",
    "PendingQuestion",
    "Plan",
    "Protected",
    "PrunePlan",
    "ReadOnly",
    "Report",
    "Session",
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
