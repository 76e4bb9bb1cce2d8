"""A fork copies a session and its files to another id; the original does not change."""

from __future__ import annotations

import json
import os
import re

import pytest

from store import (
    AgentRuntimeState,
    AlreadyExists,
    InvalidContent,
    InvalidName,
    Location,
    Message,
    NotEmpty,
    NotFound,
    Session,
    Store,
)
from store.model.runtime_state import WaitingForChildren
from tests.builders import NINE_DIGITS, files_below, make_document, make_session, read_json


@pytest.fixture
def family(store: Store) -> Store:
    root = make_session("root", title="The root")
    store.save(root)
    child = Session.new_child_of("child", root, "m", "A child")
    child.add_message(Message.user("from the child"))
    store.save(child)
    store.save(Session.new_child_of("grandchild", child, "m", "A grandchild"))
    store.usage.append("root", {"ts": "2026-01-01T00:00:00Z", "total_tokens": 5})
    return store


def test_a_root_is_forked_with_its_children(family: Store) -> None:
    """Rule 9 for every copy: ids match the path."""
    before = files_below(family.home)
    places = [Location("copy"), Location("copy", "child-2"), Location("copy", "grandchild-2")]
    assert family.fork("root", "copy") == places
    after = files_below(family.home)
    assert {path: raw for path, raw in after.items() if path.startswith("root/")} == before
    names = ("id", "kind", "root_session_id", "parent_session_id", "spawn_depth")
    found = {str(place): [getattr(family.load(str(place)), n) for n in names] for place in places}
    assert found == {
        "copy": ["copy", "root", "copy", None, 0],
        "copy/child-2": ["child-2", "child", "copy", "copy", 1],
        "copy/grandchild-2": ["grandchild-2", "child", "copy", "child-2", 2],
    }
    assert after["copy/token-usage.jsonl"] == before["root/token-usage.jsonl"]
    assert len(family.search("from the child")) == 2  # rule 7: index and search follow


def test_c1_forked_children_get_unused_ids(family: Store) -> None:
    """Bamboo and `load` find every session, original or copy, by its id alone."""
    family.save(Session.new_child("8c0ff5c7-96b1-4b3a-9a86-5a1cf4a6f6f0", "root", "m", "by Bamboo"))
    family.fork("root", "copy")
    copies = [location for location in family.fork("root", "second") if location.child is not None]
    assert [location.id for location in copies][1:] == ["child-3", "grandchild-3"]
    assert re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", copies[0].id)
    family.maintenance.export_sessions_json()
    exported = read_json(family.home / "sessions.json")["sessions"]
    assert {id: entry["rel_path"] for id, entry in exported.items()} == {e.id: e.rel_path for e in family.entries()}
    assert len(exported) == family.count() == 12


def test_c1_references_to_forked_children_are_updated(family: Store) -> None:
    """The children a session waits for, and attachments of any session that is copied."""
    attached = family.attach("child", b"\x89PNG data", "image/png")
    family.append("root", [Message.user(f'see {attached.url} "escaped"')])
    root = family.load("root")
    assert root is not None
    waiting = {"child_session_ids": ["child", "elsewhere"], "wait_for": "all", "registered_at": NINE_DIGITS}
    root.agent_runtime_state = AgentRuntimeState.new("run")
    root.agent_runtime_state.waiting_for_children = WaitingForChildren.model_validate(waiting)
    family.save(root)
    family.fork("root", "copy")
    copy = family.load("copy")
    assert copy is not None
    assert copy.messages[-1].content == f'see bamboo-attachment://child-2/{attached.id} "escaped"'
    assert copy.agent_runtime_state is not None
    assert copy.agent_runtime_state.waiting_for_children is not None
    assert copy.agent_runtime_state.waiting_for_children.child_session_ids == ["child-2", "elsewhere"]
    assert family.attachments.read("child-2", attached.id) == (b"\x89PNG data", "image/png")


