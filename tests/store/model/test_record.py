"""Aliases: both spellings of a member are read, one is written."""

from store.model.record import ALIASES
from store.model.session import Session
from store.model.tasks import TaskItem
from tests.store.model.samples import MINIMAL, NOW, errors_of, make_session


def test_aliases_are_read_and_written_under_their_name() -> None:
    """todo_list, activeForm and ref are read; the dump has the current names."""
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


def test_both_spellings_at_once_are_rejected() -> None:
    """serde reports a duplicate field."""
    assert errors_of(Session, {**MINIMAL, "task_list": None, "todo_list": None}) == [()]
    item = {"id": "1", "description": "d", "status": "pending", "activeForm": "a", "active_form": "a"}
    assert errors_of(TaskItem, item) == [()]
    evidence = [{"summary": "s", "ref": "a", "reference": "a"}]
    proven = {"id": "1", "description": "d", "status": "pending", "evidence": evidence}
    assert errors_of(TaskItem, proven) == [("evidence", 0)]


def test_error_path_has_the_spelling_of_the_text() -> None:
    """The path of an error exists in the document as it is written."""
    assert errors_of(Session, {**MINIMAL, "todo_list": {"items": 1}})[0][0] == "todo_list"


def test_alias_of_another_record_is_an_unknown_member() -> None:
    """`ref` is an alias only in evidence."""
    assert make_session(ref="x").model_dump()["ref"] == "x"
