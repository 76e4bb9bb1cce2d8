"""No id, name or reference leads out of the sessions directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store import InvalidContent, InvalidName, Location, Message, Session, Store
from tests.builders import make_document, make_session
from tests.store.rejection import GOOD, MAIN, SIDE, open_store, rejected

TRAVERSAL = [
    "..",
    "../x",
    "../../outside",
    "/etc/passwd",
    "a/../..",
    "s1/..",
    "../s1",
    ".",
    "",
    "s1\0",
    "a\\b",
    "s1/c/d",
    "\udcff",
]
BY_ID: dict[str, Callable[[Store, str], Any]] = {
    "load": lambda store, i: store.load(i),
    "load_runtime": lambda store, i: store.load_runtime(i),
    "update": lambda store, i: store.update(i, lambda session: None),
    "append": lambda store, i: store.append(i, [Message.user("x")]),
    "put_document": lambda store, i: store.put_document(i, MAIN, GOOD),
    "get_document": lambda store, i: store.get_document(i, MAIN),
    "delete": lambda store, i: store.delete(i, force=True),
    "clear": lambda store, i: store.clear(i),
    "entry": lambda store, i: store.entry(i),
    "location": lambda store, i: store.location(i),
    "children": lambda store, i: store.children(i),
    "attach": lambda store, i: store.attach(i, b"x", "image/png"),
    "read_attachment": lambda store, i: store.attachments.read(i, "a1"),
    "read_attachment's id": lambda store, i: store.attachments.read("s1", i),
    "append_token_usage": lambda store, i: store.usage.append(i, {"x": 1}),
    "put_document at a root": lambda store, i: store.put_document(Location(i), MAIN, GOOD),
    "put_document at a child": lambda store, i: store.put_document(Location("s1", i), MAIN, GOOD),
    "put_document below a root": lambda store, i: store.put_document(Location(i, "c"), MAIN, GOOD),
    "put_document of a sidecar": lambda store, i: store.put_document(Location(i), SIDE, make_document(messages=[])),
    "get_document at a root": lambda store, i: store.get_document(Location(i), MAIN),
    "get_document at a child": lambda store, i: store.get_document(Location("s1", i), MAIN),
    "version": lambda store, i: store.version(Location(i)),
    "save": lambda store, i: store.save(make_session(i)),
    "save_runtime": lambda store, i: store.save_runtime(make_session(i)),
    "save a child": lambda store, i: store.save(Session.new_child(i, "s1", "m", "t")),
    "save below a root": lambda store, i: store.save(child_below(i)),
    "append to a session": lambda store, i: store.append(make_session(i), [Message.user("x")]),
    "attach to a session": lambda store, i: store.attach(make_session(i), b"x", "image/png"),
}


def child_below(root: str) -> Session:
    session = Session.new_child("c", "s1", "m", "t")
    session.root_session_id = root
    return session


@pytest.mark.parametrize("name", list(BY_ID))
def test_id_with_a_path_is_rejected(store: Store, home: Path, name: str) -> None:
    """By every method: InvalidName, and nothing is created or changed inside or outside the home."""
    store.save(make_session("s1"))
    around = sorted(home.parent.rglob("*"))
    for bad in TRAVERSAL:
        if name == "save below a root" and not bad.strip():
            continue  # a child without a root raises another error
        with rejected(home, InvalidName):
            BY_ID[name](store, bad)
    assert sorted(home.parent.rglob("*")) == around


def test_child_without_root_or_parent_is_rejected(store: Store, home: Path) -> None:
    """It would have no path."""
    for field in ("root_session_id", "parent_session_id"):
        session = Session.new_child("c", "s1", "m", "t")
        setattr(session, field, " ")
        with rejected(home, InvalidContent, field):
            store.save(session)


def test_attachment_reference_with_a_path_is_rejected(store: Store, home: Path) -> None:
    """`bamboo-attachment://` contains a session id and an attachment id, not a path."""
    store.save(make_session("s1"))
    for url in ("bamboo-attachment://../x", "bamboo-attachment://s1/../session", "bamboo-attachment://s1/a/../../x"):
        with rejected(home, InvalidName):
            store.attachments.resolve(url)
    assert store.attachments.resolve("https://example.org/x") is None


@pytest.mark.warns
def test_parent_id_with_a_path_is_not_followed(home: Path) -> None:
    """`check` reports that the parent does not exist."""
    with open_store(home) as store:
        store.save(make_session("s1"))
        raw = make_document("c", kind="child", root_session_id="s1", parent_session_id="../../../s1")
        store.put_document(Location("s1", "c"), MAIN, raw)
        kinds = [finding.kind for finding in store.check().findings]
        assert kinds == ["orphan-child"]
        assert store.delete("s1")
