"""Session: loads what the owning agent loads and dumps what it writes."""

import copy
import json
from typing import Any

import pytest

from store.model.budget import CompressionEvent
from store.model.message import Message
from store.model.runtime_state import AgentRuntimeState
from store.model.session import PendingQuestion, ProviderModelRef, Session
from store.model.timestamp import Timestamp
from tests.store.model.samples import MINIMAL, NOW, SAMPLE, U64_MAX, USAGE, errors_of, make_session, make_task_list


def test_sample_session_round_trips_in_order() -> None:
    """Rule 5: the sample dumps with the same members, values and order."""
    dump = Session.model_validate(copy.deepcopy(SAMPLE)).model_dump()
    assert json.dumps(dump) == json.dumps(SAMPLE)


def test_sample_sidecar_round_trips() -> None:
    """runtime.json is the same record without messages."""
    sidecar = {**SAMPLE, "messages": []}
    assert Session.model_validate(sidecar).model_dump() == sidecar


def test_minimal_session_loads_with_defaults() -> None:
    """Four members are required; the others get the defaults of the agent."""
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
def test_missing_required_member_is_rejected(member: str) -> None:
    """The error names the member."""
    document = {key: value for key, value in MINIMAL.items() if key != member}
    assert errors_of(Session, document) == [(member,)]


def test_unknown_members_are_kept_everywhere() -> None:
    """Rule 5: at the top level and nested, with or without a leading underscore."""
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


def test_unknown_member_with_the_name_of_an_accessor_is_separate() -> None:
    """The accessor neither reads nor writes a top-level member of its name."""
    session = make_session(last_run_status="not ours")
    assert session.last_run_status is None
    session.last_run_status = "completed"
    assert session.metadata == {"last_run_status": "completed"}
    assert session.model_dump()["last_run_status"] == "not ours"
    session.last_run_status = None
    assert session.model_dump() == make_session(last_run_status="not ours").model_dump()


def test_members_of_newer_agents_are_kept_but_never_added() -> None:
    """They are absent from a new document and kept in one that has them."""
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
    """null in an Option member reads as None and is not written again."""
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
    """Where serde has no Option, null is rejected, even if the member may be absent."""
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
def test_invalid_values_are_rejected(member: str, bad: object) -> None:
    """Rule 6: what serde would reject is rejected; the error names the member."""
    assert errors_of(Session, {**MINIMAL, member: bad})[0][0] == member


def test_largest_integers_are_kept() -> None:
    """u64 and u32 up to their maximum, exactly."""
    session = make_session(title_version=U64_MAX, spawn_depth=2**32 - 1)
    assert (session.title_version, session.model_dump()["spawn_depth"]) == (U64_MAX, 2**32 - 1)


def test_metadata_values_must_be_strings() -> None:
    """The error names the key of the value that is not a string."""
    assert errors_of(Session, {**MINIMAL, "metadata": {"a": "x", "n": 1}}) == [("metadata", "n")]
    assert errors_of(Session, {**MINIMAL, "metadata": {"a": None}}) == [("metadata", "a")]


def test_float_members_accept_integers_but_not_nan() -> None:
    """`50` reads as 50.0; JSON has no NaN."""
    event = {"id": "e", "created_at": NOW, "messages_compressed": 1, "segments_removed": 1}
    assert CompressionEvent.model_validate({**event, "usage_before_percent": 50}).usage_before_percent == 50.0
    assert errors_of(CompressionEvent, {**event, "usage_before_percent": float("nan")})
    assert errors_of(CompressionEvent, {**event, "usage_before_percent": True})


def test_timestamps_keep_their_text() -> None:
    """Rule 5: nine digits and any offset are dumped unchanged."""
    session = make_session(created_at="2026-06-20T08:15:30.120000000+08:00")
    assert isinstance(session.created_at, Timestamp)
    assert session.model_dump()["created_at"] == "2026-06-20T08:15:30.120000000+08:00"


def test_new_root() -> None:
    """A new root is what an agent would write."""
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
    """A child has its parent and root; a child of a child is one level deeper under the same root."""
    child = Session.new_child("c", "r", "m", "Child")
    grandchild = Session.new_child_of("g", child, "m", "Grandchild")
    assert [(s.kind, s.parent_session_id, s.root_session_id, s.spawn_depth, s.title) for s in (child, grandchild)] == [
        ("child", "r", "r", 1, "Child"),
        ("child", "c", "r", 2, "Grandchild"),
    ]


def test_child_of_an_old_root_and_of_the_deepest_session() -> None:
    """An old root without root_session_id is its own root; the depth is limited to the largest u32."""
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
def test_changes_always_increase_updated_at(change: Any) -> None:
    """updated_at becomes the current time, or one nanosecond more than a value in the future."""
    for updated_at in ("2025-01-01T00:00:00Z", "2999-01-01T00:00:00.000000009Z"):
        session = make_session(updated_at=updated_at, task_list=make_task_list().model_dump())
        change(session)
        assert session.updated_at.ns > Timestamp(updated_at).ns
    assert session.updated_at == "2999-01-01T00:00:00.000000010Z"


def test_pending_question() -> None:
    """An empty tool name is omitted, the source never."""
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
    """Only what was computed from the messages is cleared; updated_at is unchanged."""
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


def test_stale_budget_is_cleared_for_roots_only() -> None:
    """The budget of a child is valid."""
    budget = {"max_context_tokens": 1, "max_output_tokens": 1, "strategy": {"window": {"size": 1}}}
    root, child = make_session(token_budget=budget), make_session(token_budget=budget, kind="child")
    for session in (root, child):
        session.clear_stale_root_token_budget()
    assert root.token_budget is None
    assert child.token_budget is not None


def test_origin_is_not_part_of_the_content() -> None:
    """Copies keep it, but it is neither dumped nor compared."""
    session, other = make_session(), make_session()
    session._origin = ("version", 7)
    assert session == other
    assert "_origin" not in session.model_dump()
    for copied in (session.model_copy(), session.model_copy(deep=True), copy.copy(session)):
        assert copied._origin == ("version", 7)
    assert other._origin is None


def test_equality_compares_known_and_unknown_members() -> None:
    """And only with other sessions."""
    assert make_session() != make_session(title="x")
    assert make_session() != make_session(unknown=1)
    assert make_session() != MINIMAL
    with pytest.raises(TypeError):
        hash(make_session())


def test_model_ref_as_string() -> None:
    """provider/model."""
    assert str(ProviderModelRef(provider="anthropic", model="claude/4")) == "anthropic/claude/4"
    assert errors_of(ProviderModelRef, {"provider": "x"}) == [("model",)]
