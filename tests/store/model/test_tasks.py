"""Task lists: accepted values, transitions and completion criteria."""

from typing import Any

import pytest

from store.model.tasks import TaskItem
from store.model.timestamp import Timestamp
from tests.store.model.samples import NOW, errors_of, make_session, make_task_list


def test_very_old_task_items_load() -> None:
    """Three members are required; the dump has serde's defaults."""
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
def test_unknown_task_values_are_rejected(bad: dict[str, Any]) -> None:
    """Statuses, phases, priorities and kinds are fixed sets."""
    assert errors_of(TaskItem, {"id": "1", "description": "d", "status": "pending", **bad})


def test_changing_a_status_adds_notes_and_a_transition() -> None:
    """The transition has the reason and the round."""
    session = make_session(task_list=make_task_list(notes="first").model_dump())
    item = session.update_task_item("t1", "blocked", "  no network  ", round=3)
    assert (item.status, item.notes) == ("blocked", "first\nno network")
    (transition,) = item.transitions
    assert (transition.from_status, transition.to_status) == ("pending", "blocked")
    assert (transition.reason, transition.round) == ("no network", 3)
    assert session.task_list is not None
    assert session.task_list.updated_at.ns > Timestamp(NOW).ns


def test_same_status_adds_no_transition() -> None:
    """Only the notes are appended."""
    item = make_session(task_list=make_task_list().model_dump()).update_task_item("t1", "pending", "still")
    assert (item.notes, item.transitions) == ("still", [])


@pytest.mark.parametrize(
    "completed",
    [["Tests pass", "Docs written"], ["c1", "C2"], ["criterion_1", "criterion-2"], [" tests   PASS ", "c2"]],
)
def test_task_completes_when_all_criteria_are_named(completed: list[str]) -> None:
    """By text, ignoring case and white space, or by number."""
    task_list = make_task_list(completion_criteria=["Tests pass", " docs  written "])
    session = make_session(task_list=task_list.model_dump())
    assert session.update_task_item("t1", "completed", completed_criteria=completed).status == "completed"


@pytest.mark.parametrize(("completed", "missing"), [(None, "a | b"), ([], "a | b"), (["A"], "b"), (["c2", "c9"], "a")])
def test_unmet_criteria_keep_the_task_in_progress(completed: list[str] | None, missing: str) -> None:
    """The notes list the missing criteria."""
    session = make_session(task_list=make_task_list(completion_criteria=["a", " b "]).model_dump())
    item = session.update_task_item("t1", "completed", "done, I think", completed_criteria=completed)
    assert item.status == "in_progress"
    assert item.notes == (
        f"done, I think\nCompletion criteria not fully met; keeping task in_progress. Missing: {missing}"
    )


def test_task_without_criteria_completes() -> None:
    session = make_session(task_list=make_task_list().model_dump())
    assert session.update_task_item("t1", "completed").status == "completed"


def test_unknown_task_raises_and_changes_nothing() -> None:
    """LookupError if there is no list or no such item."""
    for session in (make_session(), make_session(task_list=make_task_list().model_dump())):
        before = session.model_dump()
        with pytest.raises(LookupError, match="no task item"):
            session.update_task_item("nope", "completed")
        assert session.model_dump() == before
