"""Renaming a session updates the ids in its documents and in those of related sessions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from store import AlreadyExists, InvalidName, Message, NotEmpty, NotFound, Session, Store
from store.documents.document import parse_document, with_identity
from store.layout import Location
from store.path_kinds import classify_path
from tests.builders import files_below, location_of, make_document, make_session


@pytest.fixture
def family(store: Store) -> Store:
    """A root, a child, a grandchild below it, and another root."""
    root = make_session("root", messages=2, title="The root")
    store.save(root)
    child = Session.new_child_of("child", root, "m", "A child")
    child.add_message(Message.user("from the child"))
    store.save(child)
    store.save(Session.new_child_of("grandchild", child, "m", "A grandchild"))
    store.save(make_session("other", title="Another"))
    return store


def documents(store: Store, place: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of both documents of a session."""
    main, side = store.get_document(place, "session.json"), store.get_document(place, "runtime.json")
    assert main is not None
    assert side is not None
    return json.loads(main), json.loads(side)


def relations(store: Store, place: str) -> tuple[Any, ...]:
    """The ids of a session; asserts that both documents and the index agree."""
    main, side = documents(store, place)
    names = ("id", "kind", "root_session_id", "parent_session_id", "spawn_depth")
    assert [main.get(n) for n in names] == [side.get(n) for n in names]
    session, entry = store.load(place), store.entry(place)
    assert session is not None
    assert entry is not None
    found = tuple(getattr(session, n) for n in names)
    assert (entry.id, entry.root_session_id, entry.parent_session_id) == (found[0], found[2], found[3])
    return found


def test_a_root_is_renamed_with_its_children(family: Store) -> None:
    """Rule 9: ids match the path in files, index and search; the old name is removed from all of them."""
    family.rename("root", "new")
    assert relations(family, "new") == ("new", "root", "new", None, 0)
    assert relations(family, "new/child") == ("child", "child", "new", "new", 1)
    assert relations(family, "new/grandchild") == ("grandchild", "child", "new", "child", 2)
    assert family.load("root") is None
    assert {e.id for e in family.entries()} == {"new", "child", "grandchild", "other"}
    assert [(location_of(hit).root, location_of(hit).child) for hit in family.search("from the child")] == [
        ("new", "child")
    ]


def test_renaming_a_child_updates_its_children(family: Store) -> None:
    """They name it as their parent."""
    family.rename("root/child", "root/renamed")
    assert relations(family, "root/renamed") == ("renamed", "child", "root", "root", 1)
    assert relations(family, "root/grandchild") == ("grandchild", "child", "root", "renamed", 2)


def test_a_child_moves_to_another_root_alone(family: Store) -> None:
    """Its descendants stay, as children of the old root."""
    family.rename("root/child", "other/child")
    assert relations(family, "other/child") == ("child", "child", "other", "other", 1)
    assert relations(family, "root/grandchild") == ("grandchild", "child", "root", "root", 1)


def test_a_child_becomes_a_root_and_a_childless_root_a_child(family: Store) -> None:
    family.rename("root/grandchild", "free")
    assert relations(family, "free") == ("free", "root", "free", None, 0)
    family.rename("free", "other/bound")
    assert relations(family, "other/bound") == ("bound", "child", "other", "other", 1)


def test_a_root_that_becomes_a_child_loses_its_empty_children_directory(family: Store) -> None:
    """A child has no children/; `check` would report a foreign file."""
    family.rename("other", "root/tame")
    assert not (family.home / "sessions/root/children/tame/children").exists()
    assert not family.check().findings


def test_attachments_and_logs_move_along(family: Store) -> None:
    """References in messages are updated and resolve."""
    attachment = family.attach("root", b"bytes", "image/png")
    family.append("root", [Message.user(f"see {attachment.url}")])
    family.usage.append("root", {"tokens": 1})
    family.rename("root", "new")
    session = family.load("new")
    assert session is not None
    url = attachment.url.replace("root", "new")
    assert url in session.messages[-1].content
    assert family.attachments.resolve(url) == (b"bytes", "image/png")
    assert (family.home / "sessions/new/token-usage.jsonl").exists()


