"""Records load what the owning agent would load, and dump what it would write."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from store.model.message import TOOL_OUTPUT_HEAD_BYTES, TOOL_OUTPUT_LIMIT_BYTES, TOOL_OUTPUT_TAIL_BYTES
from store.model.session import (
    ALIASES,
    MIRRORED,
    AgentRuntimeState,
    BudgetStrategy,
    CompressionEvent,
    ConversationSummary,
    FunctionCall,
    IndexEntry,
    Message,
    MessagePart,
    PendingQuestion,
    ProviderModelRef,
    Record,
    Session,
    SessionRuntimeMetadata,
    TaskItem,
    TaskList,
    Timestamp,
    TokenBudget,
    TokenBudgetUsage,
    ToolCall,
    cut_tool_output,
    mirror_text,
)

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

# FORMATS A.11
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
    """The paths at which `document` is refused; loading it must fail."""
    with pytest.raises(ValidationError) as caught:
        record.model_validate(document)
    return [error["loc"] for error in caught.value.errors()]


# --- loading and dumping -----------------------------------------------------------------------------


def test_sample_session_round_trips_in_order() -> None:
    """Rule 5: the 6.20-era sample dumps to the same members, values and order."""
    dump = Session.model_validate(copy.deepcopy(SAMPLE)).model_dump()
    assert json.dumps(dump) == json.dumps(SAMPLE)


def test_sample_sidecar_round_trips() -> None:
    """runtime.json is the same record with no messages."""
    sidecar = {**SAMPLE, "messages": []}
    assert Session.model_validate(sidecar).model_dump() == sidecar


def test_minimal_session_loads_with_defaults() -> None:
    """Four members are enough; the rest has the defaults an agent would assume."""
    assert make_session().model_dump() == {
        "id": "s-min",
        "title": "",
        "pinned": False,
        "title_version": 0,
        "metadata_version": 0,
        "kind": "root",
        "root_session_id": "",
        "spawn_depth": 0,
        "messages": [],
        "created_at": "2025-01-01T00:00:00Z",
        "updated_at": "2025-01-01T00:00:00Z",
        "model": "",
    }


@pytest.mark.parametrize("member", ["id", "messages", "created_at", "updated_at"])
def test_required_members_are_required(member: str) -> None:
    """A session without one of the four is refused at that member."""
    document = {key: value for key, value in MINIMAL.items() if key != member}
    assert errors_of(Session, document) == [(member,)]


def test_unknown_members_survive_everywhere() -> None:
    """Rule 5: what we do not know is kept, at the top and deep inside, underscore or not."""
    unknown = {"x": [1, None, {"y": 2.5}]}
    session = make_session(
        future=unknown,
        _bamboo_main_authority={"schema": 1, "proof": "ab"},
        last_run_status="not our accessor",
        messages=[{"role": "user", "content": "hi", "future": unknown}],
    )
    dump = session.model_dump()
    assert dump["future"] == unknown
    assert dump["_bamboo_main_authority"] == {"schema": 1, "proof": "ab"}
    assert dump["last_run_status"] == "not our accessor"
    assert dump["messages"][0]["future"] == unknown
    assert Session.model_validate(dump).model_dump() == dump


def test_an_unknown_member_with_the_name_of_an_accessor_stays_apart() -> None:
    """The accessor neither reads nor writes a member of its name that some agent put at the top."""
    session = make_session(last_run_status="not ours")
    assert session.last_run_status is None
    session.last_run_status = "completed"
    assert session.metadata == {"last_run_status": "completed"}
    assert session.model_dump()["last_run_status"] == "not ours"
    session.last_run_status = None
    assert session.model_dump() == make_session(last_run_status="not ours").model_dump()


def test_later_members_are_kept_but_never_invented() -> None:
    """What only newer agents write is not in a new document, and stays in one that has it."""
    state = {
        **SAMPLE["agent_runtime_state"],
        "stop_hook_forced_continuations": 0,
        "read_only": False,
        "no_human_approver": False,
        "waiting_for_bash": {"bash_ids": ["b1"], "registered_at": NOW},
        "hook_contexts": ["c"],
    }
    later = {
        "title_generated": False,
        "root_orchestration_only": True,
        "root_tool_authority_revision": 2,
        "root_mode_transition_epoch": 3,
        "root_mode_operations": [{"receipt": 1}],
        "authority_identity": {"supervisor": {"id": 1}},
        "supervisor_management": {"a": 1},
        "model_context_state": {"schema_version": 1},
        "provider_transcript": {"items": []},
        "agent_runtime_state": state,
    }
    dump = make_session(**later).model_dump()
    assert {key: dump[key] for key in later} == later
    assert not later.keys() & make_session().model_dump().keys()
    assert not {"read_only", "no_human_approver", "stop_hook_forced_continuations"} & (
        AgentRuntimeState.new("r").model_dump().keys()
    )


def test_null_reads_as_absent_for_options() -> None:
    """null in an Option member is None and is not written again."""
    options = [
        "parent_session_id",
        "task_list",
        "pending_question",
        "model_ref",
        "reasoning_effort",
        "token_budget",
        "token_usage",
        "conversation_summary",
        "prompt_snapshot",
        "compression_instructions",
        "agent_runtime_state",
        "runtime_metadata",
        "workspace",
    ]
    session = make_session(**dict.fromkeys(options))
    assert session == make_session()
    assert not set(options) & session.model_dump().keys()


@pytest.mark.parametrize(
    "member",
    [
        "id",
        "title",
        "pinned",
        "title_version",
        "title_generated",
        "metadata_version",
        "kind",
        "root_session_id",
        "spawn_depth",
        "messages",
        "created_at",
        "updated_at",
        "model",
        "metadata",
        "compression_events",
        "root_orchestration_only",
    ],
)
def test_null_is_an_error_for_other_members(member: str) -> None:
    """null where serde has no Option is refused, even if a missing member would be fine."""
    assert errors_of(Session, {**MINIMAL, member: None}) == [(member,)]


@pytest.mark.parametrize(
    ("member", "bad"),
    [
        ("kind", "grandchild"),
        ("kind", "Root"),
        ("reasoning_effort", "High"),
        ("reasoning_effort", "minimal"),
        ("title_version", -1),
        ("title_version", U64_MAX + 1),
        ("title_version", 3.0),
        ("title_version", "3"),
        ("title_version", True),
        ("spawn_depth", 2**32),
        ("pinned", 1),
        ("pinned", "true"),
        ("title", 5),
        ("created_at", "yesterday"),
        ("created_at", "2026-02-30T00:00:00Z"),
        ("created_at", 1750000000),
        ("messages", {}),
        ("compression_events", [1]),
    ],
)
def test_wrong_values_are_refused(member: str, bad: object) -> None:
    """Rule 6: what serde would refuse is refused here, at the member."""
    assert errors_of(Session, {**MINIMAL, member: bad})[0][0] == member


def test_largest_integers_are_kept() -> None:
    """u64 and u32 go to their last value, exactly."""
    session = make_session(title_version=U64_MAX, spawn_depth=2**32 - 1)
    assert (session.title_version, session.model_dump()["spawn_depth"]) == (U64_MAX, 2**32 - 1)


def test_metadata_values_must_be_strings() -> None:
    """One value that is no string spoils the document, and the error says which."""
    assert errors_of(Session, {**MINIMAL, "metadata": {"a": "x", "n": 1}}) == [("metadata", "n")]
    assert errors_of(Session, {**MINIMAL, "metadata": {"a": None}}) == [("metadata", "a")]


def test_integers_are_fine_in_float_members_but_nan_is_not() -> None:
    """`50` reads as 50.0; JSON has no NaN."""
    event = {"id": "e", "created_at": NOW, "messages_compressed": 1, "segments_removed": 1}
    assert CompressionEvent.model_validate({**event, "usage_before_percent": 50}).usage_before_percent == 50.0
    assert errors_of(CompressionEvent, {**event, "usage_before_percent": float("nan")})
    assert errors_of(CompressionEvent, {**event, "usage_before_percent": True})


def test_timestamps_keep_their_text() -> None:
    """Rule 5: nine digits and any offset come out as they went in."""
    session = make_session(created_at="2026-06-20T08:15:30.120000000+08:00")
    assert isinstance(session.created_at, Timestamp)
    assert session.model_dump()["created_at"] == "2026-06-20T08:15:30.120000000+08:00"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), U64_MAX) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": st.text()},
        optional={
            "id": st.text(min_size=1),
            "reasoning": st.text(),
            "phase": st.sampled_from(["commentary", "final_answer"]),
            "tool_call_id": st.text(),
            "tool_success": st.booleans(),
            "compressed": st.just(True),
            "compression_level": st.integers(1, 255),
            "content_parts": st.lists(st.builds(lambda text: {"type": "text", "text": text}, st.text()), max_size=3),
            "created_at": st.integers(0, 4 * 10**18).map(lambda ns: str(Timestamp.from_ns(ns))),
            "metadata": json_values.filter(lambda value: value is not None),
            "from_the_future": json_values,
        },
    )
)
def test_messages_round_trip(document: dict[str, Any]) -> None:
    """Whatever a message holds, known or not, dumping gives it back."""
    assert Message.model_validate(document).model_dump() == document


# --- aliases -----------------------------------------------------------------------------------------


def test_aliases_are_read_and_written_by_name() -> None:
    """todo_list, activeForm and ref are read; the dump has the names of today."""
    items = [
        {
            "id": "1",
            "description": "d",
            "status": "pending",
            "activeForm": "doing",
            "evidence": [{"summary": "s", "ref": "a.rs:1"}],
        }
    ]
    todo = {"session_id": "s", "title": "T", "items": items, "created_at": NOW, "updated_at": NOW}
    session = make_session(todo_list=todo)
    assert session.task_list is not None
    item = session.task_list.items[0]
    assert (item.active_form, item.evidence[0].reference) == ("doing", "a.rs:1")
    dump = session.model_dump()
    assert "todo_list" not in dump
    assert dump["task_list"]["items"][0]["active_form"] == "doing"
    assert dump["task_list"]["items"][0]["evidence"][0]["reference"] == "a.rs:1"
    assert ALIASES == {"task_list": "todo_list", "active_form": "activeForm", "reference": "ref"}


def test_both_spellings_at_once_are_a_duplicate() -> None:
    """Name and alias together are refused where serde says "duplicate field"."""
    assert errors_of(Session, {**MINIMAL, "task_list": None, "todo_list": None}) == [()]
    item = {"id": "1", "description": "d", "status": "pending", "activeForm": "a", "active_form": "a"}
    assert errors_of(TaskItem, item) == [()]
    evidence = [{"summary": "s", "ref": "a", "reference": "a"}]
    proven = {"id": "1", "description": "d", "status": "pending", "evidence": evidence}
    assert errors_of(TaskItem, proven) == [("evidence", 0)]


def test_errors_below_an_alias_name_the_spelling_in_the_text() -> None:
    """The path of an error can be walked in the document as it is written."""
    assert errors_of(Session, {**MINIMAL, "todo_list": {"items": 1}})[0][0] == "todo_list"


def test_an_alias_of_another_record_is_just_unknown() -> None:
    """`ref` means something in evidence only."""
    assert make_session(ref="x").model_dump()["ref"] == "x"


# --- messages ----------------------------------------------------------------------------------------


def test_message_without_identity_stays_without() -> None:
    """No id and no time are invented on load, which would differ at every load."""
    message = make_message()
    assert (message.id, message.created_at) == (None, None)
    assert message.model_dump() == {"role": "user", "content": "hi"}


def test_message_with_empty_id_is_written_without() -> None:
    """The empty id is the one that serde leaves out."""
    assert "id" not in make_message(id="").model_dump()


def test_null_identity_of_a_message_is_refused() -> None:
    """id and created_at may be missing but not null."""
    assert errors_of(Message, {"role": "user", "content": "", "id": None}) == [("id",)]
    assert errors_of(Message, {"role": "user", "content": "", "created_at": None}) == [("created_at",)]


@pytest.mark.parametrize(
    "bad",
    [
        {"role": "developer"},
        {"content": None},
        {"phase": "final"},
        {"compression_level": 256},
        {"compression_level": -1},
        {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "n", "arguments": {}}}]},
        {"tool_calls": [{"id": "1", "function": {"name": "n", "arguments": ""}}]},
        {"image_ocr": [{"image_url": "u", "lines": [{"text": "t", "left": 2**31}]}]},
    ],
)
def test_bad_messages_are_refused(bad: dict[str, Any]) -> None:
    """Rule 6, inside a message."""
    assert errors_of(Message, {"role": "user", "content": "hi", **bad})


def test_empty_lists_of_a_message_are_written() -> None:
    """content_parts, image_ocr and tool_calls are Options: an empty list is not nothing."""
    document = {"role": "user", "content": "", "content_parts": [], "image_ocr": [], "tool_calls": []}
    assert Message.model_validate(document).model_dump() == document


def test_ocr_results_omit_what_is_empty() -> None:
    """Lines and error are left out; coordinates may be negative."""
    line = {"text": "t", "left": -1, "top": 0, "width": 1, "height": 2**31 - 1}
    document = {
        "role": "user",
        "content": "",
        "image_ocr": [{"image_url": "u"}, {"image_url": "v", "lines": [line]}],
    }
    assert Message.model_validate(document).model_dump() == document


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text"},
        {"type": "text", "text": None},
        {"type": "image_url", "text": "x"},
        {"type": "audio", "audio": "x"},
        {"text": "x"},
    ],
)
def test_a_part_needs_what_its_type_names(part: dict[str, Any]) -> None:
    """The path of the error has no union tag in it."""
    message = {"role": "user", "content": "", "content_parts": [{"type": "text", "text": "ok"}, part]}
    path = errors_of(Session, {**MINIMAL, "messages": [message]})[0]
    assert path[:4] == ("messages", 0, "content_parts", 1)
    assert path[4:] in ((), ("type",))


def test_base64_inside_a_part_is_legal() -> None:
    """A data URL may hold the image itself."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "high"}}
    assert MessagePart.model_validate(part).model_dump() == part


