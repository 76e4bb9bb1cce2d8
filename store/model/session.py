"""Session: one conversation with everything stored in session.json and runtime.json.

Session accepts exactly what the owning agent would load (rule 6) and keeps unknown members
(rule 5). `model_dump()` returns exactly the members that agent would write, in its order.
Loading adds no members: a save compares two dumps and splices the difference, so an added
member would be written.

Pure, except for the clock that sets the timestamps of new messages and changed sessions.
"""

from collections import Counter
from typing import Any, Literal, Self

from pydantic import AliasChoices, ConfigDict, Field, PrivateAttr

from store.model.budget import CompressionEvent, ConversationSummary, PromptSnapshot, TokenBudget, TokenBudgetUsage
from store.model.message import Message, truncate_tool_output
from store.model.mirrored_fields import (
    MetadataField,
    MirroredField,
    SessionRuntimeMetadata,
    parse_flag,
    parse_messages,
    parse_names,
    parse_text,
)
from store.model.preview import NEW_TITLE, Preview
from store.model.record import ALIASES, U32, U64, AliasedRecord, Missing, OmitEmpty, Opt, Record
from store.model.runtime_state import AgentRuntimeState, PermissionMode
from store.model.tasks import TaskItem, TaskList, TaskStatus
from store.model.timestamp import Timestamp

SessionKind = Literal["root", "child"]
ReasoningEffort = Literal["low", "medium", "high", "xhigh", "max"]

MAX_DEPTH = 2**32 - 1
PREVIOUS_RESPONSE_KEY = "responses.previous_response_id"


