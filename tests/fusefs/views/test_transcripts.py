"""transcripts/: lists every session once, with exact sizes; a page has the bytes of the version looked up."""

from __future__ import annotations

import threading

import pytest

from fusefs.views.base import Item, View, VirtualDir, VirtualFile
from fusefs.views.transcripts import TranscriptsView
from store import Conflict, Message, Session, Store
from tests.builders import make_session


def walk(view: View, path: str = "") -> dict[str, Item]:
    """All items below a path. Checks that listing and lookup agree and that no name is listed twice."""
    found: dict[str, Item] = {}
    for name, item in view.iter_items(path):
        below = f"{path}/{name}" if path else name
        assert below not in found
        other = view.find(below)
        assert type(other) is type(item)
        if isinstance(item, VirtualFile) and isinstance(other, VirtualFile):
            assert (item.size, item.mtime_ns, item.version) == (other.size, other.mtime_ns, other.version)
        else:
            assert item == other
        found[below] = item
        if isinstance(item, VirtualDir):
            found |= walk(view, below)
    return found


def page(view: View, path: str) -> VirtualFile:
    item = view.find(path)
    assert isinstance(item, VirtualFile)
    assert len(item.render()) == item.size
    return item


def test_equal_pages_are_equal_items(store: Store) -> None:
    """A listing replaces the item of a node only if the transcript has changed."""
    store.save(make_session("r", messages=1))
    view = TranscriptsView(store)
    before = view.find("r.md")
    assert before is not None
    assert before == view.find("r.md") == dict(view.iter_items(""))["r.md"]
    store.append("r", [Message.user("one more")])
    assert before != view.find("r.md")


def test_roots_are_pages_and_children_are_in_directories(store: Store) -> None:
    root = make_session("r", title="The root")
    store.save(root)
    store.save(make_session("plain"))
    store.save(Session.new_child_of("c", root, "m", "The child"))
    view = TranscriptsView(store)
    assert sorted(walk(view)) == ["plain.md", "r", "r.md", "r/c.md"]
    assert page(view, "r.md").render().startswith(b"# The root\n")
    assert page(view, "r/c.md").render().startswith(b"# The child\n")


@pytest.mark.parametrize("path", ["x", "x.md", "r", "r.txt", "r/c.md", "r.md/c.md", "../r.md", ".md", "r/c/d.md", "r/"])
def test_missing_paths_are_not_found(store: Store, path: str) -> None:
    store.save(make_session("r"))
    assert TranscriptsView(store).find(path) is None
    assert list(TranscriptsView(store).iter_items("r")) == []


def test_names_of_pages_and_directories_do_not_collide(store: Store) -> None:
    """`a.md` is the page of root `a`, so the directory of root `a.md` needs another name."""
    for name in ("a", "a.md", "a.md.d"):
        root = make_session(name)
        store.save(root)
        store.save(Session.new_child_of("c", root, "m", f"child of {name}"))
    names = sorted(walk(TranscriptsView(store)))
    assert names == sorted(
        [
            *["a", "a/c.md", "a.md", "a.md.d", "a.md.d/c.md", "a.md.md"],
            *["a.md.d.d", "a.md.d.d/c.md", "a.md.d.md"],
        ]
    )
    assert page(TranscriptsView(store), "a.md.d/c.md").render().startswith(b"# child of a.md\n")


def test_version_changes_with_every_change(store: Store) -> None:
    """After an append and after a new title; without a change the version is the same."""
    store.save(make_session("r"))
    view = TranscriptsView(store)
    seen = {page(view, "r.md").version}
    store.append("r", [Message.user("more")])
    seen.add(page(view, "r.md").version)
    session = store.load_runtime("r")
    assert session is not None
    session.title = "Changed"
    store.save_runtime(session)
    seen.add(page(view, "r.md").version)
    assert len(seen) == 3
    assert page(view, "r.md").version in seen


def test_rendered_page_stays_readable_after_an_edit(store: Store) -> None:
    """It comes from the cache. A page not rendered before raises Conflict instead of bytes of another length."""
    store.save(make_session("r"))
    view = TranscriptsView(store)
    read = page(view, "r.md")
    before = read.render()
    store.update("r", lambda session: setattr(session, "title", "A much longer title than it was"))
    unread = TranscriptsView(store).find("r.md")
    assert isinstance(unread, VirtualFile)
    store.update("r", lambda session: setattr(session, "title", "Short"))
    assert read.render() == before
    with pytest.raises(Conflict):
        unread.render()


def test_cache_is_bounded(store: Store) -> None:
    for i in range(8):
        store.save(make_session(f"s{i}"))
    size = page(TranscriptsView(store), "s0.md").size
    view = TranscriptsView(store, cache_bytes=size * 3)
    for i in range(8):
        page(view, f"s{i}.md")
        assert view._cache.size_bytes <= size * 3
    view = TranscriptsView(store, cache_bytes=1)
    page(view, "s0.md")
    assert view._cache.size_bytes == 0


def test_size_is_exact_during_appends(store: Store) -> None:
    """A page has exactly the stated size, or rendering raises Conflict."""
    store.save(make_session("r"))
    view = TranscriptsView(store, cache_bytes=0)
    stop = threading.Event()

    def append() -> None:
        while not stop.is_set():
            store.append("r", [Message.user("one more")])

    writer = threading.Thread(target=append)
    writer.start()
    try:
        exact = 0
        for _ in range(60):
            item = view.find("r.md")
            assert isinstance(item, VirtualFile)
            try:
                assert len(item.render()) == item.size
                exact += 1
            except Conflict:
                continue
        assert exact > 0
    finally:
        stop.set()
        writer.join()
