"""The files of a home at a moment."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from store import InvalidName, Message, PastDir, PastFile, PastTree, Session, Store
from store.history import lineages, thinning
from store.history.database import HistoryUnusable
from tests.builders import files_below, make_document, make_session
from tests.store.undo.test_version_lookup import retitle


def now_ns() -> int:
    """A moment after everything so far, and before everything to come."""
    time.sleep(0.002)
    moment = time.time_ns()
    time.sleep(0.002)
    return moment


def walk(tree: PastTree, path: str = "") -> dict[str, PastFile]:
    """All files below a path. Every listed name can be looked up."""
    found: dict[str, PastFile] = {}
    for name in tree.iter_names(path):
        below = f"{path}/{name}" if path else name
        entry = tree.find(below)
        assert entry is not None
        found |= walk(tree, below) if isinstance(entry, PastDir) else {below: entry}
    return found


def contents(tree: PastTree) -> dict[str, bytes]:
    """All bytes; every size is exact."""
    found = {path: (file.size, tree.read(file)) for path, file in walk(tree).items()}
    assert all(size == len(data) for size, data in found.values())
    return {path: data for path, (_, data) in found.items()}


def documents(home: Path) -> dict[str, bytes]:
    found = {
        path if path.startswith(("state/", "projects/")) else f"sessions/{path}": d
        for path, d in files_below(home).items()
    }
    return {path: data for path, data in found.items() if path.endswith((".json", ".md", ".png"))}


def test_a_moment_shows_all_documents_as_they_were(store: Store, home: Path) -> None:
    """Roots, children, state documents and attachments; later changes do not matter."""
    root = make_session("r", title="then")
    store.save(root)
    store.save(Session.new_child_of("c", root, "m", "the child"))
    store.attach("r", b"picture", "image/png")
    store.state.save_markdown("plans", "today", "one\n")
    moment, then = now_ns(), documents(home)
    retitle(store, "r", "later")
    store.append("r/c", [Message.user("more")])
    store.state.save_markdown("plans", "today", "two\n")
    store.save(make_session("new"))
    store.attach("r", b"another picture", "image/png")
    assert contents(store.history.tree_at(moment)) == then
    assert contents(store.history.tree_at(now_ns())) == documents(home)


def test_sessions_have_the_names_they_had_then(store: Store, home: Path) -> None:
    """Whatever they are called now, or whether they are deleted now."""
    store.save(make_session("old"))
    store.save(make_session("gone"))
    store.attach("gone", b"picture", "image/png")
    moment, then = now_ns(), documents(home)
    store.rename("old", "new")
    store.delete("gone")
    tree = store.history.tree_at(moment)
    assert contents(tree) == then
    assert sorted(tree.iter_names("sessions")) == ["gone", "old"]
    assert sorted(store.history.tree_at(now_ns()).iter_names("sessions")) == ["new"]


def test_a_past_file_has_todays_permissions(store: Store, home: Path) -> None:
    """A deleted one is its owner's."""
    for id in ("open", "gone"):
        store.save(make_session(id))
        (home / f"sessions/{id}/session.json").chmod(0o644)
        (home / f"sessions/{id}").chmod(0o755)
    moment = now_ns()
    (home / "sessions/open/session.json").chmod(0o640)
    store.delete("gone")
    tree = store.history.tree_at(moment)
    assert mode(tree, "sessions/open") == 0o755
    assert mode(tree, "sessions/open/session.json") == 0o640
    assert mode(tree, "sessions/gone") == 0o700
    assert mode(tree, "sessions/gone/session.json") == 0o600


def mode(tree: PastTree, path: str) -> int:
    entry = tree.find(path)
    assert entry is not None
    return entry.mode


def test_times_and_identities_are_those_of_versions(store: Store) -> None:
    """What did not change between two moments is the same file in both."""
    for id in ("same", "changed"):
        store.save(make_session(id))
    first = now_ns()
    retitle(store, "changed", "later")
    trees = [walk(store.history.tree_at(moment)) for moment in (first, now_ns())]
    for path in ("sessions/same/session.json", "sessions/same/runtime.json"):
        assert trees[0][path] == trees[1][path]
    newest, oldest = store.history.log("changed")
    files = [tree["sessions/changed/session.json"] for tree in trees]
    assert [file.mtime_ns for file in files] == [oldest.at_ns, newest.at_ns]
    assert files[0].identity != files[1].identity


def test_a_session_that_was_never_recorded_is_shown_as_it_is(store: Store, home: Path) -> None:
    """If its files have not changed since the moment."""
    before = now_ns()
    directory = home / "sessions/bare"
    directory.mkdir(parents=True)
    (directory / "session.json").write_bytes(make_document("bare"))
    store.maintenance.sweep()
    assert store.history.newest("bare") is None
    assert contents(store.history.tree_at(now_ns())) == {"sessions/bare/session.json": make_document("bare")}
    assert contents(store.history.tree_at(before)) == {}


