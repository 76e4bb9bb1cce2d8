"""Splicing: a change keeps every byte it does not need to touch."""

import json
import time
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from store.documents import json_text
from store.documents.json_splice import same, splice
from tests.store.documents.json_samples import ALIKE, OBJECTS, VALUES, keys_as_written, member_values, texts_of

DISTINCT: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -1,
    0.0,
    -0.0,
    1.0,
    "",
    "1",
    [],
    {},
    [0],
    [0.0],
    [False],
    {"a": 0},
    {"a": 0.0},
]
DISTINCT += [{"a": False}, {"a": None}, {"b": None}, {"a": [1]}, {"a": [True]}, {"a": [1.0]}, {"a": [-0.0]}]


def test_same_distinguishes_what_json_distinguishes() -> None:
    """1, 1.0 and true are equal in Python but differ in JSON, at any depth."""
    for i, one in enumerate(DISTINCT):
        for j, other in enumerate(DISTINCT):
            assert same(one, other) == (i == j), (one, other)


@given(VALUES, VALUES)
def test_same_agrees_with_canonical_json(one: Any, other: Any) -> None:
    """Two values are the same exactly if their JSON with sorted keys is."""
    texts = [json.dumps(v, sort_keys=True) for v in (one, other)]
    assert same(one, other) == (texts[0] == texts[1])
    assert same(one, json.loads(texts[0]))


@given(st.data())
@settings(max_examples=300)
def test_spliced_text_parses_as_the_new_value(data: st.DataObject) -> None:
    """In any layout; unchanged members keep every byte."""
    before, after = data.draw(OBJECTS), data.draw(OBJECTS)
    raw = data.draw(texts_of(before))
    spliced = splice(raw, before, after)
    assert same(json_text.parse(spliced, "x"), after)
    check_kept(raw, spliced, before, after)
    lead, tail = (raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :])
    assert spliced.startswith(lead)
    assert spliced.endswith(tail)


