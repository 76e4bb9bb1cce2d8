"""A mailbox message: validation, file name, and the set of ids a consumer keeps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import InboxMessage, InvalidContent, InvalidName, SeenIds, Timestamp
from store.workspace.mail_message import KINDS, SEEN_IDS_CAPACITY, parse_message

MINIMAL = {
    "id": "m1",
    "from": {"session_id": "boss"},
    "kind": "task",
    "body": None,
    "created_at": "2026-01-01T00:00:00Z",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), lambda inner: st.lists(inner), max_leaves=5
)


def raw(**members: Any) -> bytes:
    return json.dumps({**MINIMAL, **members}).encode()


def test_the_format_of_a_message_file() -> None:
    """Two spaces, no final newline, members in order, absent members omitted."""
    message = parse_message(raw(), "m")
    assert message.render().decode() == json.dumps(MINIMAL, indent=2)
    members = InboxMessage.new("boss", "reply", {"answer": "yes"}, role="planner", correlation_id="m0").model_dump()
    assert list(members) == ["id", "from", "kind", "body", "created_at", "correlation_id"]
    assert members["from"] == {"session_id": "boss", "role": "planner"}


@given(JSON, st.sampled_from(KINDS), st.text(min_size=1), st.none() | st.text())
def test_a_message_round_trips(body: Any, kind: str, sender: str, reply_to: str | None) -> None:
    message = InboxMessage.new(sender, kind, body, correlation_id=reply_to)
    assert parse_message(message.render(), "m") == message


def test_unknown_members_and_kinds_are_kept() -> None:
    """Rule 5. The consumer decides whether it knows a kind; the reader accepts any."""
    message = parse_message(raw(kind="of_the_future", priority={"level": 9}), "m")
    assert json.loads(message.render())["priority"] == {"level": 9}


@pytest.mark.parametrize(
    ("members", "what"),
    [
        ({"kind": "Not A Word"}, "kind: expected a lower-case word"),
        ({"created_at": "yesterday"}, "created_at: "),
        ({"from": "boss"}, "from: expected an object, got a string"),
        ({"from": {}}, "from.session_id: required member is missing"),
        ({"id": 5}, "id: expected a string, got a number"),
    ],
)
def test_errors_name_the_member_and_its_position(members: dict[str, Any], what: str) -> None:
    with pytest.raises(InvalidContent, match="m:1:") as caught:
        parse_message(raw(**members), "m")
    assert what in str(caught.value)


def test_the_body_is_required_and_may_be_null() -> None:
    without = {k: v for k, v in MINIMAL.items() if k != "body"}
    with pytest.raises(InvalidContent, match="body: required member is missing"):
        parse_message(json.dumps(without).encode(), "m")
    assert parse_message(raw(body=None), "m").body is None


def test_a_body_that_is_not_json_is_rejected_by_the_sender() -> None:
    with pytest.raises(InvalidContent, match="cannot be encoded as JSON"):
        InboxMessage.new("boss", "task", object()).render()


@pytest.mark.parametrize(
    ("created_at", "digits"),
    [
        ("2026-01-01T00:00:00.000000001Z", "01767225600000000001"),
        ("1970-01-01T00:00:00Z", "0" * 20),
        ("1969-12-31T23:59:59Z", "0" * 20),  # negative
        ("2999-01-01T00:00:00Z", "0" * 20),  # more nanoseconds than 63 bits hold
    ],
)
def test_the_file_name_consists_of_time_and_id(created_at: str, digits: str) -> None:
    assert parse_message(raw(created_at=created_at), "m").file_name == f"{digits}-m1.json"


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_file_names_sort_by_time(one: int, other: int) -> None:
    """The order of names is the order of delivery."""
    first, second = (parse_message(raw(created_at=Timestamp.from_ns(ns)), "m").file_name for ns in (one, other))
    assert (first < second) == (one < other)


@pytest.mark.parametrize("bad", ["", "a/b", "nul\0", "new\nline", "x" * 250])
def test_an_id_that_is_not_a_valid_file_name_cannot_be_sent(bad: str) -> None:
    """A message with such an id can be read."""
    message = parse_message(raw(id=bad), "m")
    with pytest.raises(InvalidName):
        _ = message.file_name


def test_an_id_is_admitted_once() -> None:
    seen = SeenIds()
    assert [seen.admit(i) for i in ("a", "b", "a")] == [True, True, False]
    assert "a" in seen
    assert "c" not in seen
    assert SeenIds.parse(seen.render()).render() == b'["a","b"]'


def test_the_oldest_ids_are_dropped() -> None:
    seen = SeenIds(str(i) for i in range(SEEN_IDS_CAPACITY + 2))
    assert len(seen) == SEEN_IDS_CAPACITY
    assert "1" not in seen
    assert "2" in seen


@pytest.mark.parametrize("text", [b"{", b"{}", b"[1]"])
def test_a_corrupt_set_of_ids_is_rejected(text: bytes) -> None:
    with pytest.raises(InvalidContent):
        SeenIds.parse(text)


def test_an_id_that_is_not_unicode_is_rejected() -> None:
    with pytest.raises(InvalidName, match="not Unicode"):
        assert InboxMessage.new("s", "task", 1).model_copy(update={"id": "\udcff"}).file_name
