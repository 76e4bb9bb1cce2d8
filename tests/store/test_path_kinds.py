"""What a path means: one table of kinds, and the places that share their rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import Location
from store.layout import STORED
from store.path_kinds import CHECKED, MAY_BE_EMPTY, VERSIONED, Kind, place_of

TABLE = {
    "sessions": Kind.SESSIONS,
    "sessions/r": Kind.SESSION,
    "sessions/.~tmp~": Kind.PLAIN,
    "sessions/r/session.json": Kind.DOCUMENT,
    "sessions/r/children/c/runtime.json": Kind.DOCUMENT,
    "sessions/r/token-usage.jsonl": Kind.LOG,
    "sessions/r/attachments/a.png": Kind.ATTACHMENT,
    "sessions/r/mailbox": Kind.MAILBOX,
    "sessions/r/mailbox/new": Kind.MAILBOX,
    "sessions/r/mailbox/other": Kind.PLAIN,
    "sessions/r/mailbox/new/a.json": Kind.MESSAGE,
    "sessions/r/children/c/mailbox/cur/a.json": Kind.MESSAGE,
    "sessions/r/mailbox/corrupt/a.json": Kind.PLAIN,
    "sessions/r/mailbox/new/.a.json": Kind.PLAIN,
    "sessions/r/mailbox/new/a.txt": Kind.PLAIN,
    "sessions/r/mailbox/new/deeper/a.json": Kind.PLAIN,
    "sessions/r/mailboxes": Kind.PLAIN,
    "projects": Kind.PART,
    "projects/k": Kind.PROJECT,
    "projects/k/index.json": Kind.DERIVED,
    "projects/k/notes.txt": Kind.PLAIN,
    "projects/k/sessions": Kind.MEMBERS,
    "projects/k/sessions/p": Kind.MEMBER,
    "projects/k/sessions/p/session.json": Kind.PAYLOAD,
    "projects/k/sessions/p/children.json": Kind.DERIVED,
    "projects/k/sessions/p/children": Kind.MEMBERS,
    "projects/k/sessions/p/children/c": Kind.MEMBER,
    "projects/k/sessions/p/children/c/session.json": Kind.PAYLOAD,
    "projects/k/sessions/p/children/c/children.json": Kind.PLAIN,
    "projects/k/sessions/p/children/c/mailbox/new/a.json": Kind.MESSAGE,
    "projects/k/sessions/p/trajectory.jsonl": Kind.LOG,
    "projects/k/sessions/p/runtime.json": Kind.PLAIN,
    "projects/.git": Kind.PLAIN,
    "state": Kind.PART,
    "state/x.json": Kind.PLAIN,
    "state/memory": Kind.PLAIN,
    "state/memory/facts/x.json": Kind.STATE_JSON,
    "state/notes/x.md": Kind.STATE_TEXT,
    "state/notes/x.txt": Kind.PLAIN,
    "state/notes/.#x.json": Kind.PLAIN,
    "state/.git/x.json": Kind.PLAIN,
}


@pytest.mark.parametrize(("path", "kind"), TABLE.items())
def test_the_table_of_kinds(path: str, kind: Kind) -> None:
    assert place_of(path).kind is kind


@pytest.mark.parametrize("path", [path for path, kind in TABLE.items() if kind in VERSIONED])
def test_what_is_committed_as_a_whole_has_a_location(path: str) -> None:
    """For its lock; and the place lies in that location's directory."""
    place = place_of(path)
    assert place.location is not None
    assert path.startswith(f"{place.location.dir}/")
    assert place.directory == path.rpartition("/")[0]


def test_only_the_deletion_of_a_session_has_limbo() -> None:
    assert [path for path in TABLE if place_of(path).has_limbo] == ["sessions/r/session.json"]


def test_what_is_checked_or_may_be_empty_is_committed_as_a_whole() -> None:
    assert CHECKED | MAY_BE_EMPTY <= VERSIONED
    assert not CHECKED & MAY_BE_EMPTY


@given(st.sampled_from(STORED), st.lists(st.text(min_size=1).filter(lambda t: "/" not in t), min_size=1, max_size=7))
def test_every_path_has_a_place(first: str, rest: list[str]) -> None:
    path = "/".join([first, *rest])
    assert place_of(path).path == path


@pytest.mark.parametrize(
    ("location", "directory"),
    [
        (Location("r"), "sessions/r"),
        (Location("r", "c"), "sessions/r/children/c"),
        (Location("r").part("mailbox"), "sessions/r/mailbox"),
        (Location("r", "c").part("mailbox"), "sessions/r/children/c/mailbox"),
        (Location("/projects/k"), "projects/k"),
        (Location("/projects/k", "sessions/mailbox"), "projects/k/sessions/mailbox"),
        (Location("/projects/k", "sessions/p").part("mailbox"), "projects/k/sessions/p/mailbox"),
        (Location("/state", "memory/facts"), "state/memory/facts"),
    ],
)
def test_other_parts_of_the_home_have_locations_too(location: Location, directory: str) -> None:
    """Which no session can be taken for."""
    assert location.dir == directory
    assert location.is_session == (directory in ("sessions/r", "sessions/r/children/c"))
    is_part = "//" in (location.child or "")
    assert location.owner.dir == (directory.rpartition("/")[0] if is_part else directory)
