"""AgentRuntimeState: accepted values, defaults and permission modes."""

from typing import Any

import pytest

from store.model.runtime_state import AgentRuntimeState
from store.model.session import Session
from tests.store.model.samples import NOW, SAMPLE, errors_of


def test_new_runtime_state_loads_in_older_agents() -> None:
    """It has every number that older agents require, and no newer members."""
    assert AgentRuntimeState.new("run").model_dump() == {
        **SAMPLE["agent_runtime_state"],
        "run_id": "run",
        "status": "idle",
        "round": dict.fromkeys(SAMPLE["agent_runtime_state"]["round"], 0),
        "tools": {"schemas_resolved": False, "disabled_tool_count": 0, "active_tool_calls": 0},
    }


def test_runtime_state_requires_two_members() -> None:
    """version and run_id."""
    state = AgentRuntimeState.model_validate({"version": 1, "run_id": "r"})
    assert state == AgentRuntimeState.new("r")


ROUND = {"current_round": 1, "total_tool_calls": 2, "total_prompt_tokens": 3, "total_completion_tokens": 4}


def test_absent_members_of_a_round_stay_absent() -> None:
    """Versions disagree about the other members of a round, so none of them is supplied."""
    state = AgentRuntimeState.model_validate({"version": 1, "run_id": "r", "round": {**ROUND, "max_rounds": None}})
    assert state.round.model_dump() == ROUND


@pytest.mark.parametrize("missing", list(ROUND))
def test_c4_a_round_without_a_number_that_bamboo_requires_is_rejected(missing: str) -> None:
    """Rule 6: no version of Bamboo could load the session."""
    incomplete = {key: value for key, value in ROUND.items() if key != missing}
    assert errors_of(Session, {**SAMPLE, "agent_runtime_state": {"version": 1, "run_id": "r", "round": incomplete}})


def test_old_children_lists_are_kept() -> None:
    """The record does not drop them."""
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
def test_invalid_runtime_states_are_rejected(bad: dict[str, Any]) -> None:
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
