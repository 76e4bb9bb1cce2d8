"""Units: which files belong together, and names that survive the way through the database."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.grove.units import escape_path, is_unit, location_of, shard_of, unescape_path, unit_of
from store.layout import Location


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("sessions/r/session.json", "sessions/r"),
        ("sessions/r/runtime.json", "sessions/r"),
        ("sessions/r/traces.json", "sessions/r"),
        ("sessions/r/attachments/a.png", "sessions/r"),
        ("sessions/r/children/c/session.json", "sessions/r/children/c"),
        ("sessions/r/mailbox/new/m.json", "sessions/r/mailbox"),
        ("sessions/r/children/c/mailbox/cur/m.json", "sessions/r/children/c/mailbox"),
        ("state/memory/facts/a.md", "state/memory/facts"),
        ("state/memory/b.json", "state/memory"),
    ],
)
def test_a_shared_file_belongs_to_a_unit_whose_lock_is_known(path: str, unit: str) -> None:
    assert unit_of(path) == unit
    assert is_unit(unit)
    assert location_of(unit).dir == unit


@pytest.mark.parametrize(
    "path",
    [
        "sessions/r/token-usage.jsonl",
        "sessions/r/notes.txt",
        "sessions/r/mailbox/corrupt/m.json",
        "projects/k/sessions/p/session.json",
        "projects/k/sessions/p/mailbox/new/m.json",
        ".grovefs/trash/x/0",
        "sessions.json",
    ],
)
def test_other_files_are_local(path: str) -> None:
    assert unit_of(path) is None


@pytest.mark.parametrize("text", ["", "sessions", "sessions/..", "sessions/r/attachments", "/etc", "projects/k", "x"])
def test_a_name_from_the_database_that_is_not_a_unit_is_recognised(text: str) -> None:
    assert not is_unit(text)


def test_a_mailbox_has_the_lock_of_its_own_location() -> None:
    assert location_of("sessions/r/mailbox") == Location("r").part("mailbox")


@given(st.binary(min_size=1, max_size=60).filter(lambda raw: b"\0" not in raw))
def test_every_file_name_survives_escaping(raw: bytes) -> None:
    name = os.fsdecode(raw)
    text = escape_path(name)
    text.encode()  # valid Unicode
    assert unescape_path(text) == name


def test_shards_do_not_depend_on_the_process() -> None:
    assert [shard_of(root, 64) for root in ("a", "b", "/state")] == [shard_of(r, 64) for r in ("a", "b", "/state")]
    assert shard_of("a", 64) == 47
