"""Append offsets: an append changes the text at two offsets only."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store.documents import append_offsets, json_text
from store.documents.document import parse_document
from store.documents.json_splice import same
from store.model.timestamp import Timestamp
from tests.builders import NINE_DIGITS, make_document
from tests.store.documents.json_samples import LAYOUTS, write_randomly

NOW = Timestamp("2026-06-21T00:00:00Z")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=10) | st.sampled_from(["]", "[", '"]', "\\", "\n"])
MESSAGES = st.lists(
    st.builds(
        lambda text, extra: {"id": "m", "role": "user", "content": text, "created_at": NINE_DIGITS, "x": extra},
        TEXTS,
        st.none() | st.lists(st.integers(0, 9), max_size=3) | st.just({}) | st.just({"k": []}),
    ),
    max_size=4,
)
STAMPS = st.sampled_from(
    [NINE_DIGITS, "2026-06-20T08:15:30Z", "2026-06-20T08:15:30.5+02:00", "2026-06-20t08:15:30.25z"]
)


def members_in_any_order(messages: list[Any], updated_at: str, order: list[str]) -> dict[str, Any]:
    members: dict[str, Any] = {"id": "s1", "title": '"messages": []', "created_at": NINE_DIGITS, "unknown": [[]]}
    members |= {"messages": messages, "updated_at": updated_at, "metadata": {"updated_at": "x", "messages": "[]"}}
    return {key: members[key] for key in order}


ORDERS = st.permutations(["id", "title", "created_at", "unknown", "messages", "updated_at", "metadata"])


def check_append(raw: bytes, added: list[dict[str, Any]]) -> bytes:
    """Append at the offsets, and check everything that must be true of the result."""
    main = parse_document(raw, "session.json")
    found = append_offsets.find(main)
    assert append_offsets.still_valid(raw, found)
    parts, cuts, moved = append_offsets.splice_messages(raw, found, added, NOW)
    new = b"".join(parts)
    result = parse_document(new, "session.json")
    assert same(result.data, {**main.data, "messages": main.data["messages"] + added, "updated_at": NOW})
    assert list(result.data) == list(main.data)
    assert append_offsets.find(result) == moved
    assert append_offsets.still_valid(new, moved)
    check_bytes_kept(raw, new)
    spliced = raw
    for start, end, text in reversed(cuts):
        spliced = spliced[:start] + text + spliced[end:]
    assert spliced == new
    return new


def check_bytes_kept(raw: bytes, new: bytes) -> None:
    """All other members keep their bytes, from comma to comma; so do the existing messages."""
    old_members, new_members = ({m.key: m for m in json_text.members(d, len(d) - len(d.lstrip()))} for d in (raw, new))
    for key, old in old_members.items():
        now = new_members[key]
        assert new[now.chunk_start : now.start] == raw[old.chunk_start : old.start]
        assert new[now.end : now.chunk_end] == raw[old.end : old.chunk_end]
        if key not in ("messages", "updated_at"):
            assert new[now.start : now.end] == raw[old.start : old.end]
    old, now = old_members["messages"], new_members["messages"]
    kept = raw[old.start : old.end - 1].rstrip()
    assert new[now.start :].startswith(kept)
    assert new[: len(raw) - len(raw.lstrip())] == raw[: len(raw) - len(raw.lstrip())]
    assert new[len(new.rstrip()) :] == raw[len(raw.rstrip()) :]


@given(st.data())
@settings(max_examples=300)
def test_messages_are_appended_in_any_layout(data: st.DataObject) -> None:
    """The messages are added, every other byte is kept, and the offsets are updated."""
    value = members_in_any_order(data.draw(MESSAGES), data.draw(STAMPS), data.draw(ORDERS))
    layout = data.draw(st.sampled_from(LAYOUTS))
    raw = json.dumps(value, ensure_ascii=False, **layout).encode() + data.draw(st.sampled_from([b"", b"\n"]))
    for _ in range(data.draw(st.integers(1, 3))):
        raw = check_append(raw, data.draw(MESSAGES.filter(bool)))


@given(st.data())
@settings(max_examples=200)
def test_messages_are_appended_to_randomly_formatted_text(data: st.DataObject) -> None:
    """With white space and escapes anywhere. If updated_at itself is escaped, the offsets are invalid."""
    value = members_in_any_order(data.draw(MESSAGES), data.draw(STAMPS), data.draw(ORDERS))
    raw = write_randomly(value, data.draw(st.randoms(use_true_random=False))).encode()
    main = parse_document(raw, "session.json")
    found = append_offsets.find(main)
    if append_offsets.still_valid(raw, found):
        check_append(raw, data.draw(MESSAGES.filter(bool)))
    else:
        assert b"\\" in raw[found.updated_at : found.updated_at + 130]


MESSAGE = {"id": "m2", "role": "user", "content": "new", "created_at": NINE_DIGITS}


@pytest.mark.parametrize("empty", ["[]", "[ ]", "[\n  ]", "[\n\n]", "[\t\r\n\t]", "[" + " " * 50 + "]"])
@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("indent", [None, 0, 2, 4])
def test_first_message_is_inserted_into_an_empty_array(empty: str, is_last: bool, indent: int | None) -> None:
    """However the array is written, and with updated_at before or after it."""
    value = {"id": "s1", "created_at": NINE_DIGITS, "updated_at": NINE_DIGITS, "messages": "HERE"}
    if not is_last:
        value = {"id": "s1", "messages": "HERE", "created_at": NINE_DIGITS, "updated_at": NINE_DIGITS}
    raw = json.dumps(value, indent=indent).replace('"HERE"', empty).encode()
    new = check_append(raw, [MESSAGE])
    check_append(new, [MESSAGE, MESSAGE])


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("before", [True, False])
def test_indented_document_keeps_the_layout_of_serde(count: int, before: bool) -> None:
    """Two spaces per level: Bamboo's own layout is unchanged by an append."""
    value: dict[str, Any] = {"id": "s1", "created_at": NINE_DIGITS, "updated_at": NINE_DIGITS}
    value = {**value, "messages": [MESSAGE] * count} if before else {"messages": [MESSAGE] * count, **value}
    added: list[dict[str, Any]] = [MESSAGE, {**MESSAGE, "x": {"y": [1]}}]
    new = check_append(json_text.render(value), added)
    assert new == json_text.render({**value, "messages": [MESSAGE] * count + added, "updated_at": NOW})