def test_constructors_set_identity_and_phase() -> None:
    """Every new message has an id of its own and a time; assistants have a phase."""
    call = ToolCall(id="c", type="function", function=FunctionCall(name="Read", arguments="{}"))
    made = [
        Message.user("u"),
        Message.system("s"),
        Message.assistant("a"),
        Message.assistant("a", []),
        Message.assistant("a", [call]),
        Message.tool_result("c", "out"),
        Message.tool_result("c", "out", success=False),
    ]
    assert [m.role for m in made] == ["user", "system", *["assistant"] * 3, "tool", "tool"]
    assert [m.phase for m in made] == [None, None, "final_answer", "final_answer", "commentary", None, None]
    assert [m.tool_success for m in made[5:]] == [True, False]
    assert len({m.id for m in made}) == len(made)
    assert all(m.created_at is not None for m in made)


def test_images_of_a_tool_become_data_urls() -> None:
    """Each image is a part; without images there are no parts."""
    message = Message.tool_result_with_images("c", "out", [("image/png", "QUJD")], success=False)
    assert message.model_dump()["content_parts"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    ]
    assert message.tool_success is False
    assert Message.tool_result_with_images("c", "out", []).content_parts is None


# --- tool output -------------------------------------------------------------------------------------


def test_tool_output_at_the_limit_is_kept() -> None:
    """262144 bytes are not too many, one more is."""
    whole = "a" * TOOL_OUTPUT_LIMIT_BYTES
    assert cut_tool_output(whole) is whole
    cut = cut_tool_output(whole + "b")
    assert cut == (
        "a" * 163840
        + "\n\n[... tool output truncated ...] original=262145 bytes"
        + " omitted=32769 bytes kept=229376 bytes\n\n"
        + "a" * 65535
        + "b"
    )


