"""Edits by other programs while a store is open are indexed within a second; own commits are not read again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store import Message, ProjectSession, Session, Store
from tests.builders import make_document, make_session


@pytest.fixture
def watched(home: Path) -> Iterator[Store]:
    with Store.open(home, durability="normal") as store:
        yield store
        assert store.check().is_clean


def soon(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0  # one second by design; a busy machine may take longer
    while not is_so():
        assert time.monotonic() < deadline, "not within a second"
        time.sleep(0.01)


def test_edit_in_place_is_indexed(watched: Store, home: Path) -> None:
    """A session is watched once it has been loaded (rule 7)."""
    watched.save(make_session())
    assert watched.load("s1") is not None
    path = home / "sessions/s1/session.json"
    path.write_bytes(path.read_bytes().replace(b"msg-0", b"edited-outside"))
    soon(lambda: bool(watched.search("edited-outside")))


def test_edit_by_rename_is_indexed(watched: Store, home: Path) -> None:
    watched.save(make_session())
    watched.load("s1")
    path = home / "sessions/s1/runtime.json"
    text = path.read_bytes().replace(b'"title": "New Session"', b'"title": "From outside"')
    path.with_name("new").write_bytes(text)
    path.with_name("new").rename(path)
    soon(lambda: [e.title for e in watched.entries()] == ["From outside"])


def test_session_created_and_removed_by_hand_is_indexed(watched: Store, home: Path) -> None:
    """A root, and a child of a root in use."""
    directory = home / "sessions/by-hand"
    directory.mkdir()
    (directory / "session.json").write_bytes(make_document("by-hand"))
    soon(lambda: [e.id for e in watched.entries()] == ["by-hand"])
    child = directory / "children/kid"
    child.mkdir(parents=True)
    watched.save(Session.new_child("other", "by-hand", "m", "t"))
    shutil.rmtree(directory)
    soon(lambda: watched.entries() == [])


def test_own_commits_are_not_read_again(watched: Store) -> None:
    """The feed has each of them once."""
    watched.save(make_session())
    cursor = watched.feed.since().cursor
    for _ in range(10):
        watched.append("s1", [Message.user("x")])
    time.sleep(0.4)  # longer than the delay of the watcher
    assert [c.what for c in watched.feed.since(cursor).items] == ["appended"] * 10


def test_payloads_and_state_documents_in_use_are_watched(watched: Store, home: Path) -> None:
    """Their index files and search rows are updated."""
    member = ProjectSession("k", "p", "c")
    watched.projects.save(member, {"title": "before"})
    watched.projects.load(member)
    (home / member.payload).write_text('{"title": "after"}')
    soon(lambda: [entry.title for entry in watched.projects.children("k", "p")] == ["after"])
    watched.state.save_markdown("notes", "x", "before")
    watched.state.load_markdown("notes", "x")
    (home / "state/notes/x.md").write_text("edited-outside")
    soon(lambda: bool(watched.search("edited-outside")))
