"""IndexEntry: the entry of a session in sessions.json."""

import copy
import json

import pytest

from store.model.index_entry import IndexEntry
from store.model.runtime_state import AgentRuntimeState
from store.model.session import Session
from tests.store.model.samples import NOW, SAMPLE, SAMPLE_ENTRY, make_entry, make_session


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
