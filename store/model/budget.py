"""Token budget, token usage, summary, compression events and prompt snapshot of a session.

Members that only newer agents write are None until the caller sets them.
"""

from typing import Any, Literal, Self

from pydantic import ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from store.model.record import U8, U32, U64, Missing, Opt, Record
from store.model.timestamp import Timestamp


class TokenBudgetUsage(Record):
    """Context window usage at the last model call."""

    system_tokens: U32
    summary_tokens: U32
    window_tokens: U32
    total_tokens: U32
    max_context_tokens: U32 = 0
    budget_limit: U32
    truncation_occurred: bool
    segments_removed: U64
    prompt_cached_tool_outputs: U64 = 0
    prompt_cached_tool_tokens_saved: U32 = 0
    thinking_tokens: U32 = 0
    cache_read_input_tokens: U32 = 0


class WindowStrategy(Record):
    size: U64


class HybridStrategy(Record):
    window_size: U64
    enable_summarization: bool


class BudgetStrategy(Record):
    """`{"window": {…}}` or `{"hybrid": {…}}`: an object with exactly one member, whose key is the kind."""

    model_config = ConfigDict(extra="forbid")  # a second key is a second kind, not an unknown member

    window: Missing[WindowStrategy] = None
    hybrid: Missing[HybridStrategy] = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.window is None) == (self.hybrid is None):
            raise PydanticCustomError("strategy", "expected exactly one of window and hybrid")
        return self

    @classmethod
    def default(cls) -> Self:
        return cls(hybrid=HybridStrategy(window_size=20, enable_summarization=True))


class TokenBudget(Record):
    """Override of the model's token budget."""

    max_context_tokens: U32
    max_output_tokens: U32
    strategy: BudgetStrategy
    safety_margin: U32 = 1000
    compression_trigger_percent: U8 = 85
    compression_target_percent: U8 = 40
    working_reserve_tokens: U32 = 50_000
    fallback_trigger_percent: U8 = 75
    prompt_cache_min_tool_output_chars: U32 = 1200
    prompt_cache_head_chars: U32 = 280
    prompt_cache_tail_chars: U32 = 180
    prompt_cache_recent_user_turns: U8 = 2
    prompt_cache_recent_tool_chains: U8 = 2
    max_tool_output_tokens: U32 = 0


class ConversationSummary(Record):
    """Summary that replaces messages that are no longer sent to the model."""

    created_at: Timestamp
    updated_at: Timestamp
    content: str
    message_count: U64
    token_count: U32
    represented_source_tokens: Missing[U32] = None
    target_token_count: Missing[U32] = None
    target_ratio: Missing[float] = None
    budget_clamped: Missing[bool] = None
    budget_clamp_reason: Opt[str] = None


class CompressionEvent(Record):
    """One compression of the context. The `retrieval_*` members of newer agents are kept as unknown members."""

    id: str
    created_at: Timestamp
    kind: Missing[Literal["summary", "retrieval_window"]] = None
    messages_compressed: U64
    segments_removed: U64
    usage_before_percent: float = 0.0
    usage_after_percent: float = 0.0
    summary_tokens: U32 = 0
    trigger_type: Literal["auto", "manual", "critical_overflow"] = "auto"
    compression_ratio: float = 0.0
    model_used: Opt[str] = None
    latency_ms: U64 = 0
    # The integer widths of these are unknown; they are unsigned.
    actual_summary_tokens: Missing[U64] = None
    source_tokens: Missing[U64] = None
    fixed_prompt_tokens: Missing[U64] = None
    target_summary_tokens: Missing[U64] = None
    summary_target_ratio: Missing[float] = None
    actual_summary_ratio: Missing[float] = None
    summary_budget_clamped: Missing[bool] = None
    summary_budget_clamp_reason: Opt[str] = None
    summarization_map_calls: Missing[U64] = None
    summarization_reduce_calls: Missing[U64] = None
    summarization_fallback_used: Missing[bool] = None


class PromptSnapshot(Record):
    """The system prompt that was sent, and its sections."""

    base_system_prompt: str
    enhancement_prompt: Opt[str] = None
    project_context: Opt[str] = None
    workspace_context: Opt[str] = None
    instruction_context: Opt[str] = None
    env_context: Opt[str] = None
    skill_context: Opt[str] = None
    tool_guide_context: Opt[str] = None
    dream_notebook: Opt[str] = None
    session_memory_note: Opt[str] = None
    project_memory_index: Opt[str] = None
    relevant_durable_memories: Opt[str] = None
    project_dream: Opt[str] = None
    global_dream_fallback: Opt[str] = None
    prompt_memory_observability: Opt[Any] = None
    external_memory: Opt[str] = None
    task_list: Opt[str] = None
    effective_system_prompt: str
