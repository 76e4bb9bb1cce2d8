"""Mirrored fields: stored typed in runtime_metadata and as text in metadata."""

from typing import Any

import pytest

from store.model.mirrored_fields import MIRRORED, SessionRuntimeMetadata, mirror_text
from store.model.session import Session
from tests.store.model.samples import make_session

TEXT_FIELDS = sorted(MIRRORED.keys() - {"pending_injected_messages", "selected_skill_ids", "root_orchestration_prompt"})


def accessor_of(field: str) -> str:
    return "runtime_reasoning_effort" if field == "reasoning_effort" else field


@pytest.mark.parametrize("field", TEXT_FIELDS)
def test_strings_are_written_and_cleared_in_both_places(field: str) -> None:
    """runtime_metadata is removed when it becomes empty."""
    session, name = Session.new("s"), accessor_of(field)
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
def test_strings_fall_back_to_metadata(field: str) -> None:
    """The typed value wins, even if it is empty."""
    session, name = make_session(metadata={field: "old"}), accessor_of(field)
    assert getattr(session, name) == "old"
    session.runtime_metadata = SessionRuntimeMetadata.model_validate({field: ""})
    assert getattr(session, name) == ""


def test_clearing_keeps_other_values() -> None:
    """runtime_metadata is kept while it has another member, known or unknown."""
    session = make_session(runtime_metadata={"last_run_status": "x", "future": 1}, metadata={"other": "y"})
    session.last_run_status = None
    assert session.model_dump()["runtime_metadata"] == {"future": 1}
    assert session.metadata == {"other": "y"}


def test_lists_are_mirrored_as_compact_json() -> None:
    """The string form of a list is compact JSON without escapes."""
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
    """Pending messages read as an empty list, skill ids as None."""
    session = make_session(metadata={"pending_injected_messages": text, "selected_skill_ids": text})
    assert session.pending_injected_messages == []
    assert session.has_pending_injected_messages()
    assert session.selected_skill_ids is None


def test_skill_ids_that_are_not_strings_read_as_none() -> None:
    """A list of other values is malformed too."""
    assert make_session(metadata={"selected_skill_ids": "[1]"}).selected_skill_ids is None


def test_pending_injected_messages_in_either_place() -> None:
    """An empty list counts as pending; an absent key does not."""
    assert not make_session().has_pending_injected_messages()
    assert make_session(runtime_metadata={"pending_injected_messages": []}).has_pending_injected_messages()
    assert make_session(metadata={"pending_injected_messages": "[]"}).has_pending_injected_messages()


def test_false_clears_a_flag() -> None:
    """True is written to both places; False removes it from both."""
    session = Session.new("s")
    session.root_orchestration_prompt = True
    assert session.metadata == {"root_orchestration_prompt": "true"}
    assert session.model_dump()["runtime_metadata"] == {"root_orchestration_prompt": True}
    session.root_orchestration_prompt = False
    assert (session.runtime_metadata, session.metadata) == (None, {})
    assert make_session(metadata={"root_orchestration_prompt": "true"}).root_orchestration_prompt is True
    assert make_session(metadata={"root_orchestration_prompt": "yes"}).root_orchestration_prompt is None


def test_skill_mode_reads_an_older_key_and_never_writes_it() -> None:
    """`mode` is read last and never changed."""
    session = make_session(metadata={"mode": "oldest"})
    assert session.skill_mode == "oldest"
    session.skill_mode = "new"
    assert session.metadata == {"mode": "oldest", "skill_mode": "new"}
    session.runtime_metadata = None
    assert session.skill_mode == "new"


def test_runtime_reasoning_effort_is_separate() -> None:
    """The session has a member reasoning_effort too, which is not changed."""
    session = make_session(reasoning_effort="high")
    session.runtime_reasoning_effort = "low"
    assert (session.reasoning_effort, session.metadata["reasoning_effort"]) == ("high", "low")


def test_accessors_are_not_members() -> None:
    """Setting one adds no top-level member to the document."""
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
    """Strings are unchanged, lists compact JSON, True is "true", False and None are absent."""
    assert mirror_text("field", value) == text


def test_mirror_text_rejects_other_values() -> None:
    """Assigning a number fails before anything is changed."""
    session = Session.new("s")
    with pytest.raises(TypeError, match="last_run_status: expected a string"):
        session.last_run_status = 5  # type: ignore[assignment]
    assert (session.runtime_metadata, session.metadata) == (None, {})


def test_mirrored_fields_exist_in_the_typed_record() -> None:
    """Every key of MIRRORED is a field of the typed record."""
    assert MIRRORED.keys() <= SessionRuntimeMetadata.model_fields.keys()