def test_compact_document_stays_on_one_line() -> None:
    value = {"id": "s1", "messages": [MESSAGE], "created_at": NINE_DIGITS, "updated_at": NINE_DIGITS}
    new = check_append(json_text.render_compact(value), [MESSAGE])
    assert new == json_text.render_compact({**value, "messages": [MESSAGE] * 2, "updated_at": NOW})


@pytest.mark.parametrize("indent", [0, 1, 4, "\t"])
def test_new_messages_are_indented_like_existing_ones(indent: int | str) -> None:
    """With indentations other than serde's."""
    value = json.loads(make_document())
    new = check_append(json.dumps(value, indent=indent).encode(), [MESSAGE])
    step = indent if isinstance(indent, str) else " " * indent
    assert new.decode().count(f"\n{step * 2}{{") == 2


def test_offsets_are_invalid_for_another_text() -> None:
    """So a file that another program changed is not corrupted."""
    raw = make_document()
    found = append_offsets.find(parse_document(raw, "session.json"))
    assert append_offsets.still_valid(raw, found)
    assert not append_offsets.still_valid(raw, found._replace(updated_at_text="2026-06-20T08:15:30Z"))
    assert not append_offsets.still_valid(raw, found._replace(append_at=found.append_at - 1))
    assert not append_offsets.still_valid(raw, found._replace(updated_at=found.updated_at + 1))
    assert not append_offsets.still_valid(raw, found._replace(append_at=10**9))
    assert not append_offsets.still_valid(b" " + raw, found)
    assert not append_offsets.still_valid(b"", found)


def test_append_does_not_copy_the_old_text() -> None:
    """The parts around the insertions are views of the input."""
    raw = make_document()
    parts, _, _ = append_offsets.splice_messages(raw, append_offsets.find(parse_document(raw, "x")), [MESSAGE], NOW)
    views = [part for part in parts if isinstance(part, memoryview)]
    assert len(views) == 3
    assert all(view.obj is raw for view in views)