def test_the_limit_counts_bytes_not_characters() -> None:
    """131072 two-byte characters fit exactly; 131073 do not."""
    assert cut_tool_output("é" * 131_072) == "é" * 131_072
    assert "truncated" in cut_tool_output("é" * 131_073)


@pytest.mark.parametrize("character", ["é", "€", "🌳"])
@pytest.mark.parametrize("shift", range(4))
def test_cuts_fall_between_characters(character: str, shift: int) -> None:
    """The head ends earlier and the tail starts later rather than halve a character."""
    content = "x" * shift + character * 140_000 + "y" * shift
    data = content.encode()
    head, marker, tail = cut_tool_output(content).split("\n\n")
    head_bytes, tail_bytes = len(head.encode()), len(tail.encode())
    width = len(character.encode())
    assert TOOL_OUTPUT_HEAD_BYTES - width < head_bytes <= TOOL_OUTPUT_HEAD_BYTES
    assert TOOL_OUTPUT_TAIL_BYTES - width < tail_bytes <= TOOL_OUTPUT_TAIL_BYTES
    assert data.startswith(head.encode())
    assert data.endswith(tail.encode())
    kept = head_bytes + tail_bytes
    numbers = f"original={len(data)} bytes omitted={len(data) - kept} bytes kept={kept} bytes"
    assert marker == f"[... tool output truncated ...] {numbers}"


