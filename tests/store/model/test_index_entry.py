"""IndexEntry: the entry of a session in sessions.json."""

import copy
import json

import pytest

from store.model.index_entry import IndexEntry
from store.model.runtime_state import AgentRuntimeState
from store.model.session import Session
from tests.store.model.samples import NOW, SAMPLE, SAMPLE_ENTRY, make_entry, make_session


def test_entry_of_the_sample_session() -> None:
    """The entry of the sample session, in member order, plus the workspace_path of newer indexes."""
    entry = make_entry(Session.model_validate(copy.deepcopy(SAMPLE)), has_attachments=True)
    dump = entry.model_dump()
    assert dump.pop("workspace_path") == "/home/me/src"
    assert json.dumps(dump) == json.dumps(SAMPLE_ENTRY)


def test_sample_entry_round_trips() -> None:
    """An entry of sessions.json dumps unchanged; only the parent is ever null."""
    assert json.dumps(IndexEntry.model_validate(SAMPLE_ENTRY).model_dump()) == json.dumps(SAMPLE_ENTRY)


def test_identity_of_an_entry_comes_from_its_path() -> None:
    """Rule 9: the path defines the identity, not the document."""
    session = make_session(kind="root", root_session_id="liar", parent_session_id="p", spawn_depth=2)
    entry = make_entry(session, location_id="c", rel_path="sessions/r/children/c", kind="child", root_id="r")
    assert (entry.id, entry.kind, entry.root_session_id) == ("c", "child", "r")
    assert (entry.parent_session_id, entry.spawn_depth) == ("p", 2)


def test_blank_metadata_is_omitted_from_an_entry() -> None:
    """Other values keep their spaces."""
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


def test_entry_reads_runtime_values_through_the_accessors() -> None:
    """The typed value wins over the string, even if it is empty."""
    session = make_session(
        metadata={"last_run_status": "old", "last_run_error": "old", "project_id": "old"},
        runtime_metadata={"last_run_status": "new", "last_run_error": "", "project_id": "p"},
    )
    entry = make_entry(session)
    assert (entry.last_run_status, entry.last_run_error, entry.project_id) == ("new", None, "p")


def test_entry_has_plan_mode_and_permissions() -> None:
    """Both come from the runtime state; the mode is present only if the document has one."""
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
def test_entry_parses_placement(text: str, placement: object) -> None:
    """Malformed JSON reads as no placement."""
    assert make_entry(make_session(metadata={"placement": text})).placement == placement


@pytest.mark.parametrize(("depth", "is_kept"), [(127, True), (128, False), (900, False)])
@pytest.mark.parametrize("level", ['{"a":', "["])
def test_a_placement_is_nested_at_most_as_deep_as_bamboo_reads(depth: int, level: str, *, is_kept: bool) -> None:
    """A deeper one could not be written to the index: it made every sweep of the home fail."""
    closing = "}" if level.startswith("{") else "]"
    text = f'{{"a":{level * (depth - 1)}1{closing * (depth - 1)}}}'
    assert (make_entry(make_session(metadata={"placement": text})).placement is not None) == is_kept
