"""Differences of documents in words."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from store.undo.changes import DocumentChanges, compare
from store.undo.changes_in_words import as_json, describe, summarize, summarize_text, unified
from tests.store.undo.test_changes import MESSAGES, VALUES, said


def lines(old: Any, new: Any) -> list[str]:
    return [str(line) for line in describe(compare(old, new))]


def test_the_short_form_counts_messages_and_names_members() -> None:
    """`updated_at` changes with everything else and is not named."""
    old = {"title": "teh plan", "updated_at": "1", "messages": [said("a", "1"), said("b", "2")]}
    new = {"title": "the plan", "updated_at": "2", "messages": [said("x", "1"), said("y", "2"), said("c", "3")]}
    assert summarize(compare(old, new)) == "~2 messages, +1 message, title: [-teh-]{+the+} plan"
    assert summarize(compare(old, {**old, "updated_at": "2"})) == "updated_at: [-1-]{+2+}"
    assert summarize(compare(old, {**old, "updated_at": "2", "messages": []})) == "-2 messages"
    assert summarize(compare(old, old)) == ""


def test_the_short_form_stays_short() -> None:
    """Of long values the beginnings are shown; of many members, three."""
    old = {"a": "x" * 100, "b": 1, "c": True, "d": None, "e": 1}
    new = {"a": "y" * 100, "b": 2, "c": False, "d": [1], "e": 2}
    x, y = "x" * 12, "y" * 12
    shown = f"a: [-{x}-]…[-{x}-]{{+{y}+}}…{{+{y}+}}, b: [-1-]{{+2+}}, c: [-true-]{{+false+}}, 2 more members"
    assert summarize(compare(old, new)) == shown


def test_a_long_value_is_shown_by_what_changed_in_it() -> None:
    """By the name of the member alone nobody would know what it was; the long form shows more of it."""
    old = {"title": "Find out why the login page is blank in Safari"}
    new = {"title": "Repair the login form after the update of the browser engine"}
    changed = "title: [-Find out why-]{+Repair+} the login [-page is blank in Safari-]{+form after t+}…"
    assert summarize(compare(old, new)) == changed
    assert summarize(compare({}, new)) == "title: {+Repair the l+}…{+owser engine+}"
    prompt = "You are a careful engineer. " * 10
    edited = prompt[:140] + prompt[140:].replace("careful", "careless", 1)
    assert summarize(compare({"prompt": prompt}, {"prompt": edited})) == "prompt: …are a [-careful-]{+careless+} engin…"


def test_the_long_form_has_one_line_for_each_difference() -> None:
    """Members first, then messages in the order of reading."""
    old = {"title": "teh plan", "messages": [said("the old way", "1"), said("b", "2"), said("c", "3", "tool")]}
    new = {"pinned": True, "title": "the plan", "messages": [said("the new way", "1"), said("d", "4", "assistant")]}
    assert lines(old, new) == [
        "title: [-teh-]{+the+} plan",
        "pinned: {+true+}",
        "~ [0] user: the [-old-]{+new+} way",
        "- [1] user: b",
        "+ [1] assistant: d",
        "- [2] tool: c",
    ]


def test_members_of_messages_are_named() -> None:
    """Only the text of a message needs no name."""
    call = {"id": "c", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}
    old = {"messages": [said("a", "1"), said("", "2")]}
    new = {"messages": [{**said("a", "1"), "compressed": True}, said("", "2"), {**said("", "3"), "tool_calls": [call]}]}
    assert lines(old, new) == ["~ [0] user compressed: {+true+}", "+ [2] user: calls Bash"]


def test_a_moved_message_says_where_it_was() -> None:
    """With the beginning of its text."""
    first, second = said("first\nline", "1"), said("second", "2")
    assert lines({"messages": [first, second]}, {"messages": [second, first]}) == ["↕ [0] user: was [1]: second"]
    assert summarize(compare({"messages": [first, second]}, {"messages": [second, first]})) == "1 message moved"


def test_arrays_of_another_length_are_counted() -> None:
    """Their text would be too long."""
    assert lines({"events": [1]}, {"events": [1, 2]}) == ["events: [-1 items-]{+2 items+}"]


@given(VALUES, VALUES, MESSAGES, MESSAGES)
def test_whatever_differs_is_said(old: Any, new: Any, before: Any, after: Any) -> None:
    """Every difference has a line in the long form, and the short form is empty only if there is none."""
    changes = compare({"x": old, "messages": before}, {"x": new, "messages": after})
    assert bool(summarize(changes)) == (not changes.is_empty)
    assert len(list(describe(changes))) >= len(changes.members) + len(changes.messages)
    shown = as_json(changes)
    assert (len(shown["members"]), len(shown["messages"])) == (len(changes.members), len(changes.messages))
    assert "\n" not in "".join(map(str, describe(changes)))


def test_absent_members_are_absent_from_json() -> None:
    """null is a value."""
    assert as_json(compare({"a": None}, {"b": None}))["members"] == [
        {"path": "a", "old": None},
        {"path": "b", "new": None},
    ]
    assert as_json(DocumentChanges()) == {"members": [], "messages": []}


def test_texts_are_compared_line_by_line() -> None:
    """In documents that are not JSON."""
    assert summarize_text("a\nb\n", "a\nc\nd\n") == "+2 lines, -1 line"
    assert summarize_text("a", "a") == ""
    assert list(unified(b"a\nb\n", b"a\nc\n", "n@1", "n@2")) == [
        "--- n@1",
        "+++ n@2",
        "@@ -1,2 +1,2 @@",
        " a",
        "-b",
        "+c",
    ]


def test_json_on_one_line_is_laid_out_for_a_unified_diff() -> None:
    """Or the whole document would be one changed line."""
    shown = list(unified(b'{"a":1,"b":2}', b'{"a":1,"b":3}', "x", "y"))
    assert shown[-3:] == ['-  "b": 2', '+  "b": 3', " }"]