def test_only_tool_messages_are_cut_and_the_callers_stays_whole() -> None:
    """A user may paste as much as they like; the tool's own message object is not changed."""
    session, long = Session.new("s"), "x" * 300_000
    user, tool = Message.user(long), Message.tool_result("c", long)
    session.add_message(user)
    session.add_message(tool)
    assert session.messages[0] is user
    assert session.messages[1].id == tool.id
    assert len(session.messages[1].content) < 262_144
    assert (len(user.content), len(tool.content)) == (300_000, 300_000)


# --- session -----------------------------------------------------------------------------------------


def test_new_root() -> None:
    """A new root is what a 6.20 agent would write."""
    session = Session.new("r", "m")
    assert session.created_at == session.updated_at
    assert session.model_dump() == {
        "id": "r",
        "title": "New Session",
        "pinned": False,
        "title_version": 0,
        "metadata_version": 0,
        "kind": "root",
        "root_session_id": "r",
        "spawn_depth": 0,
        "messages": [],
        "created_at": session.created_at,
        "updated_at": session.created_at,
        "model": "m",
    }


def test_new_children() -> None:
    """A child knows its parent and its root; a child's child lies one deeper under the same root."""
    child = Session.new_child("c", "r", "m", "Child")
    grandchild = Session.new_child_of("g", child, "m", "Grandchild")
    assert [(s.kind, s.parent_session_id, s.root_session_id, s.spawn_depth, s.title) for s in (child, grandchild)] == [
        ("child", "r", "r", 1, "Child"),
        ("child", "c", "r", 2, "Grandchild"),
    ]


def test_child_of_an_old_root_and_of_the_deepest_session() -> None:
    """A root from before root_session_id is its own root; the depth stops at the largest u32."""
    assert Session.new_child_of("c", make_session(), "m", "t").root_session_id == "s-min"
    deepest = make_session(spawn_depth=2**32 - 1)
    assert Session.new_child_of("c", deepest, "m", "t").spawn_depth == 2**32 - 1


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.add_message(Message.user("x")),
        lambda s: s.set_task_list(make_task_list()),
        lambda s: s.update_task_item("t1", "in_progress"),
        lambda s: s.set_pending_question(
            PendingQuestion(tool_call_id="c", question="?", options=[], allow_custom=True)
        ),
        lambda s: s.clear_pending_question(),
    ],
)
def test_changes_move_updated_at_forward_always(change: Any) -> None:
    """updated_at becomes now, or one nanosecond more than a value from the future."""
    for updated_at in ("2025-01-01T00:00:00Z", "2999-01-01T00:00:00.000000009Z"):
        session = make_session(updated_at=updated_at, task_list=make_task_list().model_dump())
        change(session)
        assert session.updated_at.ns > Timestamp(updated_at).ns
    assert session.updated_at == "2999-01-01T00:00:00.000000010Z"


