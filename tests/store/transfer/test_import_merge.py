"""Merging a grown source into a session that was changed here."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from store.transfer.import_merge import merge_import
from store.transfer.import_receipts import Receipt, digest_members, digest_messages

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def session(*messages: tuple[str, str], **members: Any) -> dict[str, Any]:
    found = [{"id": id, "role": "user", "content": content} for id, content in messages]
    return {"id": "s", "title": "T", "pinned": False, "metadata": {}, "updated_at": OLD, **members, "messages": found}


def receipt(data: dict[str, Any]) -> Receipt:
    return Receipt("f", "s", {}, digest_messages(data), digest_members(data))


def said(data: dict[str, Any]) -> list[tuple[str, str]]:
    return [(message["id"], message["content"]) for message in data["messages"]]


BASE = session(("1", "a"), ("2", "b"))


def test_pinned_and_retitled_session_grows() -> None:
    here = {**BASE, "pinned": True, "title": "Mine", "metadata": {"tag": "x"}}
    source = {**session(("1", "a"), ("2", "b"), ("3", "c"), metadata={"status": "done"}), "updated_at": NEW}
    merged = merge_import(receipt(BASE), here, source)
    assert said(merged.data) == [("1", "a"), ("2", "b"), ("3", "c")]
    assert (merged.data["pinned"], merged.data["title"], merged.data["updated_at"]) == (True, "Mine", NEW)
    assert merged.data["metadata"] == {"tag": "x", "status": "done"}
    assert (merged.clashes, merged.lost) == ([], 0)


def test_message_changed_on_both_sides_is_kept_and_named() -> None:
    here, source = session(("1", "mine"), ("2", "b")), session(("1", "theirs"), ("2", "B"))
    merged = merge_import(receipt(BASE), here, source)
    assert said(merged.data) == [("1", "mine"), ("2", "B")]
    assert merged.clashes == ["1"]


def test_deleted_message_does_not_come_back() -> None:
    merged = merge_import(receipt(BASE), session(("2", "b")), session(("1", "a"), ("2", "b"), ("3", "c")))
    assert said(merged.data) == [("2", "b"), ("3", "c")]


def test_message_lost_in_the_source_stays() -> None:
    merged = merge_import(receipt(BASE), session(("1", "a"), ("2", "b")), session(("2", "b"), ("3", "c")))
    assert said(merged.data) == [("1", "a"), ("2", "b"), ("3", "c")]
    assert merged.lost == 1


def test_messages_added_on_both_sides_stay() -> None:
    here, source = (
        session(("1", "a"), ("2", "b"), ("h", "mine")),
        session(("0", "z"), ("1", "a"), ("2", "b"), ("3", "c")),
    )
    merged = merge_import(receipt(BASE), here, source)
    assert said(merged.data) == [("0", "z"), ("1", "a"), ("2", "b"), ("h", "mine"), ("3", "c")]


def test_title_changed_by_the_source_is_taken() -> None:
    assert merge_import(receipt(BASE), {**BASE, "pinned": True}, {**BASE, "title": "New"}).data["title"] == "New"


MESSAGES = st.lists(st.tuples(st.sampled_from("123456"), st.sampled_from("abc")), unique_by=lambda pair: pair[0])


@given(MESSAGES, MESSAGES, MESSAGES)
def test_no_message_of_here_is_lost_and_no_new_one_of_the_source(base: Any, here: Any, source: Any) -> None:
    was, mine, theirs = session(*base), session(*here), session(*source)
    merged = merge_import(receipt(was), mine, theirs).data
    ids = [id for id, _ in said(merged)]
    assert len(ids) == len(set(ids))
    assert {id for id, _ in here} <= set(ids)
    assert {id for id, _ in source} - {id for id, _ in base} <= set(ids)
    for id, content in here:  # a change made here stays
        if (id, content) not in base:
            assert (id, content) in said(merged)


@given(MESSAGES, MESSAGES)
def test_unchanged_session_becomes_the_source(base: Any, source: Any) -> None:
    grown = [*base, *(pair for pair in source if pair[0] not in {id for id, _ in base})]
    assert said(merge_import(receipt(session(*base)), session(*base), session(*grown)).data) == grown
