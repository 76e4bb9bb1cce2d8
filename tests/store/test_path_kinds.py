"""Classification of paths, and the sets of kinds that share rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store import Location
from store.layout import STORED
from store.path_kinds import CHECKED, MAY_BE_EMPTY, VERSIONED, PathKind, classify_in, classify_path

TABLE = {
    "sessions": PathKind.SESSIONS,
    "sessions/r": PathKind.SESSION,
    "sessions/.~tmp~": PathKind.FOREIGN,
    "sessions/r/session.json": PathKind.DOCUMENT,
    "sessions/r/children/c/runtime.json": PathKind.DOCUMENT,
    "sessions/r/token-usage.jsonl": PathKind.LOG,
    "sessions/r/attachments/a.png": PathKind.ATTACHMENT,
    "sessions/r/mailbox": PathKind.MAILBOX,
    "sessions/r/mailbox/new": PathKind.MAILBOX,
    "sessions/r/mailbox/other": PathKind.FOREIGN,
    "sessions/r/mailbox/new/a.json": PathKind.MESSAGE,
    "sessions/r/children/c/mailbox/cur/a.json": PathKind.MESSAGE,
    "sessions/r/mailbox/corrupt/a.json": PathKind.FOREIGN,
    "sessions/r/mailbox/new/.a.json": PathKind.FOREIGN,
    "sessions/r/mailbox/new/a.txt": PathKind.FOREIGN,
    "sessions/r/mailbox/new/deeper/a.json": PathKind.FOREIGN,
    "sessions/r/mailboxes": PathKind.FOREIGN,
    "projects": PathKind.AREA,
    "projects/k": PathKind.PROJECT,
    "projects/k/index.json": PathKind.DERIVED,
    "projects/k/notes.txt": PathKind.FOREIGN,
    "projects/k/sessions": PathKind.PROJECT_SESSIONS,
    "projects/k/sessions/p": PathKind.PROJECT_SESSION,
    "projects/k/sessions/p/session.json": PathKind.PAYLOAD,
    "projects/k/sessions/p/children.json": PathKind.DERIVED,
    "projects/k/sessions/p/children": PathKind.PROJECT_SESSIONS,
    "projects/k/sessions/p/children/c": PathKind.PROJECT_SESSION,
    "projects/k/sessions/p/children/c/session.json": PathKind.PAYLOAD,
    "projects/k/sessions/p/children/c/children.json": PathKind.FOREIGN,
    "projects/k/sessions/p/children/c/mailbox/new/a.json": PathKind.MESSAGE,
    "projects/k/sessions/p/trajectory.jsonl": PathKind.LOG,
    "projects/k/sessions/p/runtime.json": PathKind.FOREIGN,
    "projects/.git": PathKind.FOREIGN,
    "state": PathKind.AREA,
    "state/x.json": PathKind.FOREIGN,
    "state/memory": PathKind.FOREIGN,
    "state/memory/facts/x.json": PathKind.STATE_JSON,
    "state/notes/x.md": PathKind.STATE_TEXT,
    "state/notes/x.txt": PathKind.FOREIGN,
    "state/notes/.#x.json": PathKind.FOREIGN,
    "state/.git/x.json": PathKind.FOREIGN,
}


@pytest.mark.parametrize(("path", "kind"), TABLE.items())
def test_path_has_its_kind(path: str, kind: PathKind) -> None:
    assert classify_path(path).kind is kind


@pytest.mark.parametrize("path", [path for path, kind in TABLE.items() if kind in VERSIONED])
def test_versioned_path_has_a_location(path: str) -> None:
    """Needed for its lock; the path is inside that location's directory."""
    place = classify_path(path)
    assert place.location is not None
    assert path.startswith(f"{place.location.dir}/")
    assert place.directory == path.rpartition("/")[0]


def test_only_session_json_can_be_hidden() -> None:
    assert [path for path in TABLE if classify_path(path).can_be_hidden] == ["sessions/r/session.json"]


def test_checked_and_possibly_empty_kinds_are_versioned() -> None:
    assert CHECKED | MAY_BE_EMPTY <= VERSIONED
    assert not CHECKED & MAY_BE_EMPTY


@given(st.sampled_from(STORED), st.lists(st.text(min_size=1).filter(lambda t: "/" not in t), min_size=1, max_size=7))
def test_every_path_can_be_classified(first: str, rest: list[str]) -> None:
    path = "/".join([first, *rest])
    assert classify_path(path).path == path


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
def test_other_areas_of_the_home_have_locations(location: Location, directory: str) -> None:
    """None of them is the location of a session."""
    assert location.dir == directory
    assert location.is_session == (directory in ("sessions/r", "sessions/r/children/c"))
    is_part = "//" in (location.child or "")
    assert location.owner.dir == (directory.rpartition("/")[0] if is_part else directory)


@pytest.mark.parametrize("path", TABLE)
def test_a_path_is_classified_alike_from_its_directory(path: str) -> None:
    directory = path.rpartition("/")[0]
    assert classify_in(classify_path(directory) if directory else None, path) == classify_path(path)