def test_pending_question() -> None:
    """A question is pending while it is there; the empty tool name is left out, the source never."""
    session = Session.new("s")
    assert not session.has_pending_question()
    question = {"tool_call_id": "c", "question": "?", "options": ["a"], "allow_custom": False}
    session.set_pending_question(PendingQuestion.model_validate(question))
    assert session.has_pending_question()
    assert session.model_dump()["pending_question"] == {**question, "source": "pause_tool"}
    session.clear_pending_question()
    assert not session.has_pending_question()
    assert "pending_question" not in session.model_dump()
    assert errors_of(PendingQuestion, {**question, "source": "nobody"}) == [("source",)]


def test_clear_derived_context_state() -> None:
    """What was computed from the messages goes; the rest, and updated_at, stays."""
    session = make_session(
        token_usage=USAGE,
        conversation_summary={
            "created_at": NOW,
            "updated_at": NOW,
            "content": "c",
            "message_count": 1,
            "token_count": 1,
        },
        compression_events=[{"id": "e", "created_at": NOW, "messages_compressed": 1, "segments_removed": 1}],
        model_context_state={"schema_version": 1},
        metadata={"responses.previous_response_id": "r", "keep": "me"},
        messages=[{"role": "user", "content": "", "compressed": True, "compressed_by_event_id": "e"}],
    )
    session.clear_derived_context_state()
    assert session == make_session(metadata={"keep": "me"}, messages=[{"role": "user", "content": ""}])


def test_stale_root_budget_is_dropped_from_roots_only() -> None:
    """A child's budget is its own, a root's is a leftover."""
    budget = {"max_context_tokens": 1, "max_output_tokens": 1, "strategy": {"window": {"size": 1}}}
    root, child = make_session(token_budget=budget), make_session(token_budget=budget, kind="child")
    for session in (root, child):
        session.clear_stale_root_token_budget()
    assert root.token_budget is None
    assert child.token_budget is not None


def test_origin_is_not_content() -> None:
    """Where a session was loaded from is carried by copies, but neither dumped nor compared."""
    session, other = make_session(), make_session()
    session._origin = ("version", 7)
    assert session == other
    assert "_origin" not in session.model_dump()
    for copied in (session.model_copy(), session.model_copy(deep=True), copy.copy(session)):
        assert copied._origin == ("version", 7)
    assert other._origin is None


def test_sessions_differ_by_members_known_and_unknown() -> None:
    """Equality is of everything that is stored, and of sessions only."""
    assert make_session() != make_session(title="x")
    assert make_session() != make_session(unknown=1)
    assert make_session() != MINIMAL
    with pytest.raises(TypeError):
        hash(make_session())


# --- tasks -------------------------------------------------------------------------------------------


def test_very_old_task_items_load() -> None:
    """Three members are enough; the defaults that serde writes are in the dump."""
    assert make_task_list().model_dump()["items"] == [
        {
            "id": "t1",
            "description": "do it",
            "status": "pending",
            "depends_on": [],
            "notes": "",
            "phase": "execution",
            "priority": "medium",
        }
    ]


@pytest.mark.parametrize(
    "bad",
    [
        {"status": "done"},
        {"phase": "later"},
        {"priority": "urgent"},
        {"evidence": [{"kind": "rumour", "summary": ""}]},
        {"blockers": [{"kind": "weather", "summary": ""}]},
        {"transitions": [{"from_status": "pending", "to_status": "gone", "changed_at": NOW}]},
    ],
)
def test_unknown_task_words_are_refused(bad: dict[str, Any]) -> None:
    """Every word of a task list is one of a fixed few."""
    assert errors_of(TaskItem, {"id": "1", "description": "d", "status": "pending", **bad})


def test_moving_a_task_adds_notes_and_a_transition() -> None:
    """The status changes, the notes grow by a line, and the change is recorded with its reason."""
    session = make_session(task_list=make_task_list(notes="first").model_dump())
    item = session.update_task_item("t1", "blocked", "  no network  ", round=3)
    assert (item.status, item.notes) == ("blocked", "first\nno network")
    (transition,) = item.transitions
    assert (transition.from_status, transition.to_status) == ("pending", "blocked")
    assert (transition.reason, transition.round) == ("no network", 3)
    assert session.task_list is not None
    assert session.task_list.updated_at.ns > Timestamp(NOW).ns


def test_the_same_status_again_is_no_transition() -> None:
    """Only the notes grow."""
    item = make_session(task_list=make_task_list().model_dump()).update_task_item("t1", "pending", "still")
    assert (item.notes, item.transitions) == ("still", [])


@pytest.mark.parametrize(
    "completed",
    [["Tests pass", "Docs written"], ["c1", "C2"], ["criterion_1", "criterion-2"], [" tests   PASS ", "c2"]],
)
def test_all_criteria_named_completes_the_task(completed: list[str]) -> None:
    """Criteria are named by text, whatever its case and spaces, or by number."""
    task_list = make_task_list(completion_criteria=["Tests pass", " docs  written "])
    session = make_session(task_list=task_list.model_dump())
    assert session.update_task_item("t1", "completed", completed_criteria=completed).status == "completed"