class ProviderModelRef(Record):
    """Which model of which provider."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


class PendingQuestion(Record):
    """A question of the agent that awaits an answer."""

    tool_call_id: str
    tool_name: OmitEmpty[str] = ""
    question: str
    options: list[str]
    allow_custom: bool
    source: Literal["pause_tool", "agentic_clarification", "external_agent", "gold", "direct_parent"] = "pause_tool"


class Session(AliasedRecord):
    """One conversation, root or child: `session.json`, or without messages `runtime.json`."""

    model_config = ConfigDict(ignored_types=(MirroredField, MetadataField))

    id: str
    title: str = ""
    pinned: bool = False
    title_version: U64 = 0
    title_generated: Missing[bool] = None
    metadata_version: U64 = 0
    root_orchestration_only: OmitEmpty[bool] = False
    root_tool_authority_revision: OmitEmpty[U64] = 0
    root_mode_transition_epoch: OmitEmpty[U64] = 0
    root_mode_operations: OmitEmpty[list[Any]] = Field(default_factory=list)
    kind: SessionKind = "root"
    authority_identity: Opt[Any] = None
    supervisor_management: Opt[Any] = None
    parent_session_id: Opt[str] = None
    root_session_id: str = ""
    spawn_depth: U32 = 0
    messages: list[Message]
    created_at: Timestamp
    updated_at: Timestamp
    task_list: Opt[TaskList] = Field(default=None, validation_alias=AliasChoices("task_list", ALIASES["task_list"]))
    pending_question: Opt[PendingQuestion] = None
    model: str = ""
    model_ref: Opt[ProviderModelRef] = None
    reasoning_effort: Opt[ReasoningEffort] = None
    metadata: OmitEmpty[dict[str, str]] = Field(default_factory=dict)
    token_budget: Opt[TokenBudget] = None
    token_usage: Opt[TokenBudgetUsage] = None
    conversation_summary: Opt[ConversationSummary] = None
    prompt_snapshot: Opt[PromptSnapshot] = None
    compression_events: OmitEmpty[list[CompressionEvent]] = Field(default_factory=list)
    model_context_state: Opt[Any] = None
    provider_transcript: Opt[Any] = None
    compression_instructions: Opt[str] = None
    agent_runtime_state: Opt[AgentRuntimeState] = None
    runtime_metadata: Opt[SessionRuntimeMetadata] = None
    workspace: Opt[str] = None

    # The version it was loaded from. Set by the store, kept by copies, ignored by comparisons.
    _origin: Any = PrivateAttr(default=None)

    # Not JSON members: these accessors read and write both runtime_metadata and metadata.
    last_run_status = MirroredField("last_run_status", parse_text)
    last_run_error = MirroredField("last_run_error", parse_text)
    subagent_type = MirroredField("subagent_type", parse_text)
    provider_name = MirroredField("provider_name", parse_text)
    pending_injected_messages = MirroredField("pending_injected_messages", parse_messages)
    selected_skill_ids = MirroredField("selected_skill_ids", parse_names)
    skill_mode = MirroredField("skill_mode", parse_text, older_key="mode")
    runtime_reasoning_effort = MirroredField("reasoning_effort", parse_text)
    enhance_prompt = MirroredField("enhance_prompt", parse_text)
    root_orchestration_prompt = MirroredField("root_orchestration_prompt", parse_flag)
    task_list_version = MirroredField("task_list_version", parse_text)
    todo_list_version = MirroredField("todo_list_version", parse_text)
    workspace_path = MirroredField("workspace_path", parse_text)
    project_id = MirroredField("project_id", parse_text)
    user_id = MetadataField("user_id")
    persona_id = MetadataField("active_persona_id")
    seed_id = MetadataField("active_seed_id")

    @classmethod
    def new(cls, id: str, model: str = "") -> Self:
        """A new root session without messages."""
        now = Timestamp.now()
        return cls(
            id=id,
            title=NEW_TITLE,
            root_session_id=id,
            messages=[],
            created_at=now,
            updated_at=now,
            model=model,
        )

    @classmethod
    def new_child(cls, id: str, root_id: str, model: str, title: str) -> Self:
        """A new child session directly below the root."""
        session = cls.new(id, model)
        session.title = title
        session.kind = "child"
        session.parent_session_id = session.root_session_id = root_id
        session.spawn_depth = 1
        return session

    @classmethod
    def new_child_of(cls, id: str, parent: "Session", model: str, title: str) -> Self:
        """A new child session of `parent`, which may be a child itself."""
        session = cls.new_child(id, parent.root_session_id or parent.id, model, title)
        session.parent_session_id = parent.id
        session.spawn_depth = min(parent.spawn_depth + 1, MAX_DEPTH)
        return session

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Session):
            return NotImplemented
        # BaseModel.__eq__ would compare _origin too.
        return self.__dict__ == other.__dict__ and self.model_extra == other.model_extra

    __hash__ = None  # type: ignore[assignment]  # mutable

    def replace_content(self, other: "Session") -> None:
        """Take all members of `other`.

        Messages with the same id stay the same objects, so that a program can keep using those it holds.
        """
        ids = Counter(message.id for message in self.messages)
        held = {message.id: message for message in self.messages if message.id and ids[message.id] == 1}
        messages = []
        for message in other.messages:
            kept = held.pop(message.id, None) if message.id else None
            if kept is not None:
                _copy_members(message, kept)
            messages.append(kept or message)
        _copy_members(other, self)
        self.messages = messages

    def add_message(self, message: Message) -> None:
        """Append a message. Tool output over the limit is truncated in a copy of the message."""
        if message.role == "tool":
            content = truncate_tool_output(message.content)
            if content is not message.content:
                message = message.model_copy(update={"content": content})
        self.messages.append(message)
        self._touch()

    def set_task_list(self, task_list: TaskList) -> None:
        self.task_list = task_list
        self._touch()

    def update_task_item(
        self,
        item_id: str,
        status: TaskStatus,
        notes: str | None = None,
        *,
        completed_criteria: list[str] | None = None,
        round: int | None = None,
    ) -> TaskItem:
        """Set an item's status and return the item. With unmet criteria, completed becomes in_progress."""
        item = self.task_list.find_item(item_id) if self.task_list else None
        if self.task_list is None or item is None:
            raise LookupError(f"session {self.id} has no task item {item_id}")
        item.move_to(status, notes, completed_criteria=completed_criteria, round=round)
        self.task_list.updated_at = Timestamp.after(self.task_list.updated_at)
        self._touch()
        return item

    def set_pending_question(self, question: PendingQuestion) -> None:
        self.pending_question = question
        self._touch()

    def clear_pending_question(self) -> None:
        self.pending_question = None
        self._touch()

    def has_pending_question(self) -> bool:
        return self.pending_question is not None

    def exchange_count(self) -> int:
        """Number of user messages that were answered."""
        return Preview().with_messages(message.model_dump(warnings=False) for message in self.messages).exchanges

    def clear_derived_context_state(self) -> None:
        """Clear everything computed from the messages. Call it after editing messages."""
        self.token_usage = None
        self.conversation_summary = None
        self.compression_events = []
        self.model_context_state = None  # contains a fingerprint of the messages
        self.metadata.pop(PREVIOUS_RESPONSE_KEY, None)
        for message in self.messages:
            message.compressed = False
            message.compressed_by_event_id = None

    def has_pending_injected_messages(self) -> bool:
        """True if metadata or runtime_metadata has the key, whatever its value."""
        return self.pending_injected_messages is not None

    def clear_stale_root_token_budget(self) -> None:
        """Clear the budget of a root: it is resolved at each run, so a stored one is stale."""
        if self.kind == "root":
            self.token_budget = None

    def effective_permission_mode(self) -> PermissionMode:
        state = self.agent_runtime_state
        return state.effective_permission_mode() if state else "default"

    def set_permission_mode(self, mode: PermissionMode) -> None:
        """Set the mode. Creates a runtime state if there is none, unless the mode is the default."""
        if self.agent_runtime_state is None:
            if mode == "default":
                return
            self.agent_runtime_state = AgentRuntimeState.new("")
        self.agent_runtime_state.set_permission_mode(mode)

    def _touch(self) -> None:
        self.updated_at = Timestamp.after(self.updated_at)


def _copy_members(source: Record, target: Record) -> None:
    target.__dict__.clear()
    target.__dict__.update(source.__dict__)
    target.__pydantic_extra__ = dict(source.model_extra or {})
    target.__pydantic_fields_set__ = set(source.model_fields_set)
