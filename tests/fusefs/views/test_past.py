"""at/<time>/: the documents of all sessions at a moment."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from fusefs.views import past
from fusefs.views.base import VirtualDir, VirtualFile
from fusefs.views.page_cache import PageCache
from fusefs.views.past import PastView
from fusefs.views.snapshots import SnapshotsView, as_link
from store import Snapshot, Store, Timestamp
from store.undo.versions_spec import local_text
from tests.builders import make_session
from tests.fusefs.views.test_transcripts import page, walk
from tests.store.undo.test_past_tree import now_ns
from tests.store.undo.test_version_lookup import retitle


def view_of(store: Store) -> PastView:
    return PastView(store, PageCache())


def at(moment_ns: int) -> str:
    return str(Timestamp.from_ns(moment_ns))


def test_a_moment_is_a_directory(store: Store, home: Path) -> None:
    """With the documents of then, their exact sizes and times."""
    store.save(make_session("s1", title="then"))
    store.attach("s1", b"picture", "image/png")
    moment = now_ns()
    then = (home / "sessions/s1/session.json").read_bytes()
    retitle(store, "s1", "later")
    view = view_of(store)
    found = walk(view, at(moment))
    top = f"{at(moment)}/sessions/s1"
    assert {f"{top}/session.json", f"{top}/runtime.json", f"{top}/attachments"} <= set(found)
    assert page(view, f"{top}/session.json").render() == then
    assert page(view, f"{top}/session.json").mtime_ns == store.history.log("s1")[-1].at_ns


def test_attachments_are_read_from_their_files(store: Store) -> None:
    """They may be larger than memory."""
    store.save(make_session("s1"))
    store.attach("s1", b"picture", "image/png")
    [(name, item)] = view_of(store).iter_items(f"{at(now_ns())}/sessions/s1/attachments")
    assert isinstance(item, VirtualFile)
    assert item.open is not None
    fd = item.open()
    assert os.read(fd, 100) == b"picture"
    os.close(fd)
    assert name.endswith(".png")


def test_nothing_is_listed_at_the_top(store: Store) -> None:
    """A moment exists when it is named."""
    view = view_of(store)
    assert not view.is_listed
    assert list(view.iter_items("")) == []
    assert view.find("") == VirtualDir(0, is_fixed=True)


@pytest.mark.parametrize("name", ["x", "25:00", "2090-01-01", "2000-01-01", "7", "-1", ".."])
def test_other_names_do_not_exist(store: Store, name: str) -> None:
    """Nor moments in the future, or before the oldest version."""
    store.save(make_session("s1"))
    assert view_of(store).find(name) is None
    assert list(view_of(store).iter_items(name)) == []


def test_the_time_that_log_prints_shows_that_version(store: Store) -> None:
    """A time without a fraction includes its whole second."""
    store.save(make_session("s1"))
    version = store.history.newest("s1")
    assert version is not None
    name = local_text(version.at_ns).replace(" ", "T")
    assert view_of(store).find(f"{name}/sessions/s1/session.json") is not None


def test_a_relative_time_stays_the_same_moment(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is used: a tool that walks it must not see it move. Later it is a new moment."""
    store.save(make_session("s1"))
    view = view_of(store)
    name = "now/sessions"
    assert [entry for entry, _ in view.iter_items(name)] == ["s1"]
    store.save(make_session("s2"))
    monkeypatch.setattr(past, "FRESH_S", 0.0)
    assert [entry for entry, _ in view.iter_items(name)] == ["s1"]
    monkeypatch.setattr(past, "UNUSED_S", 0.0)
    time.sleep(0.01)
    assert [entry for entry, _ in view.iter_items(name)] == ["s1", "s2"]


def test_the_tree_of_a_moment_is_made_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup is slow only the first time."""
    store.save(make_session("s1"))
    view, path = view_of(store), f"{at(now_ns())}/sessions/s1"
    monkeypatch.setattr(past, "FRESH_S", 60.0)
    assert view.is_slow(path)
    first = view.find(path)
    assert not view.is_slow(path)
    monkeypatch.setattr(type(store.history), "tree_at", None)
    assert view.find(path) == first
    assert not view.is_slow("")


def test_few_trees_are_cached(store: Store) -> None:
    """Each holds a row for every session."""
    store.save(make_session("s1"))
    view = view_of(store)
    moments = [at(now_ns()) for _ in range(past.MAX_TREES + 1)]
    for moment in moments:
        assert view.find(f"{moment}/sessions") is not None
    assert [view.is_slow(moment) for moment in moments] == [True] + [False] * past.MAX_TREES


def test_snapshots_are_links_to_their_moments(store: Store) -> None:
    """In UTC and exact, so that the zone of the mount does not matter."""
    store.save(make_session("s1"))
    made = store.history.snapshot("monday")
    view = SnapshotsView(store)
    assert dict(view.iter_items("")) == {"monday": as_link(made)}
    target = as_link(made).target.removeprefix("../at/")
    assert view_of(store).find(f"{target}/sessions/s1") is not None
    store.save(make_session("s2"))
    assert view_of(store).find(f"{target}/sessions/s2") is None
    store.history.delete_snapshot("monday")
    assert (view.find("monday"), list(view.iter_items(""))) == (None, [])
    assert as_link(Snapshot("x", 10**18)).target == "../at/2001-09-09T01:46:40.0Z"