def check_kept(raw: bytes, spliced: bytes, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Unchanged members keep key and value byte for byte, and remaining members keep their order."""
    old, new = member_values(raw), member_values(spliced)
    old_keys, new_keys = keys_as_written(raw), keys_as_written(spliced)
    for key in before.keys() & after.keys():
        assert new_keys[key] == old_keys[key]
        if same(before[key], after[key]):
            assert new[key] == old[key]
        elif isinstance(before[key], dict) and isinstance(after[key], dict):
            check_kept(old[key], new[key], before[key], after[key])
    assert [k for k in new if k in old] == [k for k in old if k in after]


@given(st.data())
def test_splice_without_a_difference_changes_nothing(data: st.DataObject) -> None:
    """Even if the text contains a third value."""
    value = data.draw(OBJECTS)
    raw = data.draw(texts_of(data.draw(OBJECTS)))
    assert splice(raw, value, json.loads(json.dumps(value))) == raw


def merged(text: Any, before: Any, after: Any) -> Any:
    """Model of a three-way merge: the difference, applied to the value of the text."""
    if isinstance(text, dict) and isinstance(before, dict) and isinstance(after, dict):
        result = {k: v for k, v in text.items() if k in after or k not in before}
        for key, value in after.items():
            if key not in before or not same(before[key], value):
                known = key in text and key in before
                result[key] = merged(text[key], before[key], value) if known else value
        return result
    if isinstance(text, list) and isinstance(before, list) and isinstance(after, list) and len(text) == len(before):
        return merged_list(text, before, after)
    return after


def merged_list(text: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    shorter = min(len(before), len(after))
    head = 0
    while head < shorter and same(before[head], after[head]):
        head += 1
    tail = 0
    while tail < shorter - head and same(before[-1 - tail], after[-1 - tail]):
        tail += 1
    end = len(before) - tail
    middle = [merged(text[i], before[i], after[i]) if i < end else after[i] for i in range(head, len(after) - tail)]
    return text[:head] + middle + text[end:]


@given(st.data())
@settings(max_examples=300)
def test_splice_into_another_text_is_a_three_way_merge(data: st.DataObject) -> None:
    """Only the difference between before and after is applied; the rest of the text is kept."""
    text, before, after = data.draw(OBJECTS), data.draw(OBJECTS), data.draw(OBJECTS)
    raw = data.draw(texts_of(text))
    spliced = splice(raw, before, after)
    assert same(json_text.parse(spliced, "x"), merged(text, before, after))
    old, new = member_values(raw), member_values(spliced)
    for key in text.keys() - before.keys() - after.keys():
        assert new[key] == old[key]


@given(st.data())
def test_spliced_text_can_be_spliced_again(data: st.DataObject) -> None:
    """With values that were not parsed from it."""
    values = [data.draw(OBJECTS) for _ in range(4)]
    raw = data.draw(texts_of(values[0]))
    for before, after in pairwise(values):
        raw = splice(raw, before, after)
    assert same(json_text.parse(raw, "x"), values[-1])


@given(st.data())
def test_unchanged_array_elements_keep_their_bytes(data: st.DataObject) -> None:
    """When elements are inserted, removed or changed."""
    items = data.draw(st.lists(ALIKE, min_size=1, max_size=6))
    at = data.draw(st.integers(0, len(items)))
    gone = data.draw(st.integers(0, min(2, len(items) - at)))
    added = data.draw(st.lists(st.integers(10, 99), max_size=2))
    changed = items[:at] + added + items[at + gone :]
    raw = data.draw(texts_of({"l": items}))
    spliced = splice(raw, {"l": items}, {"l": changed})
    assert same(json_text.parse(spliced, "x"), {"l": changed})
    old, new = element_texts(raw), element_texts(spliced)
    assert new[:at] == old[:at]
    if items[at + gone :]:
        assert new[-len(items[at + gone :]) :] == old[at + gone :]


def element_texts(raw: bytes) -> list[bytes]:
    array = member_values(raw)["l"]
    return [array[start:stop] for start, stop in json_text.elements(array)]


def test_splice_keeps_the_layout() -> None:
    """New members are put on separate lines if the existing ones are."""
    pretty = b'{\n  "a": 1,\n  "m": {\n    "k": "v"\n  }\n}\n'
    assert splice(pretty, {"a": 1}, {"a": 1, "b": {"c": [2]}}) == (
        b'{\n  "a": 1,\n  "b": {\n    "c": [\n      2\n    ]\n  },\n  "m": {\n    "k": "v"\n  }\n}\n'
    )
    assert splice(b'{"a":1}', {"a": 1}, {"a": 1, "b": {"c": [2]}}) == b'{"a":1,"b":{"c":[2]}}'
    assert splice(b'{"a": 1, "z": 3}', {"a": 1}, {"a": 1, "b": 2}) == b'{"a": 1, "b": 2, "z": 3}'
    assert splice(b'{"a: b":1}', {}, {"b": 2}) == b'{"b":2,"a: b":1}'


def test_empty_object_gets_the_layout_of_its_container() -> None:
    assert splice(b'{\n  "m": {}\n}', {"m": {}}, {"m": {"k": 1}}) == b'{\n  "m": {\n    "k": 1\n  }\n}'
    assert splice(b'{"m":{ }}', {"m": {}}, {"m": {"k": 1}}) == b'{"m":{"k":1}}'
    assert splice(b"{}", {}, {"k": [1]}) == json_text.render({"k": [1]})
    assert splice(b'{\n  "m": {\n    "k": 1\n  }\n}', {"m": {"k": 1}}, {"m": {}}) == b'{\n  "m": {}\n}'


def test_concurrent_changes_of_a_map_are_kept() -> None:
    """Keys that another writer added or removed are neither lost nor restored."""
    before, after = {"m": {"a": "1", "b": "2"}}, {"m": {"a": "1", "b": "3"}}
    assert splice(b'{"m":{"a":"9","c":"4"}}', before, after) == b'{"m":{"a":"9","b":"3","c":"4"}}'
    assert splice(b'{"m":{}}', before, after) == b'{"m":{"b":"3"}}'
    assert splice(b'{"m":{"a":"1","c":"4"}}', {"m": {"a": "1"}}, {"m": {}}) == b'{"m":{"c":"4"}}'


def test_new_members_follow_their_predecessor() -> None:
    """Existing members keep the order of the text; new ones follow the order of `after`."""
    raw = b'{"z":1,"b":2,"x":3}'
    assert splice(raw, {"b": 2}, {"a": 0, "b": 2, "c": 3, "d": 4}) == b'{"a":0,"z":1,"b":2,"c":3,"d":4,"x":3}'


def test_unchanged_numbers_keep_their_digits() -> None:
    """Rule 5."""
    raw = b'{"a":1.50,"b":1E2,"c":[1.0e1,2.50],"d":100000000000000000000000}'
    value = json_text.parse(raw, "x")
    after = {**value, "a": 2.5, "c": [10.0, 3.5]}
    assert splice(raw, value, after) == b'{"a":2.5,"b":1E2,"c":[1.0e1,3.5],"d":100000000000000000000000}'


def test_true_and_one_differ() -> None:
    """A boolean that becomes a number is written, although Python considers them equal."""
    assert splice(b'{"a":true,"b":[1]}', {"a": True, "b": [1]}, {"a": 1, "b": [1.0]}) == b'{"a":1,"b":[1.0]}'


ALIASES = {"task_list": "todo_list", "reference": "ref"}


def test_member_is_changed_under_the_spelling_of_the_text() -> None:
    """Adding the other spelling would make a duplicate field."""
    before, after = {"task_list": {"n": 1}}, {"task_list": {"n": 2}}
    raw = b'{"a": 0, "todo_list": {"n":  1 , "x": 5}}'
    assert splice(raw, before, after, aliases=ALIASES) == b'{"a": 0, "todo_list": {"n":  2 , "x": 5}}'
    assert splice(raw, before, {}, aliases=ALIASES) == b'{"a": 0}'
    assert splice(b'{"a":0}', {}, after, aliases=ALIASES) == b'{"task_list":{"n":2},"a":0}'


def test_aliases_apply_inside_arrays() -> None:
    """The items of a task list have aliased members."""
    before, after = {"e": [{"reference": "x"}, {"reference": "y"}]}, {"e": [{"reference": "x"}, {"reference": "z"}]}
    raw = b'{"e":[{"ref":"x"},{"ref":"y"}]}'
    assert splice(raw, before, after, aliases=ALIASES) == b'{"e":[{"ref":"x"},{"ref":"z"}]}'


def test_free_form_map_may_have_both_spellings() -> None:
    """In maps such as metadata, aliases do not apply."""
    before, after = {"m": {"ref": "x"}}, {"m": {"ref": "x", "reference": "y"}}
    spliced = splice(b'{"m":{"ref":"x"}}', before, after, aliases=ALIASES)
    assert spliced == b'{"m":{"ref":"x","reference":"y"}}'


def test_splicing_many_new_members_takes_linear_time() -> None:
    """100,000 members took minutes when each was searched for in the whole object."""
    before = {f"k{n:06}": n for n in range(0, 100_000, 2)}
    after = {f"k{n:06}": n + 1 for n in range(100_000)}
    began = time.process_time()
    spliced = splice(json_text.render(before), before, after)
    assert time.process_time() - began < 10
    assert list(json.loads(spliced).items()) == list(after.items())
