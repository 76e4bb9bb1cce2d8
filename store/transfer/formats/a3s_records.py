"""The records of an A3S session file: types, defaults and the order in which A3S writes them. Pure.

As in `store.model.record`: members that A3S does not know are kept, and types are strict. A record
made without arguments has the defaults of A3S. Content blocks are those of the Anthropic API and
stay plain objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field

from store.model.record import U32, U64, Opt, Record
from store.model.timestamp import Timestamp

SessionState = Literal["Unknown", "Active", "Paused", "Completed", "Error"]
A3sTaskStatus = Literal["pending", "in_progress", "completed", "failed", "skipped", "cancelled"]
StorageType = Literal["memory", "file", "custom"]
PlanningMode = Literal["Auto", "Disabled", "Enabled"]

DEFAULT_AUTO_COMPACT_THRESHOLD = 0.8  # of the context window
DEFAULT_CONTEXT_TOKENS = 200_000

I64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class SessionConfig(Record):
    """How a session was started. The policies are kept as they are."""

    name: str = ""
    workspace: str = ""
    system_prompt: str | None = None
    max_context_length: U32 = 0
    auto_compact: bool = False
    auto_compact_threshold: float = DEFAULT_AUTO_COMPACT_THRESHOLD
    storage_type: StorageType = "file"
    queue_config: Opt[dict[str, Any]] = None
    confirmation_policy: Opt[dict[str, Any]] = None
    permission_policy: Opt[dict[str, Any]] = None
    parent_id: Opt[str] = None
    security_config: Opt[dict[str, Any]] = None
    planning_mode: PlanningMode = "Auto"
    goal_tracking: bool = False


class ContextUsage(Record):
    """How full the context window is."""

    used_tokens: U64 = 0
    max_tokens: U64 = DEFAULT_CONTEXT_TOKENS
    percent: float = 0.0
    turns: U64 = 0


class TotalUsage(Record):
    """Tokens of all calls together. `prompt_tokens` includes cached ones."""

    prompt_tokens: U64 = 0
    completion_tokens: U64 = 0
    total_tokens: U64 = 0
    cache_read_tokens: U64 | None = None
    cache_write_tokens: U64 | None = None


class LlmCostRecord(Record):
    """Tokens and cost of one model call."""

    model: str
    provider: str
    prompt_tokens: U64
    completion_tokens: U64
    total_tokens: U64
    cost_usd: float | None = None
    timestamp: Timestamp
    session_id: str | None = None


class LlmConfigData(Record):
    """The model of a session. The API key is read by A3S and never written."""

    provider: str
    model: str
    base_url: str | None = None


class A3sTask(Record):
    """One task of the plan."""

    id: str
    content: str = Field(validation_alias=AliasChoices("content", "description"))
    status: A3sTaskStatus
    priority: Literal["high", "medium", "low"] = "medium"
    tool: Opt[str] = None
    dependencies: Annotated[list[str], Field(exclude_if=lambda names: not names)] = Field(default_factory=list)
    success_criteria: Opt[str] = None


class A3sMessage(Record):
    role: str
    content: list[dict[str, Any]]
    reasoning_content: Opt[str] = None


class SessionData(Record):
    """A session file. Times are seconds since 1970."""

    id: str
    config: SessionConfig
    state: SessionState
    messages: list[A3sMessage]
    context_usage: ContextUsage
    total_usage: TotalUsage
    total_cost: float = 0.0
    model_name: Opt[str] = None
    cost_records: list[LlmCostRecord] = Field(default_factory=list)
    tool_names: list[str]
    thinking_enabled: bool
    thinking_budget: U64 | None = None
    created_at: I64
    updated_at: I64
    llm_config: Opt[LlmConfigData] = None
    tasks: list[A3sTask] = Field(default_factory=list, validation_alias=AliasChoices("tasks", "todos"))
    parent_id: Opt[str] = None

    @staticmethod
    def tool_names_from_definitions(tools: Iterable[Mapping[str, Any]]) -> list[str]:
        """The names in the definitions of tools: `{"name": …, "description": …, "parameters": …}`."""
        return [tool["name"] for tool in tools]
