"""put_document: what changes in the files and in the index."""

from __future__ import annotations

import json
import time

import apsw
import pytest

from store import Message, Session, Store
from tests.builders import make_session


def test_search_rows_follow_a_new_order_of_keys(store: Store) -> None:
    """The messages say the same, but the digests of their rows depend on the order of keys."""
    store.save(make_session("s1"))
    raw = store.get_document("s1", "session.json")
    assert raw is not None
    document = json.loads(raw)
    document["messages"] = [dict(reversed(message.items())) for message in document["messages"]]
    assert store.put_document("s1", "session.json", json.dumps(document).encode())
    assert store.check().is_clean


def test_put_that_changes_no_message_is_searchable_and_clean(store: Store) -> None:
    store.save(make_session("s1"))
    raw = store.get_document("s1", "session.json")
    assert raw is not None
    document = json.loads(raw) | {"title": "Quokka"}
    store.put_document("s1", "session.json", json.dumps(document, indent=1).encode())
    assert [hit.title for hit in store.search("quokka")] == ["Quokka"]
    store.append("s1", [])
    assert store.check().is_clean


@pytest.mark.parametrize("is_complete", [True, False])
def test_put_adds_directories_only_to_a_session_without_a_sidecar(store: Store, *, is_complete: bool) -> None:
    """A new session gets them. Somebody has removed those of a session that has both documents."""
    store.save(make_session("s1"))
    directory = store.home / "sessions/s1"
    raw = (directory / "session.json").read_bytes()
    for name in ("attachments", "children"):
        (directory / name).rmdir()
    if not is_complete:
        (directory / "runtime.json").unlink()
    assert store.put_document("s1", "session.json", raw + b"\n")
    assert (directory / "attachments").exists() is (directory / "children").exists() is (not is_complete)
    assert store.attach("s1", b"bytes", "image/png")
    assert store.check().is_clean


@pytest.mark.parametrize("word", ["word ", "x"], ids=["words", "one word"])
def test_b10_a_giant_text_does_not_stay_in_memory(store: Store, word: str) -> None:
    store.save(make_session("s1"))
    before = apsw.memory_used()
    size = 20_000_000
    store.append("s1", [Message.user(word * (size // len(word)))])
    assert apsw.memory_used() - before < size / 4
    assert store.search("word" if word == "word " else "xx*")


def test_b10_the_cost_of_a_key_does_not_grow_with_their_number(store: Store) -> None:
    def seconds(keys: int) -> float:
        session = Session.new(f"keys-{keys}", "m")
        store.save(session)
        raw = store.get_document(session.id, "session.json")
        assert raw is not None
        document = json.dumps(json.loads(raw) | {f"key{number}": number for number in range(keys)}).encode()
        began = time.process_time()
        assert store.put_document(session.id, "session.json", document)
        return time.process_time() - began

    seconds(1_000)
    few, many = seconds(10_000), seconds(100_000)
    assert many < 30 * few, "10 times if linear, 100 times if quadratic"
