"""Preview: titles derived from messages, and counts of questions and answers."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from store.model.preview import Preview, is_answer, is_question, make_title


def user(content: str, **members: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **members}


def assistant(content: str = "yes", **members: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **members}


# -- titles ----------------------------------------------------------------------------------------------


def test_short_line_is_the_title() -> None:
    """Unchanged."""
    assert make_title(user("Fix the login page")) == "Fix the login page"


def test_first_line_with_text_is_the_title() -> None:
    """Blank lines, indentation, tabs and runs of spaces are removed."""
    assert make_title(user("\n\n \t Fix\tthe   page \nand more")) == "Fix the page"


def test_title_has_at_most_sixty_columns() -> None:
    """A shortened title ends with an ellipsis that is within the width."""
    assert make_title(user("x" * 60)) == "x" * 60
    assert make_title(user("x" * 61)) == "x" * 59 + "…"


def test_wide_characters_count_twice() -> None:
    """Thirty of them fill sixty columns, and none is split."""
    assert make_title(user("字" * 30)) == "字" * 30
    assert make_title(user("字" * 31)) == "字" * 29 + "…"
    assert make_title(user("a" + "字" * 31)) == "a" + "字" * 29 + "…"


def test_combining_marks_stay_with_their_letter() -> None:
    """Sixty letters with two accents each take sixty columns."""
    letter = "e\u0301\u0323"
    assert make_title(user(letter * 60)) == letter * 60
    assert make_title(user(letter * 61)) == letter * 59 + "…"


def test_bidirectional_controls_are_removed_from_a_title() -> None:
    """A title must not reorder the list that shows it. Control characters are removed too."""
    assert make_title(user("\ufeffab\u202ecd\x1b[31m\u2069")) == "abcd[31m"


def test_image_has_no_title_but_a_text_part_has() -> None:
    """The text may be in a part of the message."""
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    assert make_title(user("", content_parts=[picture])) is None
    assert make_title(user(" ", content_parts=[picture, {"type": "text", "text": "What is this?"}])) == "What is this?"


def test_long_message_is_not_scanned_completely() -> None:
    """Ten million letters in one line, or ten million blanks before the first letter."""
    assert make_title(user("x" * 10_000_000)) == "x" * 59 + "…"
    assert make_title(user(" " * 10_000_000 + "x")) == "x"


@given(st.text())
def test_title_is_one_line_and_not_blank(text: str) -> None:
    """For any text."""
    title = make_title(user(text))
    assert title is None or (title.strip() and len(title.splitlines()) == 1)


# -- exchanges -------------------------------------------------------------------------------------------


def test_user_messages_of_the_runtime_are_not_questions() -> None:
    """Hidden messages, and those that wake an agent, are not counted."""
    assert is_question(user("hello"))
    assert is_question(user("hello", metadata={"hidden_from_ui": False}))
    assert is_question(user("hello", metadata="odd"))
    assert not is_question(user("resume", metadata={"hidden_from_ui": True}))
    assert not is_question(user("resume", metadata={"runtime_kind": "retry_resume"}))


def test_commentary_is_not_an_answer() -> None:
    """Only a message that ends a turn is; older messages have no phase."""
    assert is_answer(assistant())
    assert is_answer(assistant(phase="final_answer", tool_calls=[]))
    assert not is_answer(assistant(tool_calls=[{"id": "1"}]))
    assert not is_answer(assistant(phase="commentary"))
    assert not is_answer({"role": "tool", "content": "ok"})


def test_exchanges_are_questions_with_answers() -> None:
    """The smaller one of the two counts."""
    assert Preview().with_messages([user("a"), assistant(), user("b")]).exchanges == 1
    assert Preview().with_messages([assistant(), assistant(), user("a")]).exchanges == 1
    assert Preview().exchanges == 0


messages = st.lists(
    st.one_of(
        st.builds(user, st.text(max_size=5), metadata=st.sampled_from([None, {"hidden_from_ui": True}])),
        st.builds(assistant, phase=st.sampled_from([None, "commentary", "final_answer"])),
    )
)


@given(messages, messages)
def test_incremental_preview_equals_full_preview(before: list[dict[str, Any]], added: list[dict[str, Any]]) -> None:
    """Rule 7: an append updates the preview to that of the whole conversation."""
    assert Preview().with_messages(before).with_messages(added) == Preview().with_messages(before + added)
