"""AgentRuntimeState: status, round, waits and permissions of an agent's run.

A missing inner object reads as its zero value. Inside `round` no defaults are supplied, because
versions disagree there and absence has a meaning: a missing `max_rounds` is "unlimited", not 0.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field

from store.model.record import U8, U32, U64, Missing, NotNull, OmitEmpty, Opt, Record
from store.model.timestamp import Timestamp

RunStatus = Literal["idle", "initializing", "running", "suspended", "finalizing", "completed", "cancelled", "failed"]
PermissionMode = Literal["default", "bypass", "auto"]

RUNTIME_STATE_VERSION = 1


def is_default_mode(mode: str | None) -> bool:
    return mode is None or mode == "default"


class RoundState(Record):
    """Progress of a run. Every version of Bamboo requires the four numbers without a default."""

    current_round: U32
    max_rounds: Opt[U32] = None  # required before 2026.7, absent for unlimited rounds since
    last_round_id: Opt[str] = None
    total_tool_calls: U32
    total_prompt_tokens: U64
    total_completion_tokens: U64
    total_subagents_spawned: Missing[U32] = None

    @classmethod
    def zero(cls) -> Self:
        """The round of a run that has not started. Older agents require all five numbers."""
        return cls(
            current_round=0,
            max_rounds=0,
            total_tool_calls=0,
            total_prompt_tokens=0,
            total_completion_tokens=0,
        )


class SuspensionState(Record):
    reason: str
    suspended_at: Timestamp
    resumable: bool
    hook_point: Opt[str] = None


class PromptState(Record):
    composer_version: Opt[str] = None
    section_flags: Opt[str] = None
    section_lengths: Opt[str] = None
    section_layout: Opt[str] = None


class ToolsState(Record):
    schemas_resolved: bool
    disabled_tool_count: U32
    active_tool_calls: U32

    @classmethod
    def zero(cls) -> Self:
        return cls(schemas_resolved=False, disabled_tool_count=0, active_tool_calls=0)


class MemoryState(Record):
    external_memory_injected: bool
    compression_events_count: U32
    last_compression_at: Opt[Timestamp] = None
    overflow_recovery_total: U32
    overflow_recovery_consecutive: U32

    @classmethod
    def zero(cls) -> Self:
        return cls(
            external_memory_injected=False,
            compression_events_count=0,
            overflow_recovery_total=0,
            overflow_recovery_consecutive=0,
        )


class LlmState(Record):
    model_name: Opt[str] = None
    provider_name: Opt[str] = None
    background_model_name: Opt[str] = None
    fast_model_name: Opt[str] = None
    responses_previous_id: Opt[str] = None


class WaitingForChildren(Record):
    child_session_ids: OmitEmpty[list[str]] = Field(default_factory=list)
    wait_for: Literal["all", "any", "first_error"] = "all"
    registered_at: Timestamp
    timeout_at: Opt[Timestamp] = None
    registered_by_tool_call_id: Opt[str] = None


class WaitingForBash(Record):
    bash_ids: OmitEmpty[list[str]] = Field(default_factory=list)
    registered_at: Timestamp
    timeout_at: Opt[Timestamp] = None


class Checkpoint(Record):
    hook_point: str
    timestamp: Timestamp
    result: str
    duration_ms: U64


class PlanModeState(Record):
    entered_at: Timestamp
    pre_permission_mode: str
    plan_file_path: Opt[str] = None
    status: Literal["exploring", "designing", "reviewing", "finalizing", "awaiting_approval"] = "exploring"


class AgentRuntimeState(Record):
    version: U32
    run_id: str
    status: RunStatus = "idle"
    round: RoundState = Field(default_factory=RoundState.zero)
    suspension: Opt[SuspensionState] = None
    prompt: PromptState = Field(default_factory=PromptState)
    tools: ToolsState = Field(default_factory=ToolsState.zero)
    memory: MemoryState = Field(default_factory=MemoryState.zero)
    llm: LlmState = Field(default_factory=LlmState)
    children: dict[str, Any] = Field(default_factory=dict)  # old files list child ids here; kept unchanged
    waiting_for_children: Opt[WaitingForChildren] = None
    waiting_for_bash: Opt[WaitingForBash] = None
    checkpoints: OmitEmpty[list[Checkpoint]] = Field(default_factory=list)
    hook_contexts: OmitEmpty[list[str]] = Field(default_factory=list)
    stop_hook_forced_continuations: Missing[U8] = None
    plan_mode: Opt[PlanModeState] = None
    read_only: Missing[bool] = None
    permission_mode: Annotated[PermissionMode | None, NotNull(), Field(exclude_if=is_default_mode)] = None
    bypass_permissions: bool = False
    no_human_approver: Missing[bool] = None

    @classmethod
    def new(cls, run_id: str) -> Self:
        """The state of a run that has not started."""
        return cls(version=RUNTIME_STATE_VERSION, run_id=run_id)

    def effective_permission_mode(self) -> PermissionMode:
        """The mode, or `bypass` if an older agent set `bypass_permissions` instead."""
        if is_default_mode(self.permission_mode) and self.bypass_permissions:
            return "bypass"
        return self.permission_mode or "default"

    def set_permission_mode(self, mode: PermissionMode) -> None:
        self.permission_mode = None if mode == "default" else mode
        self.bypass_permissions = mode != "default"
