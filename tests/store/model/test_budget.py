"""Token budgets, usage, summaries and compression events."""

import pytest

from store.model.budget import BudgetStrategy, CompressionEvent, ConversationSummary, TokenBudget, TokenBudgetUsage
from tests.store.model.samples import NOW, USAGE, errors_of


def test_budget_defaults_are_written() -> None:
    """A budget of three members dumps with the other eleven."""
    budget = TokenBudget(max_context_tokens=200_000, max_output_tokens=8192, strategy=BudgetStrategy.default())
    assert budget.model_dump() == {
        "max_context_tokens": 200_000,
        "max_output_tokens": 8192,
        "strategy": {"hybrid": {"window_size": 20, "enable_summarization": True}},
        "safety_margin": 1000,
        "compression_trigger_percent": 85,
        "compression_target_percent": 40,
        "working_reserve_tokens": 50_000,
        "fallback_trigger_percent": 75,
        "prompt_cache_min_tool_output_chars": 1200,
        "prompt_cache_head_chars": 280,
        "prompt_cache_tail_chars": 180,
        "prompt_cache_recent_user_turns": 2,
        "prompt_cache_recent_tool_chains": 2,
        "max_tool_output_tokens": 0,
    }


@pytest.mark.parametrize(
    "strategy",
    [
        {},
        "window",
        {"window": None},
        {"window": {"size": -1}},
        {"hybrid": {"window_size": 20}},
        {"window": {"size": 1}, "hybrid": {"window_size": 1, "enable_summarization": True}},
        {"sliding": {"size": 1}},
        {"window": {"size": 1}, "x": 1},
    ],
)
def test_strategy_has_exactly_one_kind(strategy: object) -> None:
    """No kind, two kinds or an unknown kind are rejected, at a plain JSON path."""
    budget = {"max_context_tokens": 1, "max_output_tokens": 1, "strategy": strategy}
    assert errors_of(TokenBudget, budget)[0][0] == "strategy"


def test_usage_dumps_all_numbers() -> None:
    """Usage with only the required members is written with all twelve."""
    defaulted = {"max_context_tokens", "thinking_tokens", "cache_read_input_tokens"}
    old = {key: value for key, value in USAGE.items() if not (key in defaulted or key.startswith("prompt"))}
    assert list(TokenBudgetUsage.model_validate(old).model_dump()) == list(USAGE)
    assert errors_of(TokenBudgetUsage, {**USAGE, "total_tokens": 2**32}) == [("total_tokens",)]


def test_summaries_and_events_gain_no_newer_members() -> None:
    """Members of newer agents are dumped only if they were loaded."""
    summary = {"created_at": NOW, "updated_at": NOW, "content": "c", "message_count": 1, "token_count": 1}
    assert ConversationSummary.model_validate(summary).model_dump() == summary
    assert ConversationSummary.model_validate({**summary, "target_ratio": 0}).target_ratio == 0.0
    assert errors_of(ConversationSummary, {**summary, "target_ratio": None}) == [("target_ratio",)]
    event = {"id": "e", "created_at": NOW, "messages_compressed": 1, "segments_removed": 1}
    assert CompressionEvent.model_validate(event).model_dump() == {
        **event,
        "usage_before_percent": 0.0,
        "usage_after_percent": 0.0,
        "summary_tokens": 0,
        "trigger_type": "auto",
        "compression_ratio": 0.0,
        "latency_ms": 0,
    }
    later = CompressionEvent.model_validate({**event, "kind": "summary", "retrieval_hits": 3}).model_dump()
    assert list(later)[:3] == ["id", "created_at", "kind"]
    assert later["retrieval_hits"] == 3
    assert errors_of(CompressionEvent, {**event, "kind": "other"}) == [("kind",)]
