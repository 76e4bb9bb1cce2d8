"""What was refused is kept with the reason, shown beside the document, and goes when that is mended."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from store import Conflict, InvalidContent, Location, Store
from store.disk.rejects import KEPT_LINES, explain
from store.errors import Problem
from store.namespace.namespace import Namespace
from store.path_kinds import classify_path
from tests.builders import make_document, make_session

PLACE = classify_path("sessions/s1/session.json")
HERE = Location("s1")


@pytest.fixture
def names(store: Store) -> Namespace:
    """The names of a home with one session."""
    store.save(make_session("s1", title="Good"))
    return store.names


def refuse(names: Namespace, raw: bytes) -> None:
    with pytest.raises(InvalidContent):
        names.commit(PLACE, raw)


def kept(names: Namespace, shown: str) -> bytes:
    path = names.rejects.path(HERE, shown)
    assert path is not None
    return (names.core.home / path).read_bytes()


def test_refused_bytes_are_kept_with_the_reason(names: Namespace) -> None:
    """Rule 3, byte for byte; the reason says where, shows the line and points at the place."""
    raw = make_document("s1", title=5)
    refuse(names, raw)
    assert sorted(names.rejects.names(HERE)) == ["session.json.error", "session.json.rejected"]
    assert kept(names, "session.json.rejected") == raw
    reason = kept(names, "session.json.error").decode().splitlines()
    assert reason[0] == "sessions/s1/session.json was not saved; the version before it stands."
    number = next(i for i, line in enumerate(reason) if line.startswith("       3 | "))
    assert reason[number] == '       3 |   "title": 5,'
    assert reason[number + 1].index("^") == reason[number].index("5,")


def test_the_latest_refusal_replaces_the_one_before(names: Namespace) -> None:
    refuse(names, b"first")
    refuse(names, b"second")
    assert kept(names, "session.json.rejected") == b"second"


def test_a_conflict_is_kept_and_says_what_to_do(names: Namespace) -> None:
    raw = make_document("s1", updated_at="2001-01-01T00:00:00Z")
    with pytest.raises(Conflict):
        names.commit(PLACE, raw)
    assert kept(names, "session.json.rejected") == raw
    assert b"Someone else saved a newer version" in kept(names, "session.json.error")


def test_a_good_save_clears_them_an_identical_one_does_not(names: Namespace) -> None:
    """vim and `cp -b` put the old version back after a refusal: that mends nothing."""
    good = names.read(PLACE)
    assert good is not None
    refuse(names, b"{")
    names.commit(PLACE, good)
    assert len(names.rejects.names(HERE)) == 2
    names.commit(PLACE, good.replace(b"Good", b"Better"))
    assert names.rejects.names(HERE) == {}


def test_each_document_has_its_own(names: Namespace) -> None:
    side = classify_path("sessions/s1/runtime.json")
    refuse(names, b"{")
    with pytest.raises(InvalidContent):
        names.commit(side, b"[")
    assert len(names.rejects.names(HERE)) == 4
    good = names.read(side)
    assert good is not None
    names.commit(side, good.replace(b"Good", b"Better"))
    assert sorted(names.rejects.names(HERE)) == ["session.json.error", "session.json.rejected"]


def test_they_can_be_removed_by_hand(names: Namespace) -> None:
    refuse(names, b"{")
    names.rejects.remove(HERE, "session.json.rejected")
    assert sorted(names.rejects.names(HERE)) == ["session.json.error"]
    names.rejects.remove(HERE, "session.json.error")
    names.rejects.remove(HERE, "session.json.error")
    assert names.rejects.names(HERE) == {}


def test_only_documents_have_rejects(names: Namespace) -> None:
    refuse(names, b"{")
    for shown in ("session.json", "other.json.error", ".error", "session.json.rejected.error", "x/session.json.error"):
        assert names.rejects.path(HERE, shown) is None


def test_the_latest_are_listed_and_no_more(names: Namespace) -> None:
    for _ in range(3):
        refuse(names, b"{")
    lines = [json.loads(line) for line in names.rejects.recent().splitlines()]
    assert [line["path"] for line in lines] == ["sessions/s1/session.json"] * 3
    path = names.core.home / ".grovefs/rejects/recent.jsonl"
    path.write_bytes(path.read_bytes() * KEPT_LINES)
    refuse(names, b"{")
    assert len(names.rejects.recent().splitlines()) == KEPT_LINES


def test_a_renamed_session_takes_its_rejects_along(store: Store, names: Namespace) -> None:
    """They are what someone typed: under the new name they can still be found."""
    refuse(names, b"typed text")
    store.rename("s1", "s2")
    assert names.rejects.names(HERE) == {}
    path = names.rejects.path(Location("s2"), "session.json.rejected")
    assert path is not None
    assert (store.home / path).read_bytes() == b"typed text"


def test_a_deleted_session_leaves_none_for_its_successor(store: Store, names: Namespace) -> None:
    refuse(names, b"{")
    store.delete("s1")
    store.save(make_session("s1"))
    assert names.rejects.names(HERE) == {}


def test_any_directory_can_have_them(names: Namespace) -> None:
    """Messages, state documents and payloads too; they follow their directory, and go with it."""
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


def test_a_name_too_long_for_the_ending_is_cut(names: Namespace) -> None:
    """Two such names are still two."""
    long = ["é" * 120 + f"{i}.json" for i in range(2)]
    for name in long:
        names.rejects.store("state/a", name, name.encode(), InvalidContent(name, Problem("no")))
    kept = names.rejects.names("state/a")
    assert len(kept) == 4
    assert all(len(shown.encode()) <= 255 for shown in kept)
    names.rejects.clear("state/a", long[0])
    assert len(names.rejects.names("state/a")) == 2


def test_long_lines_are_shown_around_the_place() -> None:
    """A document in one line, with the fault far to the right."""
    raw = b'{"a": "' + b"x" * 5000 + b'", "title": 5}'
    flaw = InvalidContent("p", Problem("a text is expected", 1, raw.index(b"5}") + 1))
    lines = explain(HERE, "session.json", raw, flaw).splitlines()
    excerpt = next(i for i, line in enumerate(lines) if line.startswith("       1 | "))
    assert len(lines[excerpt]) < 120
    assert lines[excerpt][lines[excerpt + 1].index("^")] == "5"


@pytest.mark.warns
def test_a_save_is_a_save_though_what_was_refused_before_cannot_go(home: Path) -> None:
    """Rule 3, the other way round: who is told of an error may rely on it that nothing was changed."""
    is_failing = False

    def step(name: str) -> None:
        if is_failing and name.startswith("remove"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with Store.open(home, background=False, step=step) as store:
        store.save(make_session("s1"))
        store.save(make_session("s2"))
        refuse(store.names, b"{")
        is_failing = True
        assert store.names.commit(PLACE, make_document("s1", title="one", updated_at="2030-01-01T00:00:00Z"))
        assert kept(store.names, "session.json.rejected") == b"{"
        assert store.rename("s1", "s3") == Location("s3")
        assert store.delete("s3")
        is_failing = False
        assert store.check().is_clean
