"""The size limit of documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store import Corrupt, Message, Store, TooLarge
from tests.builders import make_document, make_session
from tests.store.rejection import MAIN, MAIN_PATH, S1, SIDE, open_store, rejected

LIMIT = 4000


@pytest.fixture
def limited(home: Path) -> Iterator[Store]:
    with open_store(home, limit_bytes=LIMIT) as store:
        store.save(make_session("s1"))
        yield store
        assert store.check().is_clean


def test_document_of_exactly_the_limit_is_accepted(limited: Store) -> None:
    """The limit is inclusive."""
    raw = make_document("s2", title="")
    exact = make_document("s2", title="x" * (LIMIT - len(raw)))
    assert len(exact) == LIMIT
    assert limited.put_document("s2", MAIN, exact)
    assert limited.load("s2") is not None


def test_put_of_a_too_large_document_is_rejected(limited: Store, home: Path) -> None:
    """TooLarge states the size and the limit."""
    raw = make_document("s1", title="x" * LIMIT)
    with rejected(home, TooLarge, MAIN_PATH, f"size is {len(raw)} bytes, over the limit of {LIMIT} bytes"):
        limited.put_document(S1, MAIN, raw)
    with rejected(home, TooLarge, "runtime.json", "over the limit"):
        limited.put_document(S1, SIDE, make_document("s1", title="x" * LIMIT, messages=[]))


def save_runtime_with(store: Store, title: str) -> None:
    session = store.load_runtime("s1")
    assert session is not None
    session.title = title
    store.save_runtime(session)


TOO_LARGE_SAVES: dict[str, Callable[[Store], Any]] = {
    "a new session": lambda store: store.save(make_session("s2", title="x" * LIMIT)),
    "an old session": lambda store: store.update("s1", lambda s: setattr(s, "title", "x" * LIMIT)),
    "many small members": lambda store: store.update(
        "s1", lambda s: s.metadata.update({str(i): "" for i in range(LIMIT)})
    ),
    "a sidecar": lambda store: save_runtime_with(store, "x" * LIMIT),
}


@pytest.mark.warns
@pytest.mark.parametrize("name", list(TOO_LARGE_SAVES))
def test_save_of_a_too_large_session_is_rejected(home: Path, name: str) -> None:
    """A document that could not be read again is not written, new or existing."""
    with open_store(home, limit_bytes=LIMIT) as store:
        store.save(make_session("s1"))
        with rejected(home, TooLarge, "over the limit"):
            TOO_LARGE_SAVES[name](store)
        assert store.check().is_clean


def test_append_over_the_limit_is_rejected(limited: Store, home: Path) -> None:
    """With and without append offsets; the session stays readable."""
    size = len((home / MAIN_PATH).read_bytes())
    while size + 500 < LIMIT:
        limited.append("s1", [Message.user("x" * 200)])
        size = len((home / MAIN_PATH).read_bytes())
    with rejected(home, TooLarge, MAIN_PATH, "over the limit"):
        limited.append("s1", [Message.user("x" * 500)])
    loaded = limited.load("s1")
    assert loaded is not None
    assert len(loaded.messages) > 5


@pytest.mark.warns
def test_too_large_document_on_disk_is_reported(home: Path) -> None:
    """It is not read; other sessions are not affected."""
    with open_store(home) as store:
        store.save(make_session("s1", title="x" * LIMIT))
        store.save(make_session("s2"))
    with open_store(home, limit_bytes=LIMIT) as store:
        with rejected(home, Corrupt, MAIN_PATH, f"over the limit of {LIMIT}"):
            store.load("s1")
        assert store.load("s2") is not None
        with rejected(home, Corrupt, MAIN_PATH):
            store.append("s1", [Message.user("x")])
    with open_store(home) as store:
        assert store.load("s1") is not None
