"""A past version made fit for today."""

from __future__ import annotations

import json
from typing import Any

import pytest

from store import InvalidContent, Location, Timestamp
from store.documents.json_text import MAX_DOCUMENT_BYTES
from store.documents.sidecar import AUTHORITY
from store.history.versions import VersionTexts
from store.undo.renewal import PresentSession, RenewedSession, is_same_but_for_time, renew_session
from tests.builders import NINE_DIGITS, make_document

ROOT = Location("s1")
LATER = "2026-06-21T08:15:30Z"


def side(id: str = "s1", **members: Any) -> bytes:
    return make_document(id, **{"messages": [], **members})


def renewed(then: bytes, then_side: bytes | None = None, location: Location = ROOT, **now: Any) -> RenewedSession:
    present = json.loads(make_document(location.id, **{"updated_at": LATER, **now}))
    return renew_session(VersionTexts(then, then_side), PresentSession(location, present), MAX_DOCUMENT_BYTES)


def test_only_updated_at_is_new() -> None:
    """Every other byte of both documents is that of the past version."""
    then, then_side = make_document(indent=None, unknown={"b": 1.50}), side(indent=4)
    made = renewed(then, then_side)
    moment = made.main.record.updated_at
    assert moment.ns > Timestamp(LATER).ns
    old = f'"updated_at": "{NINE_DIGITS}"'
    for document, text in ((made.main, then), (made.side, then_side)):
        assert document.raw == text.replace(old.encode(), f'"updated_at": "{moment}"'.encode())


def test_what_left_updated_at_alone_is_taken_back_to_the_byte() -> None:
    """As a wrong `perl -pi` in all sessions: lists by date must not change by undoing it."""
    then, then_side = make_document(indent=None, unknown={"b": 1.50}), side(indent=4)
    made = renewed(then, then_side, updated_at=NINE_DIGITS, title="wrong")
    assert (made.main.raw, made.side.raw) == (then, then_side)


def test_todays_identity_stays() -> None:
    """The session was a root of another id then; references to its own attachments follow."""
    then = make_document("old", messages=[{"role": "user", "content": "see bamboo-attachment://old/a1"}])
    location = Location("r", "new")
    identity = {"kind": "child", "root_session_id": "r", "parent_session_id": "p", "spawn_depth": 2}
    made = renewed(then, side("old"), location, **identity)
    for document in (made.main, made.side):
        found = {key: document.data[key] for key in ("id", *identity)}
        assert found == {"id": "new", **identity}
    assert made.main.data["messages"][0]["content"] == "see bamboo-attachment://new/a1"


def test_a_root_loses_the_parent_it_had_then() -> None:
    """It is a root today."""
    then = make_document("k", kind="child", root_session_id="r", parent_session_id="r", spawn_depth=1)
    made = renewed(then, None, Location("k"))
    assert {"parent_session_id", "spawn_depth"}.isdisjoint(made.main.data)
    assert made.main.data["kind"] == "root"


def test_counters_never_go_back() -> None:
    """An agent that compares them would take the restored title for an old one."""
    made = renewed(make_document(title_version=2), side(title_version=2), title_version=5, metadata_version=1)
    for document in (made.main, made.side):
        assert (document.data["title_version"], document.data["metadata_version"]) == (5, 1)


def test_a_version_without_sidecar_gets_one() -> None:
    """Also if its sidecar was damaged or stale: no agent had read it then."""
    stale = side(title="stale", updated_at="2020-01-01T00:00:00Z")
    for then_side in (None, b"{ damaged", stale):
        made = renewed(make_document(title="as then"), then_side)
        assert made.side.data["title"] == "as then"
        assert made.side.data["messages"] == []


def test_a_damaged_session_is_repaired() -> None:
    """The path says which session it is."""
    present = PresentSession(ROOT, None)
    made = renew_session(VersionTexts(make_document(), None), present, MAX_DOCUMENT_BYTES)
    assert made.main.data["id"] == "s1"


def test_a_sealed_header_is_dropped() -> None:
    """It seals the bytes of another version; an API save drops it too."""
    sealed: dict[str, Any] = {AUTHORITY: {"payload": {}}}
    made = renewed(make_document(**sealed))
    assert AUTHORITY not in made.main.data


def test_a_damaged_version_is_rejected() -> None:
    """With the position of the damage."""
    with pytest.raises(InvalidContent, match=r"session.json:1:3: "):
        renewed(b"{ damaged")


def test_a_version_that_is_there_already_is_recognised() -> None:
    """By its bytes, whatever `updated_at` says: a change of the layout is a change."""
    main = renewed(make_document()).main
    assert is_same_but_for_time(main, make_document(updated_at=LATER))
    assert not is_same_but_for_time(main, make_document(indent=None, updated_at=LATER))
    assert not is_same_but_for_time(main, make_document(title="other", updated_at=LATER))
    assert not is_same_but_for_time(main, b"{ damaged")
    assert not is_same_but_for_time(main, None)