def test_a_rejected_rename_changes_nothing(family: Store) -> None:
    before = files_below(family.home)
    for source, target, error in (
        ("root", "other", AlreadyExists),
        ("root", "other/child", NotEmpty),
        ("nobody", "somebody", NotFound),
        ("root", ".hidden", InvalidName),
        ("root", "a\nb", InvalidName),
        ("root", "a" * 256, InvalidName),
        ("root/child", "nobody/child", NotFound),
        ("other", "other/child", InvalidName),
    ):
        with pytest.raises(error):
            family.rename(source, target)
    assert files_below(family.home) == before
    assert {e.id for e in family.entries()} == {"root", "child", "grandchild", "other"}


def test_an_empty_target_directory_is_replaced(family: Store) -> None:
    """As by rename(2)."""
    (family.home / "sessions/new").mkdir()
    family.rename("root", "new")
    assert relations(family, "new") == ("new", "root", "new", None, 0)


@pytest.mark.warns
def test_an_unreadable_document_is_moved_unchanged(store: Store) -> None:
    store.save(make_session("s1"))
    (store.home / "sessions/s1/session.json").write_bytes(b"garbage")
    store.moves.move(classify_path("sessions/s1"), classify_path("sessions/s2"))
    assert (store.home / "sessions/s2/session.json").read_bytes() == b"garbage"
    store.put_document("s2", "session.json", make_document("s2"), on_conflict="overwrite")
    store.put_document("s2", "runtime.json", make_document("s2", messages=[]), on_conflict="overwrite")


def test_direct_edits_survive_a_rename(family: Store) -> None:
    """Including a child that is not indexed yet."""
    directory = family.home / "sessions/root/children/unknown"
    directory.mkdir()
    members: dict[str, Any] = {
        "kind": "child",
        "root_session_id": "root",
        "parent_session_id": "root",
        "spawn_depth": 1,
    }
    (directory / "session.json").write_bytes(make_document("unknown", **members))
    path = family.home / "sessions/root/session.json"
    path.write_text(path.read_text().replace("The root", "Edited"))
    family.rename("root", "new")
    session, child = family.load("new"), family.load("new/unknown")
    assert session is not None
    assert child is not None
    assert child.root_session_id == child.parent_session_id == "new"
    assert json.loads((family.home / "sessions/new/session.json").read_text())["title"] == "Edited"
    family.check(repair=True)


def test_only_ids_change_in_a_renamed_document() -> None:
    """Key order, spacing, unknown members and digits are kept."""
    raw = b'{ "x" : 1.50,\n"id":"a" , "root_session_id": "a", "messages":[], "updated_at":"2026-01-01T00:00:00.10Z",'
    raw += b' "created_at":"2026-01-01T00:00:00Z","unknown": {"id": "a"} }'
    document = parse_document(raw, "sessions/a/session.json")
    expected = raw.replace(b'"id":"a"', b'"id":"b"').replace(b'"root_session_id": "a"', b'"root_session_id": "b"')
    assert with_identity(document, {"id": "b", "root_session_id": "b"}) == expected


def test_escaped_references_are_updated_too() -> None:
    """As by a fork."""
    raw = make_document("a", note="bamboo-attachment://a/1").replace(
        b"bamboo-attachment://a/1", rb"bamboo-attachment:\/\/a\/1"
    )
    document = parse_document(raw, "session.json")
    assert json.loads(with_identity(document, {"id": "b"}))["note"] == "bamboo-attachment://b/1"


def test_a_path_is_classified_as_its_location() -> None:
    """Store.rename and the mount's rename take the same."""
    assert classify_path("sessions/a/children/b").location == Location("a", "b")
