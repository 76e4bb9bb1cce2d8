"""Differences of two documents: members and messages."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from store.documents.json_splice import same
from store.documents.merge_plan import ABSENT
from store.undo.changes import (
    DocumentChanges,
    MemberChange,
    compare,
    compare_messages,
    compare_sessions,
)

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, -0.0, 1.0]) | st.text("ab", max_size=2)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": st.text("ab", max_size=2)},
    optional={"id": st.sampled_from("pqrst"), "metadata": VALUES},
)
MESSAGES = st.lists(MESSAGE, max_size=6)


def put(target: Any, member: MemberChange) -> Any:
    """The value with one difference applied."""
    if not member.path:
        return member.new
    step, rest = member.path[0], member._replace(path=member.path[1:])
    if not rest.path and member.new is ABSENT:
        del target[step]
    elif isinstance(step, int):
        target[step] = put(target[step], rest)
    else:
        target[step] = put(target.get(step, ABSENT), rest)
    return target


def patched(value: Any, members: tuple[MemberChange, ...]) -> Any:
    value = copy.deepcopy(value)
    for member in members:
        value = put(value, member)
    return value


@given(VALUES, VALUES)
def test_the_differences_lead_from_one_value_to_the_other(old: Any, new: Any) -> None:
    """Applying them to the old one gives the new one; equal values have none."""
    changes = compare(old, new)
    assert same(patched(old, changes.members), new)
    assert changes.is_empty == same(old, new)


@given(MESSAGES, MESSAGES)
def test_every_message_is_accounted_for(old: list[Any], new: list[Any]) -> None:
    """Each new one is added, changed, moved, or the next of the old ones that are left."""
    changes = compare_messages(old, new)
    known = {change.new_index: change for change in changes if change.new_index is not None}
    gone = {change.old_index for change in changes if change.old_index is not None}
    unchanged = [message for index, message in enumerate(old) if index not in gone]
    for index, message in enumerate(new):
        change = known.get(index)
        if change is None:
            assert same(unchanged.pop(0), message)
        elif change.event == "added":
            assert change.message is message
        else:
            assert change.old_index is not None
            assert same(patched(old[change.old_index], change.members), message)
            assert (change.event == "moved") == (not change.members)
    assert unchanged == []


@given(MESSAGES)
def test_equal_messages_have_no_differences(messages: list[Any]) -> None:
    """Also if ids occur twice."""
    assert compare_messages(messages, copy.deepcopy(messages)) == []


def said(text: str, id: str | None = None, role: str = "user") -> dict[str, Any]:
    return {**({"id": id} if id else {}), "role": role, "content": text}


def events(old: list[Any], new: list[Any]) -> list[tuple[str, int | None, int | None]]:
    return [(change.event, change.old_index, change.new_index) for change in compare_messages(old, new)]


def test_messages_are_matched_by_id() -> None:
    """An edited message is one change, wherever it is."""
    old = [said("a", "1"), said("b", "2"), said("c", "3")]
    assert events(old, [said("a", "1"), said("B", "2"), said("c", "3"), said("d", "4")]) == [
        ("changed", 1, 1),
        ("added", None, 3),
    ]
    assert events(old, [said("x", "0"), said("b", "2")]) == [
        ("added", None, 0),
        ("removed", 0, None),
        ("removed", 2, None),
    ]


def test_a_message_at_another_place_was_moved() -> None:
    """It is not one removed and one added."""
    old = [said("a", "1"), said("b", "2"), said("c", "3")]
    assert events(old, [old[2], old[0], old[1]]) == [("moved", 2, 0)]


def test_messages_without_id_are_matched_by_content_then_by_place() -> None:
    """By place only if the roles agree."""
    old = [said("a"), said("b"), said("c")]
    assert events(old, [said("a"), said("x"), said("c")]) == [("changed", 1, 1)]
    assert events(old, [said("b"), said("c")]) == [("removed", 0, None)]
    assert events(old, [said("a"), said("b", role="tool"), said("c")]) == [("added", None, 1), ("removed", 1, None)]


def test_a_session_is_compared_as_its_agent_loads_it() -> None:
    """Members of the sidecar win: a save that brings session.json up to date with it changes nothing else."""
    main, side = {"title": "a", "messages": []}, {"title": "b", "messages": []}
    later = {"title": "b", "messages": [said("x")]}
    changes = compare_sessions((main, side), (later, side))
    assert [change.event for change in changes.messages] == ["added"]
    assert changes.members == ()
    only_main = compare_sessions((main, side), ({"title": "b", "messages": []}, side))
    assert only_main == DocumentChanges((MemberChange(("title",), "a", "b"),))
    only_side = compare_sessions((main, None), (main, side))
    assert only_side == DocumentChanges((MemberChange(("title",), "a", "b"),))


def test_a_stale_sidecar_does_not_count() -> None:
    """It is older than session.json, so no agent loads it."""
    old, new = "2026-11-16T10:00:00Z", "2026-11-16T11:00:00Z"
    main, side = {"title": "a", "updated_at": new, "messages": []}, {"title": "b", "updated_at": old, "messages": []}
    changes = compare_sessions((main, side), ({**main, "title": "c"}, side))
    assert changes.members == (MemberChange(("title",), "a", "c"),)
    damaged = {**main, "updated_at": 7}
    assert not compare_sessions((main, side), (damaged, side)).is_empty
