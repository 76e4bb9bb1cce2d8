"""Rejected writes are kept with the reason until the document is saved successfully."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from store import Conflict, InvalidContent, Location, Store
from store.commit.write_request import WriteRequest
from store.disk.rejects import KEPT_LINES, explain
from store.errors import Problem
from store.namespace.namespace import Namespace
from store.path_kinds import classify_path
from tests.builders import make_document, make_session

PLACE = classify_path("sessions/s1/session.json")
HERE = Location("s1")


@pytest.fixture
def names(store: Store) -> Namespace:
    """The namespace of a home with one session."""
    store.save(make_session("s1", title="Good"))
    return store.names


def reject(names: Namespace, raw: bytes) -> None:
    with pytest.raises(InvalidContent):
        names.commit(WriteRequest(PLACE, raw))


def kept(names: Namespace, shown: str) -> bytes:
    path = names.rejects.path(HERE, shown)
    assert path is not None
    return (names.core.home / path).read_bytes()


def test_rejected_bytes_are_kept_with_the_reason(names: Namespace) -> None:
    """Rule 3, byte for byte. The reason has the path, the line and a caret below the position."""
    raw = make_document("s1", title=5)
    reject(names, raw)
    assert sorted(names.rejects.names(HERE)) == ["session.json.error", "session.json.rejected"]
    assert kept(names, "session.json.rejected") == raw
    reason = kept(names, "session.json.error").decode().splitlines()
    assert reason[0] == "sessions/s1/session.json was rejected; the previous version is unchanged."
    number = next(i for i, line in enumerate(reason) if line.startswith("       3 | "))
    assert reason[number] == '       3 |   "title": 5,'
    assert reason[number + 1].index("^") == reason[number].index("5,")


def test_reason_has_a_line_for_each_error(names: Namespace) -> None:
    """Somebody who corrects the first one would be rejected again otherwise."""
    reject(names, make_document("s1", title=5, pinned="yes", spawn_depth=-1, model=None))
    reason = kept(names, "session.json.error").decode()
    found = [line.partition(": ")[2] for line in reason.splitlines() if line.startswith("  sessions/s1/session.json:")]
    assert sorted(found) == [
        "model: expected a string, got null",
        "pinned: expected a boolean, got a string",
        "spawn_depth: expected a number >= 0, got -1",
        "title: expected a string, got a number",
    ]
    assert "more error" not in reason


def test_reason_for_a_new_document_names_no_previous_version(names: Namespace) -> None:
    names.make_dir(classify_path("sessions/new"))
    with pytest.raises(InvalidContent):
        names.commit(WriteRequest(classify_path("sessions/new/session.json"), b"{ broken"))
    path = names.rejects.path(Location("new"), "session.json.error")
    assert path is not None
    reason = (names.core.home / path).read_text().splitlines()
    assert reason[0] == "sessions/new/session.json was rejected; nothing was created."


def test_latest_rejection_replaces_the_previous_one(names: Namespace) -> None:
    reject(names, b"first")
    reject(names, b"second")
    assert kept(names, "session.json.rejected") == b"second"


def test_conflict_is_kept_and_says_what_to_do(names: Namespace) -> None:
    raw = make_document("s1", updated_at="2001-01-01T00:00:00Z")
    with pytest.raises(Conflict):
        names.commit(WriteRequest(PLACE, raw))
    assert kept(names, "session.json.rejected") == raw
    assert b"Read the present version and repeat your change" in kept(names, "session.json.error")


def test_changed_save_clears_rejects_and_an_identical_one_does_not(names: Namespace) -> None:
    """vim and `cp -b` put the old version back after a rejection, which must not clear them."""
    good = names.read(PLACE)
    assert good is not None
    reject(names, b"{")
    names.commit(WriteRequest(PLACE, good))
    assert len(names.rejects.names(HERE)) == 2
    names.commit(WriteRequest(PLACE, good.replace(b"Good", b"Better")))
    assert names.rejects.names(HERE) == {}


def test_each_document_has_its_own_rejects(names: Namespace) -> None:
    side = classify_path("sessions/s1/runtime.json")
    reject(names, b"{")
    with pytest.raises(InvalidContent):
        names.commit(WriteRequest(side, b"["))
    assert len(names.rejects.names(HERE)) == 4
    good = names.read(side)
    assert good is not None
    names.commit(WriteRequest(side, good.replace(b"Good", b"Better")))
    assert sorted(names.rejects.names(HERE)) == ["session.json.error", "session.json.rejected"]


def test_rejects_can_be_removed_one_by_one(names: Namespace) -> None:
    reject(names, b"{")
    names.rejects.remove(HERE, "session.json.rejected")
    assert sorted(names.rejects.names(HERE)) == ["session.json.error"]
    names.rejects.remove(HERE, "session.json.error")
    names.rejects.remove(HERE, "session.json.error")
    assert names.rejects.names(HERE) == {}


def test_unknown_names_have_no_reject_path(names: Namespace) -> None:
    reject(names, b"{")
    for shown in ("session.json", "other.json.error", ".error", "session.json.rejected.error", "x/session.json.error"):
        assert names.rejects.path(HERE, shown) is None


def test_recent_rejections_are_listed_up_to_a_limit(names: Namespace) -> None:
    for _ in range(3):
        reject(names, b"{")
    lines = [json.loads(line) for line in names.rejects.recent().splitlines()]
    assert [line["path"] for line in lines] == ["sessions/s1/session.json"] * 3
    path = names.core.home / ".grovefs/rejects/recent.jsonl"
    path.write_bytes(path.read_bytes() * KEPT_LINES)
    reject(names, b"{")
    assert len(names.rejects.recent().splitlines()) == KEPT_LINES


def test_rejects_follow_a_renamed_session(store: Store, names: Namespace) -> None:
    """The rejected text is found under the new name."""
    reject(names, b"typed text")
    store.rename("s1", "s2")
    assert names.rejects.names(HERE) == {}
    path = names.rejects.path(Location("s2"), "session.json.rejected")
    assert path is not None
    assert (store.home / path).read_bytes() == b"typed text"


def test_deleting_a_session_clears_its_rejects(store: Store, names: Namespace) -> None:
    reject(names, b"{")
    store.delete("s1")
    store.save(make_session("s1"))
    assert names.rejects.names(HERE) == {}


def test_any_directory_can_have_rejects(names: Namespace) -> None:
    """They are moved and deleted with their directory and its parents."""
    error = InvalidContent("x", Problem("no"))
    for directory in ("state/a", "state/a/b", "state/ab"):
        names.rejects.store(directory, "x.json", directory.encode(), error)
    names.rejects.rename("state/a", "state/z")
    assert names.rejects.names("state/a") == names.rejects.names("state/a/b") == {}
    assert len(names.rejects.names("state/ab")) == 2
    path = names.rejects.path("state/z/b", "x.json.rejected")
    assert path is not None
    assert (names.core.home / path).read_bytes() == b"state/a/b"
    names.rejects.clear_all("state/z")
    assert names.rejects.names("state/z") == names.rejects.names("state/z/b") == {}
    names.rejects.clear("state/ab", "x.json")
    assert not [entry for entry in (names.core.home / ".grovefs/rejects").iterdir() if entry.is_dir()]


def test_name_too_long_for_the_suffix_is_shortened(names: Namespace) -> None:
    """Two such names stay distinct."""
    long = ["é" * 120 + f"{i}.json" for i in range(2)]
    for name in long:
        names.rejects.store("state/a", name, name.encode(), InvalidContent(name, Problem("no")))
    kept = names.rejects.names("state/a")
    assert len(kept) == 4
    assert all(len(shown.encode()) <= 255 for shown in kept)
    names.rejects.clear("state/a", long[0])
    assert len(names.rejects.names("state/a")) == 2


def test_excerpt_of_a_long_line_is_cut_around_the_position() -> None:
    """A document in one line, with the error far to the right."""
    raw = b'{"a": "' + b"x" * 5000 + b'", "title": 5}'
    error = InvalidContent("p", Problem("expected a string, got a number", 1, raw.index(b"5}") + 1))
    lines = explain(HERE, "session.json", raw, error).splitlines()
    excerpt = next(i for i, line in enumerate(lines) if line.startswith("       1 | "))
    assert len(lines[excerpt]) < 120
    assert lines[excerpt][lines[excerpt + 1].index("^")] == "5"


@pytest.mark.warns
def test_save_succeeds_even_if_old_rejects_cannot_be_removed(home: Path) -> None:
    """Rule 3: an error would claim that nothing was changed."""
    is_failing = False

    def step(name: str) -> None:
        if is_failing and name.startswith("remove"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Store.open(home, background=False, step=step) as store:
        store.save(make_session("s1"))
        store.save(make_session("s2"))
        reject(store.names, b"{")
        is_failing = True
        assert store.names.commit(
            WriteRequest(PLACE, make_document("s1", title="one", updated_at="2030-01-01T00:00:00Z"))
        ).is_changed
        assert kept(store.names, "session.json.rejected") == b"{"
        assert store.rename("s1", "s3") == Location("s3")
        assert store.delete("s3")
        is_failing = False
        assert store.check().is_clean
