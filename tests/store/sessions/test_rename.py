"""A session that is renamed says who it is now, and so do those of its relatives who name it."""

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
    """What both documents of a session say."""
    main, side = store.get_document(place, "session.json"), store.get_document(place, "runtime.json")
    assert main is not None
    assert side is not None
    return json.loads(main), json.loads(side)


def relations(store: Store, place: str) -> tuple[Any, ...]:
    """Who a session says it is, which both documents and the index must agree on."""
    main, side = documents(store, place)
    names = ("id", "kind", "root_session_id", "parent_session_id", "spawn_depth")
    assert [main.get(n) for n in names] == [side.get(n) for n in names]
    session, entry = store.load(place), store.entry(place)
    assert session is not None
    assert entry is not None
    found = tuple(getattr(session, n) for n in names)
    assert (entry.id, entry.root_session_id, entry.parent_session_id) == (found[0], found[2], found[3])
    return found


def test_a_root_takes_its_children_along(family: Store) -> None:
    """Rule 9: path and identity are one, in files, index and search; the old name is gone from all of them."""
    family.rename("root", "new")
    assert relations(family, "new") == ("new", "root", "new", None, 0)
    assert relations(family, "new/child") == ("child", "child", "new", "new", 1)
    assert relations(family, "new/grandchild") == ("grandchild", "child", "new", "child", 2)
    assert family.load("root") is None
    assert {e.id for e in family.entries()} == {"new", "child", "grandchild", "other"}
    assert [(location_of(hit).root, location_of(hit).child) for hit in family.search("from the child")] == [
        ("new", "child")
    ]


def test_a_child_under_another_name_keeps_its_place(family: Store) -> None:
    """Its own children name it as parent, and follow."""
    family.rename("root/child", "root/renamed")
    assert relations(family, "root/renamed") == ("renamed", "child", "root", "root", 1)
    assert relations(family, "root/grandchild") == ("grandchild", "child", "root", "renamed", 2)


def test_a_child_goes_to_another_root_alone(family: Store) -> None:
    """What descends from it stays, and belongs to the old root directly."""
    family.rename("root/child", "other/child")
    assert relations(family, "other/child") == ("child", "child", "other", "other", 1)
    assert relations(family, "root/grandchild") == ("grandchild", "child", "root", "root", 1)


def test_a_child_becomes_a_root_and_a_childless_root_a_child(family: Store) -> None:
    family.rename("root/grandchild", "free")
    assert relations(family, "free") == ("free", "root", "free", None, 0)
    family.rename("free", "other/bound")
    assert relations(family, "other/bound") == ("bound", "child", "other", "other", 1)


def test_a_root_that_becomes_a_child_has_no_children_directory(family: Store) -> None:
    """Where it is then none may be made either, and `check` would speak of a foreign file."""
    family.rename("other", "root/tame")
    assert not (family.home / "sessions/root/children/tame/children").exists()
    assert not family.check().findings


def test_what_it_holds_goes_along(family: Store) -> None:
    """Attachments and logs; references in the messages are spelled anew and still lead somewhere."""
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


def test_what_cannot_be_is_refused_and_changes_nothing(family: Store) -> None:
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


def test_an_empty_directory_may_be_in_the_way(family: Store) -> None:
    """As rename(2) has it."""
    (family.home / "sessions/new").mkdir()
    family.rename("root", "new")
    assert relations(family, "new") == ("new", "root", "new", None, 0)


@pytest.mark.warns
def test_what_cannot_be_read_moves_as_it_is(store: Store) -> None:
    store.save(make_session("s1"))
    (store.home / "sessions/s1/session.json").write_bytes(b"garbage")
    store.moves.move(classify_path("sessions/s1"), classify_path("sessions/s2"))
    assert (store.home / "sessions/s2/session.json").read_bytes() == b"garbage"
    store.put_document("s2", "session.json", make_document("s2"), on_conflict="overwrite")
    store.put_document("s2", "runtime.json", make_document("s2", messages=[]), on_conflict="overwrite")


def test_a_session_edited_behind_our_back_moves_with_its_edit(family: Store) -> None:
    """Also a child that the index has not heard of yet."""
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


def test_only_what_has_to_is_spelled_anew() -> None:
    """Key order, spacing, unknown members and digits stay as they are."""
    raw = b'{ "x" : 1.50,\n"id":"a" , "root_session_id": "a", "messages":[], "updated_at":"2026-01-01T00:00:00.10Z",'
    raw += b' "created_at":"2026-01-01T00:00:00Z","unknown": {"id": "a"} }'
    document = parse_document(raw, "sessions/a/session.json")
    expected = raw.replace(b'"id":"a"', b'"id":"b"').replace(b'"root_session_id": "a"', b'"root_session_id": "b"')
    assert with_identity(document, {"id": "b", "root_session_id": "b"}) == expected


def test_references_spelled_with_escapes_follow_too() -> None:
    """A rename redirects what a fork would redirect."""
    raw = make_document("a", note="bamboo-attachment://a/1").replace(
        b"bamboo-attachment://a/1", rb"bamboo-attachment:\/\/a\/1"
    )
    document = parse_document(raw, "session.json")
    assert json.loads(with_identity(document, {"id": "b"}))["note"] == "bamboo-attachment://b/1"


def test_locations_are_places() -> None:
    """What Store.rename and the mount's rename take is the same."""
    assert classify_path("sessions/a/children/b").location == Location("a", "b")
