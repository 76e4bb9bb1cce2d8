"""What a list says of a session: titles made from what the user said, and how many questions were answered."""

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


def test_a_short_line_is_the_title() -> None:
    """As it was said."""
    assert make_title(user("Fix the login page")) == "Fix the login page"


def test_the_first_line_that_says_something_counts() -> None:
    """Blank lines, indentation, tabs and runs of spaces are no part of a title."""
    assert make_title(user("\n\n \t Fix\tthe   page \nand more")) == "Fix the page"


def test_sixty_columns_fit_and_the_sixty_first_does_not() -> None:
    """What is cut ends with an ellipsis that has room within the width."""
    assert make_title(user("x" * 60)) == "x" * 60
    assert make_title(user("x" * 61)) == "x" * 59 + "…"


def test_wide_characters_count_twice() -> None:
    """Thirty of them fill sixty columns, and none is cut in half."""
    assert make_title(user("字" * 30)) == "字" * 30
    assert make_title(user("字" * 31)) == "字" * 29 + "…"
    assert make_title(user("a" + "字" * 31)) == "a" + "字" * 29 + "…"


def test_marks_stay_with_their_letter() -> None:
    """Sixty letters with two accents each are sixty columns; the cut comes between letters, not between accents."""
    letter = "e\u0301\u0323"
    assert make_title(user(letter * 60)) == letter * 60
    assert make_title(user(letter * 61)) == letter * 59 + "…"


def test_what_turns_text_around_is_left_out() -> None:
    """A title must not rearrange the list it stands in; control characters go too."""
    assert make_title(user("\ufeffab\u202ecd\x1b[31m\u2069")) == "abcd[31m"


def test_a_picture_alone_makes_no_title_but_its_text_does() -> None:
    """The text may lie in a part of the message."""
    picture = {"type": "image_url", "image_url": {"url": "x"}}
    assert make_title(user("", content_parts=[picture])) is None
    assert make_title(user(" ", content_parts=[picture, {"type": "text", "text": "What is this?"}])) == "What is this?"


def test_a_long_message_is_not_looked_through() -> None:
    """Ten million letters in one line, or ten million blanks before the first one."""
    assert make_title(user("x" * 10_000_000)) == "x" * 59 + "…"
    assert make_title(user(" " * 10_000_000 + "x")) == "x"


@given(st.text())
def test_any_message_has_a_title_or_none(text: str) -> None:
    """A title is one line and not blank."""
    title = make_title(user(text))
    assert title is None or (title.strip() and len(title.splitlines()) == 1)


# -- exchanges -------------------------------------------------------------------------------------------


def test_what_the_runtime_says_in_the_users_name_is_no_question() -> None:
    """Hidden messages and those that wake an agent do not count, nor give a title."""
    assert is_question(user("hello"))
    assert is_question(user("hello", metadata={"hidden_from_ui": False}))
    assert is_question(user("hello", metadata="odd"))
    assert not is_question(user("resume", metadata={"hidden_from_ui": True}))
    assert not is_question(user("resume", metadata={"runtime_kind": "retry_resume"}))


def test_remarks_between_tool_calls_are_no_answers() -> None:
    """Only what ends a turn is; older messages say no phase."""
    assert is_answer(assistant())
    assert is_answer(assistant(phase="final_answer", tool_calls=[]))
    assert not is_answer(assistant(tool_calls=[{"id": "1"}]))
    assert not is_answer(assistant(phase="commentary"))
    assert not is_answer({"role": "tool", "content": "ok"})


def test_an_exchange_is_a_question_and_its_answer() -> None:
    """The smaller number of the two."""
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
def test_moving_along_is_the_same_as_making_anew(before: list[dict[str, Any]], added: list[dict[str, Any]]) -> None:
    """Rule 7: an append keeps the gist what the whole conversation would make it."""
    assert Preview().with_messages(before).with_messages(added) == Preview().with_messages(before + added)