def test_a_fork_refers_to_its_own_attachments(family: Store) -> None:
    attached = family.attach("root", b"\x89PNG data", "image/png")
    family.append("root", [Message.user(f"look at {attached.url}")])
    family.fork("root", "copy")
    copy = family.load("copy")
    assert copy is not None
    assert copy.messages[-1].content == f"look at bamboo-attachment://copy/{attached.id}"
    assert family.attachments.read("copy", attached.id) == (b"\x89PNG data", "image/png")
    entry = family.entry("copy")
    assert entry is not None
    assert entry.has_attachments


def test_only_ids_change_in_a_forked_document(store: Store) -> None:
    """Rule 5."""
    raw = make_document("one", unknown={"b": 1.50, "a": [1e3]}, indent=7)
    store.put_document("one", "session.json", raw)
    store.fork("one", "two")
    assert store.get_document("two", "session.json") == raw.replace(b'"one"', b'"two"')


def test_foreign_files_are_copied_and_import_receipts_are_not(family: Store) -> None:
    directory = family.home / "sessions/root"
    (directory / "notes").mkdir()
    (directory / "notes/todo.txt").write_text("x")
    os.symlink("notes/todo.txt", directory / "link")
    (directory / ".import.json").write_text("{}")
    family.fork("root", "copy")
    copy = family.home / "sessions/copy"
    assert (copy / "notes/todo.txt").read_text() == "x"
    assert os.readlink(copy / "link") == "notes/todo.txt"
    assert not (copy / ".import.json").exists()
    (directory / ".import.json").unlink()


def test_a_root_forked_as_a_child_has_no_children_directory(family: Store) -> None:
    family.save(make_session("lone"))
    family.fork("lone", "root/tame")
    assert not (family.home / "sessions/root/children/tame/children").exists()
    assert not family.check().findings


def test_a_child_is_forked_alone(family: Store) -> None:
    assert family.fork("child", "free") == [Location("free")]
    free = family.load("free")
    assert free is not None
    assert (free.kind, free.parent_session_id, free.spawn_depth) == ("root", None, 0)
    family.fork("root/child", "root/twin")
    twin = family.load("root/twin")
    assert twin is not None
    assert (twin.id, twin.parent_session_id) == ("twin", "root")


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("taken", "child/x", NotFound),
        ("root", "taken", AlreadyExists),
        ("root", "root", AlreadyExists),
        ("root", "taken/below", NotEmpty),
        ("nobody", "x", NotFound),
        ("taken", ".hidden", InvalidName),
        ("taken", "a/b/c", InvalidName),
    ],
)
def test_a_rejected_fork_changes_nothing(family: Store, source: str, target: str, error: type[Exception]) -> None:
    """Rule 3."""
    family.save(make_session("taken"))
    before = files_below(family.home)
    with pytest.raises(error):
        family.fork(source, target)
    assert files_below(family.home) == before
    assert list((family.home / ".grovefs/tmp").iterdir()) == []


def test_an_unreadable_document_cannot_be_forked(family: Store) -> None:
    path = family.home / "sessions/root/children/child/session.json"
    good = path.read_bytes()
    path.write_bytes(good[:-5])
    with pytest.raises(InvalidContent, match="root/children/child/session"):
        family.fork("root", "copy")
    assert not (family.home / "sessions/copy").exists()
    assert list((family.home / ".grovefs/tmp").iterdir()) == []
    path.write_bytes(good)
    family.maintenance.sweep()


def test_every_copy_is_in_the_change_feed(family: Store) -> None:
    cursor = family.feed.since().cursor
    family.fork("root", "copy")
    announced = {str(change.location) for change in family.feed.since(cursor).items}
    assert announced == {"copy", "copy/child-2", "copy/grandchild-2"}
    main = json.loads((family.home / "sessions/copy/session.json").read_bytes())
    assert main["root_session_id"] == "copy"