@pytest.mark.parametrize(("completed", "missing"), [(None, "a | b"), ([], "a | b"), (["A"], "b"), (["c2", "c9"], "a")])
def test_unmet_criteria_keep_the_task_in_progress(completed: list[str] | None, missing: str) -> None:
    """The completion gate holds the task and says what is missing."""
    session = make_session(task_list=make_task_list(completion_criteria=["a", " b "]).model_dump())
    item = session.update_task_item("t1", "completed", "done, I think", completed_criteria=completed)
    assert item.status == "in_progress"
    assert item.notes == (
        f"done, I think\nCompletion criteria not fully met; keeping task in_progress. Missing: {missing}"
    )


def test_a_task_without_criteria_completes() -> None:
    """No criteria, no gate."""
    session = make_session(task_list=make_task_list().model_dump())
    assert session.update_task_item("t1", "completed").status == "completed"


def test_a_missing_task_is_an_error_and_changes_nothing() -> None:
    """No list, or no such item: LookupError, updated_at as before."""
    for session in (make_session(), make_session(task_list=make_task_list().model_dump())):
        before = session.model_dump()
        with pytest.raises(LookupError, match="no task item"):
            session.update_task_item("nope", "completed")
        assert session.model_dump() == before


# --- budget, summary, runtime state ------------------------------------------------------------------


def test_budget_defaults_are_written() -> None:
    """A budget of three members dumps with the eleven others."""
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
def test_a_strategy_is_exactly_one_kind(strategy: object) -> None:
    """None, two, or an unknown kind are refused, at a plain path."""
    budget = {"max_context_tokens": 1, "max_output_tokens": 1, "strategy": strategy}
    assert errors_of(TokenBudget, budget)[0][0] == "strategy"


def test_usage_dumps_all_its_numbers() -> None:
    """An old usage with only the required members is written with twelve."""
    defaulted = {"max_context_tokens", "thinking_tokens", "cache_read_input_tokens"}
    old = {key: value for key, value in USAGE.items() if not (key in defaulted or key.startswith("prompt"))}
    assert list(TokenBudgetUsage.model_validate(old).model_dump()) == list(USAGE)
    assert errors_of(TokenBudgetUsage, {**USAGE, "total_tokens": 2**32}) == [("total_tokens",)]


def test_summaries_and_events_gain_no_later_members() -> None:
    """The additions of newer agents appear only where they were."""
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


def test_new_runtime_state_is_what_an_older_agent_can_read() -> None:
    """Every number that a 6.20 agent requires is there, and nothing newer."""
    assert AgentRuntimeState.new("run").model_dump() == {
        **SAMPLE["agent_runtime_state"],
        "run_id": "run",
        "status": "idle",
        "round": dict.fromkeys(SAMPLE["agent_runtime_state"]["round"], 0),
        "tools": {"schemas_resolved": False, "disabled_tool_count": 0, "active_tool_calls": 0},
    }


def test_runtime_state_of_two_members_loads() -> None:
    """version and run_id are enough."""
    state = AgentRuntimeState.model_validate({"version": 1, "run_id": "r"})
    assert state == AgentRuntimeState.new("r")


@pytest.mark.parametrize("round_", [{}, {"current_round": 1}, {"max_rounds": None}, {"total_tool_calls": 2}])
def test_whatever_is_missing_from_a_round_stays_missing(round_: dict[str, Any]) -> None:
    """Versions disagree about a round, so nothing in it is required and nothing is supplied."""
    state = AgentRuntimeState.model_validate({"version": 1, "run_id": "r", "round": round_})
    assert state.round.model_dump() == {key: value for key, value in round_.items() if value is not None}


def test_old_children_lists_are_kept() -> None:
    """Dropping them is not the record's business."""
    children = {"active_children": 1, "active_ids": ["c"]}
    state = AgentRuntimeState.model_validate({"version": 1, "run_id": "r", "children": children})
    assert state.model_dump()["children"] == children


@pytest.mark.parametrize(
    "bad",
    [
        {"status": "sleeping"},
        {"round": None},
        {"children": None},
        {"tools": {}},
        {"permission_mode": "yolo"},
        {"permission_mode": None},
        {"stop_hook_forced_continuations": 256},
        {"waiting_for_children": {"wait_for": "some", "registered_at": NOW}},
        {"plan_mode": {"entered_at": NOW, "pre_permission_mode": "default", "status": "dreaming"}},
        {"suspension": {"reason": "r"}},
        {"checkpoints": [{}]},
    ],
)
def test_bad_runtime_states_are_refused(bad: dict[str, Any]) -> None:
    """Rule 6, inside the runtime state."""
    assert errors_of(AgentRuntimeState, {"version": 1, "run_id": "r", **bad})


def test_permission_mode_and_its_older_form_agree() -> None:
    """bypass_permissions alone means bypass; setting a mode sets both; the default is not written."""
    session = Session.new("s")
    assert session.effective_permission_mode() == "default"
    session.set_permission_mode("default")
    assert session.agent_runtime_state is None
    session.set_permission_mode("auto")
    state = session.agent_runtime_state
    assert state is not None
    assert (state.permission_mode, state.bypass_permissions) == ("auto", True)
    assert session.effective_permission_mode() == "auto"
    session.set_permission_mode("default")
    assert state.bypass_permissions is False
    assert "permission_mode" not in state.model_dump()
    state.bypass_permissions = True
    assert session.effective_permission_mode() == "bypass"
    state.permission_mode = "default"
    assert session.effective_permission_mode() == "bypass"
    assert "permission_mode" not in state.model_dump()


