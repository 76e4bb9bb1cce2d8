"""Merging two edits of one document: nothing is lost, and what cannot be merged is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings

from store.documents import json_text
from store.documents.merge import MergeConflict, distance, merge_documents, merge_objects
from store.documents.merge_plan import ABSENT, alike
from tests.store.documents.json_samples import OBJECTS, SEEDS
from tests.store.documents.merge_samples import check_laws

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def document(*messages: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"id": "s", "title": "A", **members, "messages": list(messages), "updated_at": members.get("at", OLD)}


def message(id: str | None, content: str = "", role: str = "user", **members: Any) -> dict[str, Any]:
    return {**({"id": id} if id else {}), "role": role, "content": content, **members}


def merged(base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    result = merge_documents(base, ours, theirs, "session.json")
    texts = [json.dumps(side, indent=2).encode() for side in (ours, theirs)]
    assert json_text.parse(result.render(*texts), "x") == result.data
    return result.data


def contents(document: dict[str, Any]) -> list[str]:
    return [m["content"] for m in document["messages"]]


def clashes(base: dict[str, Any], ours: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(MergeConflict) as caught:
        merge_documents(base, ours, theirs, "session.json")
    with pytest.raises(MergeConflict):
        merge_documents(base, theirs, ours, "session.json")
    return [(json_text.render_path(clash.path), clash.reason) for clash in caught.value.clashes]


@given(SEEDS)
@settings(max_examples=400)
def test_laws(seed: int) -> None:
    """The laws of `merge_samples.check_laws`, for random edits of random documents in random layouts."""
    check_laws(seed)


def test_laws_are_tested_on_merges_and_on_clashes() -> None:
    outcomes = [check_laws(seed) for seed in range(200)]
    assert 40 < sum(outcomes) < 190


@given(OBJECTS, OBJECTS)
@settings(max_examples=200)
def test_laws_of_plain_objects(base: Any, other: Any) -> None:
    """State documents have no rules of their own: only members."""
    assert alike(merge_objects(base, other, base, "x").data, other)
    assert alike(merge_objects(base, base, other, "x").data, other)
    assert alike(merge_objects(base, other, other, "x").data, other)


# -- members ---------------------------------------------------------------------------------------


def test_each_side_keeps_its_own_members() -> None:
    base = document(a=1, b={"x": 1, "y": 1}, c=1)
    ours = document(a=2, b={"x": 2, "y": 1}, c=1)
    theirs = document(a=1, b={"x": 1, "y": 2, "z": 3}, d=4)
    result = merged(base, ours, theirs)
    assert (result["a"], result["b"], result["d"]) == (2, {"x": 2, "y": 2, "z": 3}, 4)
    assert "c" not in result


def test_a_member_changed_by_both_is_a_clash_with_its_three_values() -> None:
    with pytest.raises(MergeConflict) as caught:
        merge_documents(document(title="A"), document(title="C"), document(title="B"), "sessions/s/session.json")
    clash = caught.value.clashes[0]
    assert (clash.path, clash.base, clash.theirs, clash.ours) == (("title",), "A", "B", "C")
    assert "sessions/s/session.json: title: changed by both sides; the newer version is kept" in str(caught.value)
    assert [line.strip() for line in caught.value.explain()][1:] == ['before:  "A"', 'theirs:  "B"', 'yours:  "C"']


def test_deleting_a_member_that_the_other_side_changed_is_a_clash() -> None:
    assert clashes(document(a={"x": 1}), document(), document(a={"x": 2})) == [("a", "changed by both sides")]


def test_both_sides_may_make_the_same_change() -> None:
    assert merged(document(), document(title="B"), document(title="B"))["title"] == "B"


def test_both_sides_may_add_the_same_object_with_other_members() -> None:
    result = merged(document(), document(metadata={"a": "1"}), document(metadata={"b": "2"}))
    assert result["metadata"] == {"a": "1", "b": "2"}


def test_counters_take_the_larger_value() -> None:
    base = document(title_version=1, root_mode_transition_epoch=1)
    ours = document(title_version=3, root_mode_transition_epoch=2)
    theirs = document(title_version=2, root_mode_transition_epoch=5)
    result = merged(base, ours, theirs)
    assert (result["title_version"], result["root_mode_transition_epoch"]) == (3, 5)


def test_members_of_the_agent_are_taken_from_their_side_as_a_whole() -> None:
    base = document(token_usage={"a": 1, "b": 1})
    ours = document(token_usage={"a": 2, "b": 1})
    theirs = document(token_usage={"a": 3, "b": 2})
    assert merged(base, ours, theirs)["token_usage"] == {"a": 3, "b": 2}
    assert merged(base, ours, base)["token_usage"] == {"a": 2, "b": 1}


def test_the_result_is_later_than_both_sides() -> None:
    base = document()
    ours = {**document(a=1), "updated_at": "2099-01-01T00:00:00Z"}
    theirs = {**document(b=1), "updated_at": "2098-01-01T00:00:00Z"}
    assert merged(base, ours, theirs)["updated_at"] == "2099-01-01T00:00:00.000000001Z"


def test_a_document_with_a_sealed_header_is_not_merged() -> None:
    sealed = {**document(), "_bamboo_main_authority": {}}
    assert clashes(document(), sealed, document(a=1)) == [
        ("_bamboo_main_authority", "a sealed document cannot be merged")
    ]


def test_the_two_spellings_of_the_task_list_are_one_member() -> None:
    tasks: dict[str, Any] = {"items": []}
    more = {"items": [1]}
    result = merged(document(todo_list=tasks), document(todo_list=tasks, a=1), document(task_list=more))
    assert result["todo_list"] == more
    assert "task_list" not in result


# -- numbers ---------------------------------------------------------------------------------------


def test_numbers_that_a_tool_rewrote_count_as_unchanged() -> None:
    """jq 1.6 writes 1.0 as 1 and rounds integers beyond 53 bits. The digits of the other side stay."""
    base = document(a=1.0, b=9007199254740993, c=2)
    ours = document(a=1, b=9007199254740992, c=2, title="T")
    theirs = document(a=1.0, b=9007199254740993, c=3)
    result = merge_documents(base, ours, theirs, "x")
    text = result.render(*(json.dumps(side, indent=2).encode() for side in (ours, theirs)))
    assert b'"a": 1.0' in text
    assert b'"b": 9007199254740993' in text
    assert b'"c": 3' in text
    assert b'"title": "T"' in text


def test_true_is_not_one() -> None:
    assert not alike({"a": True}, {"a": 1})
    assert alike({"a": [1, 0]}, {"a": [1.0, -0.0]})
    assert not alike(ABSENT, None)


def test_a_changed_digit_of_a_long_integer_is_a_change() -> None:
    """Both integers are the same double, but neither is that double: nobody has rounded."""
    typed = 1234567890123456788
    base, theirs = document(b=1234567890123456789, c=2), document(b=1234567890123456789, c=3)
    result = merge_documents(base, document(b=typed, c=2), theirs, "x").data
    assert (result["b"], result["c"]) == (typed, 3)
    for rounded in (1234567890123456768, 1234567890123456800, 1.2345678901234568e18):  # C, jq 1.6, jq 1.5
        result = merge_documents(base, document(b=rounded, c=2, title="T"), theirs, "x").data
        assert (result["b"], result["c"], result["title"]) == (1234567890123456789, 3, "T")
    assert not alike(10**400, 10**400 + 1)
    assert not alike(10**400, 1.0)


# -- messages --------------------------------------------------------------------------------------


def test_messages_of_both_sides_stay_theirs_first() -> None:
    base = document(message("1", "one"))
    ours = document(message("1", "one"), message("2", "ours"))
    theirs = document(message("1", "one"), message("3", "theirs"), message("4", "answer"))
    assert contents(merged(base, ours, theirs)) == ["one", "theirs", "answer", "ours"]


def test_a_message_is_merged_member_by_member() -> None:
    """The agent's compression mark and a person's correction both stay."""
    base = document(message("1", "teh"), message("2", "x"))
    ours = document(message("1", "the"), message("2", "x"))
    theirs = document(message("1", "teh", compressed=True), message("2", "x"))
    assert merged(base, ours, theirs)["messages"][0] == message("1", "the", compressed=True)


def test_a_message_is_inserted_after_the_one_it_followed() -> None:
    base = document(*(message(i, i) for i in "abcd"))
    ours = document(message("a", "a"), message("x", "x"), *(message(i, i) for i in "bcd"))
    theirs = document(message("b", "b"), message("d", "d"), message("y", "y"))
    assert clashes(base, ours, theirs) == [("messages[1]", "added by you after a message they deleted")]
    theirs = document(message("a", "a"), message("b", "b"), message("d", "d"), message("y", "y"))
    assert contents(merged(base, ours, theirs)) == ["a", "x", "b", "d", "y"]


def test_a_deleted_message_must_be_unchanged_on_the_other_side() -> None:
    base = document(message("1", "one"), message("2", "two"))
    changed = document(message("1", "one"), message("2", "TWO"))
    assert clashes(base, document(message("1", "one")), changed) == [("messages[1]", "deleted by you, changed by them")]
    marked = document(message("1", "one"), message("2", "two", compressed=True))
    assert contents(merged(base, document(message("1", "one")), marked)) == ["one"]


def test_an_answer_to_a_deleted_message_is_a_clash() -> None:
    """A person cuts off the end while the agent answers it: texts would merge, the conversation would not."""
    base = document(message("1", "one"), message("2", "question"))
    ours = document(message("1", "one"))
    theirs = document(message("1", "one"), message("2", "question"), message("3", "answer"))
    assert clashes(base, ours, theirs) == [("messages[1]", "added by them after a message you deleted")]


def test_deleting_further_up_is_not_a_clash() -> None:
    base = document(message("1", "one"), message("2", "two"))
    ours = document(message("2", "two"))
    theirs = document(message("1", "one"), message("2", "two"), message("3", "three"))
    assert contents(merged(base, ours, theirs)) == ["two", "three"]


def test_a_tool_result_must_keep_its_call() -> None:
    call = message("1", "call", "assistant", tool_calls=[{"id": "c1"}])
    base = document(call, message("2", "between"))
    ours = document(message("2", "between"))
    theirs = document(call, message("2", "between"), message("3", "result", "tool", tool_call_id="c1"))
    assert clashes(base, ours, theirs) == [("messages[1]", "a tool result whose call was deleted")]


def test_a_result_without_call_on_one_side_alone_is_no_clash() -> None:
    orphan = message("2", "result", "tool", tool_call_id="c1")
    base = document(message("1", "one"), orphan)
    result = merged(base, document(message("1", "ONE"), orphan), document(message("1", "one"), orphan, message("3")))
    assert contents(result) == ["ONE", "result", ""]


def test_the_order_is_that_of_the_side_that_changed_it() -> None:
    base = document(*(message(i, i) for i in "abc"))
    ours = document(*(message(i, i) for i in "bac"))
    theirs = document(*(message(i, i) for i in "abcd"))
    assert contents(merged(base, ours, theirs)) == ["b", "a", "c", "d"]
    other = document(*(message(i, i) for i in "acb"))
    assert clashes(base, ours, other) == [("messages", "put into another order by both sides")]


def test_messages_without_ids_are_matched_by_content_and_order() -> None:
    base = document(*(message(None, text) for text in ("one", "two", "three")))
    ours = document(*(message(None, text) for text in ("one", "TWO", "three")))
    theirs = document(*(message(None, text) for text in ("one", "two", "three", "four")))
    assert contents(merged(base, ours, theirs)) == ["one", "TWO", "three", "four"]
    shorter = document(*(message(None, text) for text in ("two", "three")))
    assert contents(merged(base, shorter, theirs)) == ["two", "three", "four"]


def test_a_message_that_both_added_is_there_once() -> None:
    added = document(message("1", "one"), message("2", "same"))
    other = document(message("1", "one"), message("3", "x"), message("2", "same"))
    assert contents(merged(document(message("1", "one")), added, other)) == ["one", "x", "same"]
    different = document(message("1", "one"), message("2", "different"))
    assert clashes(document(message("1", "one")), added, different) == [
        ("messages[1].content", "changed by both sides")
    ]


# -- text ------------------------------------------------------------------------------------------


def test_the_typed_text_keeps_its_bytes_and_layout() -> None:
    base = b'{"id":"s","title":"A","messages":[{"id":"1","role":"user","content":"x"}],"updated_at":"%b"}'
    base = base % OLD.encode()
    ours = base.replace(b'"A"', rb'"\u0041\u0042"').replace(b'{"id":"s"', b'{ "id" :"s"')
    theirs = b"""{
  "id": "s",
  "title": "A",
  "messages": [
    {"id": "1", "role": "user", "content": "x"},
    {
      "id": "2",
      "role": "user",
      "content": "\\u00e9\\/",
      "n": 123456789012345678901234567890
    }
  ],
  "updated_at": "%b"
}""" % OLD.encode()
    sides = [json_text.parse(raw, "x") for raw in (base, ours, theirs)]
    text = merge_documents(sides[0], sides[1], sides[2], "x").render(ours, theirs)
    added = rb',{"id":"2","role":"user","content":"\u00e9\/","n":123456789012345678901234567890}'
    expected = ours.replace(b'"content":"x"}', b'"content":"x"}' + added)
    head, _, tail = expected.partition(OLD.encode())
    assert text.startswith(head)
    assert text.endswith(tail)


def test_their_bytes_are_taken_as_they_are_in_a_like_layout() -> None:
    base = json.dumps(document(message("1", "x")), indent=2).encode()
    ours = base.replace(b'"A"', b'"B"')
    new = b',\n    {\n      "id":   "2",\n      "role": "user", "content": "\\u00e9"\n    }\n  ],'
    theirs = base.replace(b"\n  ],", new)
    sides = [json_text.parse(raw, "x") for raw in (base, ours, theirs)]
    text = merge_documents(sides[0], sides[1], sides[2], "x").render(ours, theirs)
    assert new in text
    assert b'"B"' in text


def test_messages_are_added_to_an_empty_array_in_the_layout_of_the_document() -> None:
    base = json.dumps(document(), indent=4).encode()
    ours = base.replace(b'"A"', b'"B"')
    theirs = json.dumps(document(message("1", "x"))).encode()
    sides = [json_text.parse(raw, "x") for raw in (base, ours, theirs)]
    text = merge_documents(sides[0], sides[1], sides[2], "x").render(ours, theirs)
    assert (
        text.split(b'"updated_at"')[0]
        == json.dumps(sides[2] | {"title": "B"}, indent=4).encode().split(b'"updated_at"')[0]
    )


# -- distance --------------------------------------------------------------------------------------


def test_distance_counts_members_and_messages() -> None:
    one = document(message("1", "x"), message("2", "y"), metadata={"a": "1"})
    assert distance(one, one) == 0
    assert distance(one, {**one, "title": "B", "metadata": {"a": "1", "b": "2"}}) == 2
    assert distance(one, {**one, "messages": one["messages"][:1]}) == 1
    assert distance(one, {**one, "messages": one["messages"][::-1]}) == 1
    assert distance(one, {**one, "updated_at": NEW}) == 0
