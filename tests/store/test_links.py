"""Symbolic links, FIFOs and directories in place of files: never followed, never waited for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store import Corrupt, Message, NotFound, Session, Store, StoreError
from tests.builders import make_document, make_session
from tests.store.rejection import GOOD, MAIN, MAIN_PATH, S1, SIDE, open_store, rejected

SECRET_TITLE = "SECRET"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A directory outside the home that links will point to, with all the files of a session."""
    place = tmp_path / "outside"
    (place / "attachments").mkdir(parents=True)
    (place / "children" / "c1").mkdir(parents=True)
    (place / MAIN).write_bytes(make_document("s1", title=SECRET_TITLE))
    (place / SIDE).write_bytes(make_document("s1", title=SECRET_TITLE, messages=[]))
    child = make_document("c1", title=SECRET_TITLE, kind="child", root_session_id="s1", parent_session_id="s1")
    (place / "children" / "c1" / MAIN).write_bytes(child)
    (place / "attachments" / "a1.png").write_bytes(b"SECRET")
    (place / "token-usage.jsonl").write_bytes(b"SECRET\n")
    return place


def contents_of(place: Path) -> dict[str, bytes]:
    return {str(p.relative_to(place)): p.read_bytes() if p.is_file() else b"" for p in sorted(place.rglob("*"))}


LINKED = [MAIN, SIDE, "children", "attachments", "token-usage.jsonl", "", "attachments/a1.png", "children/c1"]


def replace_by_link(home: Path, outside: Path, name: str) -> Path:
    """Replace a file or directory of session s1 by a link to the outside."""
    place = home / "sessions" / "s1" / name
    if place.is_dir():
        kept = home.parent / "moved-away"
        place.rename(kept)
    else:
        place.unlink(missing_ok=True)
    place.symlink_to(outside / name)
    return place


def call_everything(store: Store) -> Iterator[Any]:
    """Call everything that reads or writes a session; errors are yielded as values."""
    calls: list[Callable[[], Any]] = [
        lambda: store.load("s1"),
        lambda: store.load("s1/c1"),
        lambda: store.load_runtime("s1"),
        lambda: store.get_document(S1, MAIN),
        lambda: store.get_document(S1, SIDE),
        lambda: store.get_document("s1/c1", MAIN),
        lambda: store.attachments.read("s1", "a1"),
        lambda: store.entries(),
        lambda: store.search(SECRET_TITLE),
        lambda: store.maintenance.sweep(),
        lambda: store.check(),
        lambda: store.usage.append("s1", {"x": 1}),
        lambda: store.attach("s1", b"new", "image/png"),
        lambda: store.append("s1", [Message.user("new")]),
        lambda: store.put_document(S1, SIDE, make_document("s1", messages=[], title="new")),
        lambda: store.put_document(S1, MAIN, make_document("s1", title="new"), on_conflict="overwrite"),
        lambda: store.save(make_session("s1"), overwrite=True, shorten=True),
        lambda: store.save(Session.new_child("c1", "s1", "m", "new")),
        lambda: store.save(Session.new_child("c2", "s1", "m", "new")),
        lambda: store.update("s1", lambda session: setattr(session, "title", "newer")),
        lambda: store.check(repair=True),
        lambda: store.clear("s1"),
        lambda: store.maintenance.rebuild(),
        lambda: store.delete("s1", force=True),
        lambda: store.maintenance.erase_all(),
    ]
    for call in calls:
        try:
            yield call()
        except (StoreError, OSError) as error:
            yield error


@pytest.mark.warns
@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("name", LINKED)
def test_links_are_not_followed(home: Path, outside: Path, name: str, reopened: bool) -> None:
    """The target is neither read nor written, whatever is called."""
    secret = contents_of(outside)
    store = open_store(home)
    store.save(make_session("s1", title="mine"))
    if name == "children/c1":
        store.save(Session.new_child("c1", "s1", "m", "mine"))
    if reopened:
        store.close()
    replace_by_link(home, outside, name)
    if reopened:
        store = open_store(home)
    with store:
        for answer in call_everything(store):
            assert SECRET_TITLE not in repr(answer)
            assert contents_of(outside) == secret
    with open_store(home):
        assert contents_of(outside) == secret


@pytest.mark.warns
@pytest.mark.parametrize("name", [MAIN, "children", "attachments", ""])
def test_writing_through_a_link_is_rejected(home: Path, outside: Path, name: str) -> None:
    """The error has the path and states that links are not followed; the link is kept."""
    with open_store(home) as store:
        store.save(make_session("s1"))
        place = replace_by_link(home, outside, name)
        calls = {
            "children": lambda: store.save(Session.new_child("c2", "s1", "m", "t")),
            "attachments": lambda: store.attach("s1", b"x", "image/png"),
        }
        write = calls.get(name, lambda: store.put_document(S1, MAIN, make_document("s1")))
        with rejected(home, Corrupt, "sessions/s1", "links are not followed"):
            write()
        assert place.is_symlink()


@pytest.mark.parametrize("name", ["sessions", ".grovefs", ".grovefs/tmp", ".grovefs/trash"])
def test_home_with_linked_directories_is_not_opened(home: Path, tmp_path: Path, name: str) -> None:
    """Files would be written elsewhere."""
    open_store(home).close()
    elsewhere = tmp_path / "elsewhere"
    (home / name).rename(elsewhere)
    (home / name).symlink_to(elsewhere)
    before = contents_of(elsewhere)
    with pytest.raises(NotFound, match="symbolic link"):
        open_store(home)
    assert contents_of(elsewhere) == before


@pytest.mark.warns
@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", [MAIN, SIDE, "token-usage.jsonl"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_fifo_or_directory_for_a_file_does_not_hang(home: Path, name: str, make: Callable[[Path], None]) -> None:
    """No process writes to the FIFO; every call returns, and the store opens again."""
    with open_store(home) as store:
        store.save(make_session("s1"))
        (home / "sessions/s1" / name).unlink(missing_ok=True)
        make(home / "sessions/s1" / name)
        if name == MAIN:
            with rejected(home, Corrupt, MAIN_PATH, "not a regular file"):
                store.load("s1")
            with rejected(home, Corrupt, MAIN_PATH, "not a regular file"):
                store.put_document(S1, MAIN, GOOD)
        else:
            assert store.load("s1") is not None
    with open_store(home) as store:
        for answer in call_everything(store):
            assert answer is not NotImplemented
