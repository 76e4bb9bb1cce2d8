"""put_document: what changes in the files and in the index."""

from __future__ import annotations

import json

from store import Store
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
