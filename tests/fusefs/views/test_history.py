"""history/<root>/: every version of a session as a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusefs.views.base import VirtualDir
from fusefs.views.history import HistoryView, name_of
from fusefs.views.page_cache import PageCache
from store import Message, Session, Store
from store.history.authors import Author, acting_as
from tests.builders import make_session
from tests.fusefs.views.test_transcripts import page, walk
from tests.store.undo.test_version_lookup import retitle


def view_of(store: Store) -> HistoryView:
    return HistoryView(store, PageCache())


@pytest.fixture
def edited(store: Store) -> Store:
    root = make_session("r", title="first")
    store.save(root)
    with acting_as(Author("mount", "sed", 7)):
        retitle(store, "r", "second")
    return store


def test_versions_are_files(edited: Store, home: Path) -> None:
    """Named by number, time and program; with exact sizes, and times and bytes of the version."""
    view = view_of(edited)
    names = list(walk(view, "r"))
    versions = edited.history.log("r")[::-1]
    assert names == [f"r/{name_of(version)}" for version in versions]
    assert names[1].startswith("r/000002~20")
    assert names[1].endswith("~sed.json")
    for path, version in zip(names, versions, strict=True):
        file = page(view, path)
        assert file.mtime_ns == version.at_ns
        assert file.render() == edited.history.read(version).main
    assert page(view, names[-1]).render() == (home / "sessions/r/session.json").read_bytes()


def test_nothing_is_listed_at_the_top(edited: Store) -> None:
    """Tools that walk the mount meet no version."""
    view = view_of(edited)
    assert not view.is_listed
    assert list(view.iter_items("")) == []
    assert view.find("") == VirtualDir(0, is_fixed=True)


def test_children_are_below_their_root(edited: Store) -> None:
    """In `children`, which exists only if there are some."""
    view = view_of(edited)
    assert view.find("r/children") is None
    root = edited.load("r")
    assert root is not None
    edited.save(Session.new_child_of("c", root, "m", "the child"))
    edited.append("r/c", [Message.user("more")])
    names = [path for path in walk(view, "r") if path.startswith("r/children/c/")]
    assert len(names) == 2
    assert page(view, names[0]).render() == edited.history.read(edited.history.log("r/c")[-1]).main


@pytest.mark.parametrize(
    "path",
    [
        "x",
        "r/x",
        "r/000002",
        "r/000002~x.json",
        "r/000009~2026-11-16T22.10.35~sed.json",
        "r/children/x",
        "../r",
        "r/children/c/d/e",
    ],
)
def test_missing_paths_are_not_found(edited: Store, path: str) -> None:
    """A name must be that of a version exactly."""
    assert view_of(edited).find(path) is None
    assert list(view_of(edited).iter_items(path)) == []


def test_versions_have_todays_permissions(edited: Store, home: Path) -> None:
    """Users that may read the session may read its past."""
    (home / "sessions/r/session.json").chmod(0o640)
    view = view_of(edited)
    assert {page(view, path).mode for path in walk(view, "r")} == {0o640}


def test_programs_with_odd_names_are_files_too(store: Store) -> None:
    """A name has no slash and a limited length."""
    with acting_as(Author("api", "a/b c\n" + "x" * 300)):
        store.save(make_session("s"))
    [path] = walk(view_of(store), "s")
    assert "~a-b-c-xxx" in path
    assert len(path) < 100