def test_attachments_that_changed_since_are_absent(store: Store, home: Path) -> None:
    """Their bytes are not in the history."""
    store.save(make_session("s1"))
    first = store.attach("s1", b"first", "image/png")
    kept = store.attach("s1", b"kept", "image/png")
    moment = now_ns()
    path = next((home / "sessions/s1/attachments").glob(f"{first.id}*"))
    path.write_bytes(b"overwritten")
    shown = list(store.history.tree_at(moment).iter_names("sessions/s1/attachments"))
    assert [name.partition(".")[0] for name in shown] == [kept.id]
    tree = store.history.tree_at(moment)
    assert tree.find(f"sessions/s1/attachments/{path.name}") is None
    file = tree.find(f"sessions/s1/attachments/{shown[0]}")
    assert isinstance(file, PastFile)
    fd = tree.open(file)
    assert os.read(fd, 100) == b"kept"
    os.close(fd)


@pytest.mark.parametrize(
    "path",
    [
        "x",
        "sessions/x",
        "sessions/s1/x",
        "sessions/s1/attachments/x",
        "sessions/s1/children",
        "sessions/s1/session.json/x",
        "../sessions",
    ],
)
def test_missing_paths_are_not_found(store: Store, path: str) -> None:
    store.save(make_session("s1"))
    assert store.history.tree_at(now_ns()).find(path) is None


def test_only_moments_that_are_kept_exist(store: Store) -> None:
    """Not those in the future, nor those before the oldest version."""
    before = now_ns()
    store.save(make_session("s1"))
    assert store.history.is_kept(now_ns())
    assert not store.history.is_kept(before)
    assert not store.history.is_kept(time.time_ns() + 10**10)


@pytest.mark.parametrize("name", ["", ".", "a/b", ".hidden", "-x", "a\nb", "x" * 300])
def test_names_of_snapshots_are_names_of_files(store: Store, name: str) -> None:
    with pytest.raises(InvalidName, match="cannot be the name of a snapshot"):
        store.history.snapshot(name)


# -- sessions that are not in the history ------------------------------------------------------------


def home_without_versions(home: Path) -> dict[str, bytes]:
    """As an older GroveFS left it; returns the documents."""
    with Store.open(home, background=False, history=False) as store:
        root = make_session("r", title="then")
        store.save(root)
        store.save(Session.new_child_of("c", root, "m", "the child"))
        store.save(make_session("edited"))
        store.save(make_session("renamed"))
    return documents(home)


def test_a_snapshot_keeps_sessions_that_had_no_version(home: Path) -> None:
    """Whatever happens to them afterwards: deletion, a rename, an edit by the store or on disk."""
    then = home_without_versions(home)
    calls: list[tuple[int, int]] = []
    with Store.open(home, background=False) as store:
        before = store.history.snapshot("before", progress=lambda done, total: calls.append((done, total)))
        store.delete("r")
        store.trash.empty()
        store.rename("renamed", "other")
        (home / "sessions/edited/session.json").write_bytes(make_document("edited", title="on disk"))
        store.append("edited", [Message.user("more")])
        assert contents(store.history.tree_at(before.at_ns)) == then
        versions = store.history.between(0, before.at_ns)
        assert {(version.what, version.author.via) for version in versions} == {("found", "outside")}
        store.history.snapshot("again", progress=lambda done, total: calls.append((done, total)))
        assert store.check().is_clean
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_no_snapshot_is_made_while_versions_are_not_kept(home: Path) -> None:
    home_without_versions(home)
    with Store.open(home, background=False, history=False) as store:
        with pytest.raises(HistoryUnusable, match="no snapshot was made: turned off"):
            store.history.snapshot("before")
        assert store.history.snapshots() == []


def test_a_session_whose_versions_were_thinned_out_is_shown_as_it_is(store: Store, home: Path) -> None:
    """Not as an older version that a snapshot names, and not as missing."""
    store.save(make_session("named"))
    first = store.history.snapshot("first")
    retitle(store, "named", "later")
    store.save(make_session("other"))
    with store._core.history.database.write() as db:
        for key, path in lineages.at_or_below(db, b"sessions"):
            thinning.keep_only(db, key, {1} if path == b"sessions/named" else set())
    then = documents(home)
    assert contents(store.history.tree_at(now_ns())) == then
    second = store.history.snapshot("second")
    store.delete("other")
    store.append("named", [Message.user("more")])
    assert contents(store.history.tree_at(second.at_ns)) == then
    assert list(store.history.tree_at(first.at_ns).iter_names("sessions")) == ["named"]