def test_model_ref_shows_as_provider_and_model() -> None:
    """The display form is provider/model."""
    assert str(ProviderModelRef(provider="anthropic", model="claude/4")) == "anthropic/claude/4"
    assert errors_of(ProviderModelRef, {"provider": "x"}) == [("model",)]


# --- values that lie in two places -------------------------------------------------------------------

TEXT_FIELDS = sorted(MIRRORED.keys() - {"pending_injected_messages", "selected_skill_ids", "root_orchestration_prompt"})


def attribute_of(field: str) -> str:
    return "runtime_reasoning_effort" if field == "reasoning_effort" else field


@pytest.mark.parametrize("field", TEXT_FIELDS)
def test_text_values_are_written_and_cleared_in_both_places(field: str) -> None:
    """Write both, read typed first, clear both; runtime_metadata goes when it is empty."""
    session, name = Session.new("s"), attribute_of(field)
    assert getattr(session, name) is None
    setattr(session, name, "v")
    assert session.model_dump()["runtime_metadata"] == {field: "v"}
    assert session.metadata == {MIRRORED[field]: "v"}
    assert getattr(session, name) == "v"
    setattr(session, name, None)
    assert (session.runtime_metadata, session.metadata) == (None, {})
    setattr(session, name, "w")
    delattr(session, name)
    assert (session.runtime_metadata, session.metadata, getattr(session, name)) == (None, {}, None)


@pytest.mark.parametrize("field", TEXT_FIELDS)
def test_text_values_fall_back_to_metadata(field: str) -> None:
    """The typed value wins, even an empty one; without it the text counts."""
    session, name = make_session(metadata={field: "old"}), attribute_of(field)
    assert getattr(session, name) == "old"
    session.runtime_metadata = SessionRuntimeMetadata.model_validate({field: ""})
    assert getattr(session, name) == ""


def test_clearing_keeps_what_else_is_there() -> None:
    """runtime_metadata stays while it holds another value, known or not."""
    session = make_session(runtime_metadata={"last_run_status": "x", "future": 1}, metadata={"other": "y"})
    session.last_run_status = None
    assert session.model_dump()["runtime_metadata"] == {"future": 1}
    assert session.metadata == {"other": "y"}


def test_lists_are_mirrored_as_compact_json() -> None:
    """The legacy form of a list is its JSON text, not escaped."""
    session = Session.new("s")
    session.selected_skill_ids = ["ä", "b"]
    session.pending_injected_messages = [{"content": "hi", "n": 1}]
    assert session.metadata == {
        "selected_skill_ids": '["ä","b"]',
        "pending_injected_messages": '[{"content":"hi","n":1}]',
    }
    session.runtime_metadata = None
    assert session.selected_skill_ids == ["ä", "b"]
    assert session.pending_injected_messages == [{"content": "hi", "n": 1}]


@pytest.mark.parametrize("text", ["", "nonsense", "{}", "[1"])
def test_malformed_lists_in_metadata(text: str) -> None:
    """Pending messages read as an empty list, which is something; skill ids as nothing."""
    session = make_session(metadata={"pending_injected_messages": text, "selected_skill_ids": text})
    assert session.pending_injected_messages == []
    assert session.has_pending_injected_messages()
    assert session.selected_skill_ids is None


def test_skill_ids_that_are_no_strings_read_as_nothing() -> None:
    """A list of something else is malformed too."""
    assert make_session(metadata={"selected_skill_ids": "[1]"}).selected_skill_ids is None


def test_pending_injected_messages_in_either_place() -> None:
    """An empty list counts as pending, no key does not."""
    assert not make_session().has_pending_injected_messages()
    assert make_session(runtime_metadata={"pending_injected_messages": []}).has_pending_injected_messages()
    assert make_session(metadata={"pending_injected_messages": "[]"}).has_pending_injected_messages()


def test_a_false_flag_is_a_cleared_one() -> None:
    """true is written to both places; false removes it from both."""
    session = Session.new("s")
    session.root_orchestration_prompt = True
    assert session.metadata == {"root_orchestration_prompt": "true"}
    assert session.model_dump()["runtime_metadata"] == {"root_orchestration_prompt": True}
    session.root_orchestration_prompt = False
    assert (session.runtime_metadata, session.metadata) == (None, {})
    assert make_session(metadata={"root_orchestration_prompt": "true"}).root_orchestration_prompt is True
    assert make_session(metadata={"root_orchestration_prompt": "yes"}).root_orchestration_prompt is None


def test_skill_mode_reads_an_older_key_and_never_writes_it() -> None:
    """`mode` is looked at last and left alone."""
    session = make_session(metadata={"mode": "oldest"})
    assert session.skill_mode == "oldest"
    session.skill_mode = "new"
    assert session.metadata == {"mode": "oldest", "skill_mode": "new"}
    session.runtime_metadata = None
    assert session.skill_mode == "new"


def test_runtime_reasoning_effort_is_not_the_sessions() -> None:
    """The session's own reasoning_effort is a member of its own."""
    session = make_session(reasoning_effort="high")
    session.runtime_reasoning_effort = "low"
    assert (session.reasoning_effort, session.metadata["reasoning_effort"]) == ("high", "low")


