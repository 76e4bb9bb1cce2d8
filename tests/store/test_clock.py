"""A clock that jumps, and timestamps of the past and the future."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from store import Conflict, Message, Store, Timestamp
from tests.builders import NINE_DIGITS, make_document, make_session
from tests.store.rejection import MAIN, S1, rejected


def test_updated_at_increases_after_the_clock_jumped_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every write, and without conflicts."""
    session = make_session("s1")
    store.save(session)
    year_ago = time.time_ns() - 365 * 86_400 * 10**9
    monkeypatch.setattr("store.model.timestamp.time.time_ns", lambda: year_ago)
    assert Timestamp.now().ns == year_ago
    seen = [session.updated_at.ns]

    def grew() -> None:
        loaded, entry = store.load("s1"), store.entry("s1")
        assert loaded is not None
        assert entry is not None
        assert loaded.updated_at.ns == entry.updated_at.ns > seen[-1]
        seen.append(loaded.updated_at.ns)

    session.title = "one"
    store.save(session)
    grew()
    store.append(session, [Message.user("two")])
    grew()
    store.append("s1", [Message.user("three")])
    grew()
    store.update("s1", lambda s: setattr(s, "title", "four"))
    grew()
    runtime = store.load_runtime("s1")
    assert runtime is not None
    runtime.title = "five"
    store.save_runtime(runtime)
    grew()
    session = store.load("s1") or session
    session.add_message(Message.user("six"))
    store.save(session)
    grew()
    store.clear("s1")
    grew()


def test_only_an_older_updated_at_is_a_conflict(store: Store, home: Path) -> None:
    """The documents are compared, not the clock."""
    store.put_document(S1, MAIN, make_document("s1"))
    with rejected(home, Conflict, "the newer version is kept"):
        store.put_document(S1, MAIN, make_document("s1", title="old", updated_at="2026-06-20T08:15:30.123456788Z"))
    assert store.put_document(S1, MAIN, make_document("s1", title="same moment", updated_at=NINE_DIGITS))


def test_session_with_a_future_updated_at_can_be_written(store: Store) -> None:
    """Up to the last valid timestamp."""
    for moment in ("2999-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z"):
        store.put_document("s1", MAIN, make_document("s1", updated_at=moment))
        store.append("s1", [Message.user("x")])
        session = store.load("s1")
        assert session is not None
        assert session.updated_at.ns >= Timestamp(moment).ns
        session.title = moment
        store.save(session)
        store.update("s1", lambda s: setattr(s, "title", "again"))
