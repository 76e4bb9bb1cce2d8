"""Sample documents for the tests of the records, and functions that load them."""

import copy
import json
from typing import Any

import pytest
from pydantic import ValidationError

from store.model.index_entry import IndexEntry
from store.model.message import Message
from store.model.record import Record
from store.model.session import Session
from store.model.tasks import TaskList

NOW = "2026-06-20T08:15:30.123456789Z"
ROOT = "7d3c1f0e-6a51-4c0e-9a5e-0b8d5f1d2c11"
U64_MAX = 2**64 - 1

MINIMAL = json.loads(
    '{"id":"s-min","messages":[],"created_at":"2025-01-01T00:00:00Z","updated_at":"2025-01-01T00:00:00Z"}'
)

USAGE = {
    "system_tokens": 900,
    "summary_tokens": 0,
    "window_tokens": 120,
    "total_tokens": 1020,
    "max_context_tokens": 200000,
    "budget_limit": 180000,
    "truncation_occurred": False,
    "segments_removed": 0,
    "prompt_cached_tool_outputs": 0,
    "prompt_cached_tool_tokens_saved": 0,
    "thinking_tokens": 0,
    "cache_read_input_tokens": 0,
}

# As written by Bamboo 6.20.
SAMPLE: dict[str, Any] = {
    "id": ROOT,
    "title": "Fix login bug",
    "pinned": False,
    "title_version": 1,
    "metadata_version": 1,
    "kind": "root",
    "root_session_id": ROOT,
    "spawn_depth": 0,
    "messages": [
        {
            "id": "0f6ce1b2-3c0f-4a0c-8a4e-3f3b0f0a0001",
            "role": "user",
            "content": "see picture",
            "content_parts": [
                {"type": "text", "text": "see picture"},
                {
                    "type": "image_url",
                    "image_url": {"url": f"bamboo-attachment://{ROOT}/5c2f7a54-9d1e-4c52-b1d8-7a1f8d1d0001"},
                },
            ],
            "created_at": NOW,
        },
        {
            "id": "0f6ce1b2-3c0f-4a0c-8a4e-3f3b0f0a0002",
            "role": "assistant",
            "content": "",
            "phase": "commentary",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "Read", "arguments": '{"path":"a.rs"}'},
                }
            ],
            "created_at": "2026-06-20T08:15:32Z",
        },
        {
            "id": "0f6ce1b2-3c0f-4a0c-8a4e-3f3b0f0a0003",
            "role": "tool",
            "content": "fn main() {}",
            "tool_call_id": "call_1",
            "tool_success": True,
            "created_at": "2026-06-20T08:15:32.500Z",
            "metadata": {"elapsed_ms": 12, "tool_name": "Read"},
        },
    ],
    "created_at": NOW,
    "updated_at": "2026-06-20T08:15:32.500Z",
    "model": "claude-sonnet-4",
    "model_ref": {"provider": "anthropic", "model": "claude-sonnet-4"},
    "reasoning_effort": "high",
    "metadata": {"last_run_status": "completed", "workspace_path": "/home/me/src"},
    "token_usage": USAGE,
    "agent_runtime_state": {
        "version": 1,
        "run_id": "run-1",
        "status": "completed",
        "round": {
            "current_round": 2,
            "max_rounds": 200,
            "total_tool_calls": 1,
            "total_prompt_tokens": 2000,
            "total_completion_tokens": 50,
        },
        "prompt": {},
        "tools": {"schemas_resolved": True, "disabled_tool_count": 0, "active_tool_calls": 0},
        "memory": {
            "external_memory_injected": False,
            "compression_events_count": 0,
            "overflow_recovery_total": 0,
            "overflow_recovery_consecutive": 0,
        },
        "llm": {},
        "children": {},
        "bypass_permissions": False,
    },
    "runtime_metadata": {"last_run_status": "completed", "workspace_path": "/home/me/src"},
}

SAMPLE_ENTRY: dict[str, Any] = {
    "id": ROOT,
    "kind": "root",
    "rel_path": f"sessions/{ROOT}",
    "title": "Fix login bug",
    "title_version": 1,
    "pinned": False,
    "parent_session_id": None,
    "root_session_id": ROOT,
    "spawn_depth": 0,
    "model": "claude-sonnet-4",
    "model_ref": {"provider": "anthropic", "model": "claude-sonnet-4"},
    "reasoning_effort": "high",
    "created_at": NOW,
    "updated_at": "2026-06-20T08:15:32.500Z",
    "last_activity_at": "2026-06-20T08:15:32.500Z",
    "message_count": 3,
    "has_attachments": True,
    "has_pending_question": False,
    "bypass_permissions": False,
    "last_run_status": "completed",
    "token_usage": USAGE,
}


def make_session(**members: Any) -> Session:
    return Session.model_validate({**copy.deepcopy(MINIMAL), **members})


def make_message(**members: Any) -> Message:
    return Message.model_validate({"role": "user", "content": "hi", **members})


def make_entry(session: Session, **arguments: Any) -> IndexEntry:
    usual: dict[str, Any] = {
        "location_id": session.id,
        "rel_path": f"sessions/{session.id}",
        "kind": "root",
        "root_id": session.id,
        "message_count": len(session.messages),
        "has_attachments": False,
    }
    return IndexEntry.of(session, **{**usual, **arguments})


def make_task_list(**item: Any) -> TaskList:
    members = {"id": "t1", "description": "do it", "status": "pending", **item}
    return TaskList.model_validate(
        {"session_id": "s", "title": "T", "items": [members], "created_at": NOW, "updated_at": NOW}
    )


def errors_of(record: type[Record], document: Any) -> list[tuple[int | str, ...]]:
    """The paths of the errors in `document`, which must be rejected."""
    with pytest.raises(ValidationError) as caught:
        record.model_validate(document)
    return [error["loc"] for error in caught.value.errors()]