def test_accessors_are_no_members() -> None:
    """Setting one adds nothing to the top level of the document."""
    session = Session.new("s")
    before = session.model_dump().keys()
    session.workspace_path = "/w"
    assert session.model_dump().keys() - before == {"metadata", "runtime_metadata"}
    assert not session.model_extra


@pytest.mark.parametrize(
    ("value", "text"),
    [("v", "v"), ("", ""), (None, None), (True, "true"), (False, None), ([], "[]"), (["a"], '["a"]')],
)
def test_mirror_text(value: Any, text: str | None) -> None:
    """Strings verbatim, lists compact, true as text, nothing for false and None."""
    assert mirror_text("field", value) == text


def test_mirror_text_refuses_other_values() -> None:
    """A number has no mirror; setting one fails before anything changed."""
    session = Session.new("s")
    with pytest.raises(TypeError, match="last_run_status cannot be a int"):
        session.last_run_status = 5  # type: ignore[assignment]
    assert (session.runtime_metadata, session.metadata) == (None, {})


def test_mirrored_fields_exist_in_the_typed_record() -> None:
    """Every row of MIRRORED names a typed field."""
    assert MIRRORED.keys() <= SessionRuntimeMetadata.model_fields.keys()


# --- index entry -------------------------------------------------------------------------------------


def test_sample_entry_is_made_from_the_sample_session() -> None:
    """The A.11 entry comes out, in its order, plus the workspace_path that later indexes add."""
    entry = make_entry(Session.model_validate(copy.deepcopy(SAMPLE)), has_attachments=True)
    dump = entry.model_dump()
    assert dump.pop("workspace_path") == "/home/me/src"
    assert json.dumps(dump) == json.dumps(SAMPLE_ENTRY)


def test_sample_entry_round_trips() -> None:
    """An entry read from sessions.json dumps as it was; only the parent is ever null."""
    assert json.dumps(IndexEntry.model_validate(SAMPLE_ENTRY).model_dump()) == json.dumps(SAMPLE_ENTRY)


def test_identity_of_an_entry_is_its_place() -> None:
    """Rule 9: the path says who it is, whatever the document claims."""
    session = make_session(kind="root", root_session_id="liar", parent_session_id="p", spawn_depth=2)
    entry = make_entry(session, location_id="c", rel_path="sessions/r/children/c", kind="child", root_id="r")
    assert (entry.id, entry.kind, entry.root_session_id) == ("c", "child", "r")
    assert (entry.parent_session_id, entry.spawn_depth) == ("p", 2)


def test_entry_takes_known_metadata_untrimmed_unless_blank() -> None:
    """Blank values are left out, others kept with their spaces."""
    keys = [
        "created_by_schedule_id",
        "schedule_run_id",
        "lifecycle",
        "resident_name",
        "last_run_error",
        "subagent_type",
    ]
    filled = make_entry(make_session(metadata={key: f" {key} " for key in keys} | {"gold_config": " {} "}))
    assert {key: filled.model_dump()[key] for key in keys} == {key: f" {key} " for key in keys}
    assert filled.gold_config_json == " {} "
    blank = make_entry(
        make_session(metadata=dict.fromkeys([*keys, "gold_config", "workspace_path", "project_id"], " \n"))
    )
    assert blank == make_entry(make_session())


def test_entry_takes_runtime_values_by_accessor() -> None:
    """The typed value wins over the text, as everywhere; an empty typed one hides the text."""
    session = make_session(
        metadata={"last_run_status": "old", "last_run_error": "old", "project_id": "old"},
        runtime_metadata={"last_run_status": "new", "last_run_error": "", "project_id": "p"},
    )
    entry = make_entry(session)
    assert (entry.last_run_status, entry.last_run_error, entry.project_id) == ("new", None, "p")


def test_entry_mirrors_plan_mode_and_permissions() -> None:
    """They come from the runtime state; the mode appears only where the document has one."""
    session = Session.new("s")
    session.agent_runtime_state = AgentRuntimeState.new("r")
    session.agent_runtime_state.bypass_permissions = True
    plan = {"entered_at": NOW, "pre_permission_mode": "default", "status": "designing"}
    session = Session.model_validate(
        session.model_dump() | {"agent_runtime_state": {**session.agent_runtime_state.model_dump(), "plan_mode": plan}}
    )
    dump = make_entry(session).model_dump()
    assert (dump["plan_mode"], dump["bypass_permissions"]) == (plan, True)
    assert "permission_mode" not in dump
    session.set_permission_mode("auto")
    session.title_generated = False
    dump = make_entry(session).model_dump()
    assert (dump["permission_mode"], dump["title_generated"]) == ("auto", False)


@pytest.mark.parametrize(
    ("text", "placement"),
    [('{"kind":"ssh","host":"h"}', {"kind": "ssh", "host": "h"}), ("x", None), ("[]", None)],
)
def test_entry_reads_placement_from_json_text(text: str, placement: object) -> None:
    """Malformed text is no placement."""
    assert make_entry(make_session(metadata={"placement": text})).placement == placement
