"""Delete, undelete and clear: complete, reversible, and never of a pinned session."""

import os
import time
from pathlib import Path

import pytest

from store import AlreadyExists, BambooAtWork, Location, Message, NotFound, Protected, Session, Store
from store.disk.trash import TrashExpiry
from store.path_kinds import classify_path
from tests.builders import files_below, ids, make_grove, make_session, pin, read_json


@pytest.fixture
def store(fast_store: Store) -> Store:
    return fast_store


def last_slot(store: Store) -> str:
    return store.trash.deleted()[0].name


# -- delete ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session_id", "left"),
    [
        ("r", {"q", "k"}),
        ("b", {"r", "a", "a1", "a2", "q", "k"}),
        ("a", {"r", "b", "q", "k"}),
        ("r/a1", {"r", "a", "b", "q", "k"}),
    ],
)
def test_delete_includes_all_descendants(grove: Store, session_id: str, left: set[str]) -> None:
    """At any depth: from disk, index and search."""
    assert grove.delete(session_id)
    assert ids(grove) == left
    on_disk = {path.parent.name for path in (grove.home / "sessions").rglob("session.json")}
    assert on_disk == left
    for gone in {"a", "b", "a1", "a2"} - left:
        assert grove.load(f"r/{gone}") is None
        assert not grove.search(f'"unique-{gone}"')


def test_deleting_an_unknown_session_returns_false(grove: Store) -> None:
    """Deleting twice too."""
    assert not grove.delete("nobody")
    assert grove.delete("b")
    assert not grove.delete("b")


def test_each_deleted_session_is_in_the_change_feed(grove: Store) -> None:
    """Clients drop their cached copies."""
    cursor = grove.feed.since().cursor
    grove.delete("a")
    changes = grove.feed.since(cursor).items
    assert {(change.location.id, change.what) for change in changes} == {(i, "deleted") for i in ("a", "a1", "a2")}


@pytest.mark.parametrize(("pinned", "deleted"), [("r", "r"), ("a", "a"), ("a2", "a2"), ("a2", "r"), ("a2", "a")])
def test_a_pinned_session_protects_itself_and_its_ancestors(grove: Store, pinned: str, deleted: str) -> None:
    """The error names the pinned session, and nothing changes. force=True deletes it."""
    pin(grove, pinned)
    before = files_below(grove.home)
    which = "it is pinned" if pinned == deleted else f"its descendant r/{pinned} is pinned"
    with pytest.raises(Protected, match=which):
        grove.delete(deleted)
    assert files_below(grove.home) == before
    assert grove.delete(deleted, force=True)
    assert pinned not in ids(grove)


def test_a_pinned_sibling_or_parent_does_not_protect(grove: Store) -> None:
    pin(grove, "b")
    pin(grove, "r")
    assert grove.delete("a")
    assert ids(grove) == {"r", "b", "q", "k"}


def test_a_session_pinned_by_a_direct_edit_is_protected(grove: Store) -> None:
    """Delete reads the files again if they changed."""
    for name in ("session.json", "runtime.json"):
        path = grove.home / f"sessions/r/children/a1/{name}"
        path.write_bytes(path.read_bytes().replace(b'"pinned": false', b'"pinned": true'))
    with pytest.raises(Protected):
        grove.delete("r")


def test_a_pinned_child_created_directly_on_disk_is_protected(grove: Store) -> None:
    """The index does not know it yet."""
    new = grove.home / "sessions/r/children/new"
    new.mkdir()
    for name in ("session.json", "runtime.json"):
        raw = (grove.home / f"sessions/r/children/b/{name}").read_bytes()
        (new / name).write_bytes(raw.replace(b'"id": "b"', b'"id": "new"').replace(b'ned": false', b'ned": true'))
    with pytest.raises(Protected, match="new"):
        grove.delete("r")


@pytest.mark.warns
def test_an_unreadable_session_can_be_deleted_and_restored(grove: Store) -> None:
    """Byte for byte."""
    path = grove.home / "sessions/q/session.json"
    path.write_bytes(b"{corrupt")
    grove.maintenance.sweep()
    assert grove.delete("q")
    grove.trash.undelete(last_slot(grove))
    assert path.read_bytes() == b"{corrupt"
    grove.delete("q")


@pytest.mark.parametrize("odd", ["link", "name"])
def test_a_foreign_entry_in_children_is_deleted_and_restored(store: Store, odd: str) -> None:
    """A symlink in place of `children`, or a name in it that is not UTF-8."""
    store.save(make_session("s1"))
    children = store.home / "sessions/s1/children"
    if odd == "link":
        children.rmdir()
        children.symlink_to("/etc")
    else:
        (children / "\udcff").mkdir()
    assert store.delete("s1")
    assert store.trash.undelete(last_slot(store)) == [Location("s1")]
    assert children.is_symlink() or list(children.iterdir())
    store.delete("s1")


# -- undelete ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", ["r", "b", "a", "a1", "a2"])
def test_undelete_restores_everything(grove: Store, session_id: str) -> None:
    """Files byte for byte, index rows and search rows."""
    files, entries = files_below(grove.home), sorted(grove.entries(), key=lambda e: e.id)
    grove.delete(session_id)
    slot = grove.trash.deleted()[0]
    assert slot.session_id in (session_id, f"r/{session_id}")
    assert slot.what == "deleted"
    restored = grove.trash.undelete(slot.name)
    assert session_id in {location.id for location in restored}
    assert files_below(grove.home) == files
    assert sorted(grove.entries(), key=lambda e: e.id) == entries
    assert len(grove.search('"unique-a2"')) == 1
    assert grove.trash.deleted() == []
    assert not list((grove.home / ".grovefs/trash").iterdir())


def test_undelete_fails_if_the_session_exists_again(grove: Store) -> None:
    """The new session is unchanged, and the deleted one stays in the trash."""
    grove.delete("b")
    again = Session.new_child("b", "r", "m", "another")
    grove.save(again)
    before = files_below(grove.home)
    with pytest.raises(AlreadyExists, match="children/b exists again"):
        grove.trash.undelete(last_slot(grove))
    assert files_below(grove.home) == before
    assert len(grove.trash.deleted()) == 1


def test_undelete_of_several_sessions_is_all_or_nothing(grove: Store) -> None:
    """One of three exists again: none is restored."""
    grove.delete("a")
    parent = grove.load("r")
    assert parent is not None
    grove.save(Session.new_child_of("a2", parent, "m", "in the way"))
    with pytest.raises(AlreadyExists, match="a2"):
        grove.trash.undelete(last_slot(grove))
    assert ids(grove) == {"r", "b", "a2", "q", "k"}


def test_a_child_cannot_be_restored_before_its_root(grove: Store) -> None:
    """It would be an orphan, and would prevent restoring the root."""
    grove.delete("b")
    child = last_slot(grove)
    grove.delete("r")
    with pytest.raises(NotFound, match="restore it first"):
        grove.trash.undelete(child)
    root = next(slot.name for slot in grove.trash.deleted() if slot.session_id == "r")
    grove.trash.undelete(root)
    grove.trash.undelete(child)
    assert ids(grove) == {"r", "a", "b", "a1", "a2", "q", "k"}


def test_undelete_of_an_unknown_slot_raises_not_found(grove: Store) -> None:
    with pytest.raises(NotFound, match="nothing named 'x'"):
        grove.trash.undelete("x")


# -- the trash -------------------------------------------------------------------------------------


def age(store: Store, name: str, days: float) -> str:
    """Rename a slot: its age is in the name."""
    trash = store.home / ".grovefs/trash"
    _, _, rest = name.partition("-")
    older = f"{time.time_ns() - int(days * 86_400e9):020d}-{rest}"
    (trash / name).rename(trash / older)
    return older


def test_trash_slots_expire_after_seven_days(home: Path) -> None:
    """Opening the home erases a slot of eight days, and keeps one of six."""
    grove = make_grove(Store.open(home, background=False))
    grove.delete("a2")
    old = age(grove, last_slot(grove), days=8)
    grove.delete("k")
    young = age(grove, last_slot(grove), days=6)
    grove.close()
    with Store.open(grove.home, background=False) as again:
        assert [slot.name for slot in again.trash.deleted()] == [young]
        assert not (again.home / ".grovefs/trash" / old).exists()
        again.trash.undelete(young)
        assert again.check().is_clean


def test_deleted_lists_the_newest_first(grove: Store) -> None:
    """With id and time."""
    for session_id in ("k", "b", "a2"):
        grove.delete(session_id)
    found = grove.trash.deleted()
    assert [slot.session_id for slot in found] == ["r/a2", "r/b", "q/k"]
    assert found[0].deleted_at_ns > found[2].deleted_at_ns > time.time_ns() - 60e9


@pytest.mark.warns
def test_a_slot_with_a_corrupt_info_file_is_skipped(grove: Store) -> None:
    """With a warning; other slots are listed."""
    grove.delete("k")
    grove.delete("b")
    (grove.home / ".grovefs/trash" / last_slot(grove) / "info.json").write_bytes(b"{")
    assert [slot.session_id for slot in grove.trash.deleted()] == ["q/k"]


def test_a_slot_that_was_restored_is_not_listed(grove: Store) -> None:
    """A crash between restoring and removing the slot leaves only its info.json."""
    grove.delete("k")
    name = last_slot(grove)
    slot = grove.home / ".grovefs/trash" / name
    info = (slot / "info.json").read_bytes()
    grove.trash.undelete(name)
    slot.mkdir()
    (slot / "info.json").write_bytes(info)
    assert grove.trash.deleted() == []


@pytest.mark.warns
def test_a_failure_to_purge_does_not_prevent_opening(grove: Store) -> None:
    """It is logged as a warning."""
    from store.disk import trash

    grove.delete("k")
    age(grove, last_slot(grove), days=8)

    def step(name: str) -> None:
        if name == "remove-tree":
            raise PermissionError(13, "not yours")

    grove._core.disk.step = step
    assert trash.purge(grove._core.disk) == 0
    grove._core.disk.step = lambda name: None
    assert trash.purge(grove._core.disk) == 1


def test_single_files_in_the_trash_have_a_size_limit(store: Store) -> None:
    """The oldest are erased first. Whole sessions stay for seven days, whatever their size."""
    for session_id in ("s1", "s2"):
        store.save(make_session(session_id))
    store.attach("s2", b"x" * 5_000, "image/png")
    store.delete("s2")
    for _ in range(4):
        kept = store.attach("s1", b"y" * 1_000, "image/png")
        store.names.remove_file(classify_path(f"sessions/s1/attachments/{kept.id}.png"))
    found = [slot.name for slot in store.trash.deleted()]
    assert TrashExpiry(store._core.disk).expired() == []
    store._home.services.deleter.purge(TrashExpiry(store._core.disk, kept_bytes=2_500).expired())
    assert [slot.name for slot in store.trash.deleted()] == [*found[:2], found[4]]
    store._home.services.deleter.purge(TrashExpiry(store._core.disk, kept_bytes=500).expired())
    assert [slot.session_id for slot in store.trash.deleted()] == ["s2"]


def test_a_store_that_stays_open_purges_the_trash(home: Path) -> None:
    with Store.open(home) as store:
        store.save(make_session("s1"))
        store.delete("s1")
        old = age(store, last_slot(store), days=8)
        store.save(make_session("s2"))
        deadline = time.monotonic() + 30
        while (home / ".grovefs/trash" / old).exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)


# -- clear ------------------------------------------------------------------------------------------------------


@pytest.fixture
def talked(store: Store) -> Store:
    session = make_session("s1", messages=4)
    session.messages.insert(1, Message.system("be kind"))
    session.messages.insert(3, Message.system("second"))
    store.save(session)
    store.attach("s1", b"picture", "image/png")
    return store


def test_clear_keeps_only_the_first_system_message(talked: Store) -> None:
    """In document, index and search."""
    assert talked.clear("s1")
    session = talked.load("s1")
    assert session is not None
    assert [m.content for m in session.messages] == ["be kind"]
    entry = talked.entry("s1")
    assert entry is not None
    assert (entry.message_count, entry.has_attachments) == (1, False)
    assert not talked.search("msg")
    assert len(talked.search("kind")) == 1
    assert not talked.clear("nobody")


def test_clear_moves_attachments_to_the_trash(talked: Store) -> None:
    """Undelete restores them."""
    attached = talked.home / "sessions/s1/attachments"
    names = os.listdir(attached)
    talked.clear("s1")
    assert not attached.exists() or os.listdir(attached) == []
    slot = talked.trash.deleted()[0]
    assert (slot.session_id, slot.what) == ("s1", "cleared")
    assert talked.trash.undelete(slot.name) == [Location("s1")]
    assert os.listdir(attached) == names
    entry = talked.entry("s1")
    assert entry is not None
    assert entry.has_attachments


def test_attachments_cannot_be_restored_before_their_session(talked: Store) -> None:
    talked.clear("s1")
    attachments = last_slot(talked)
    talked.delete("s1")
    session = last_slot(talked)
    with pytest.raises(NotFound, match="restore it first"):
        talked.trash.undelete(attachments)
    talked.trash.undelete(session)
    talked.trash.undelete(attachments)


def test_clear_keeps_the_conversation_in_the_trash(store: Store) -> None:
    """Also without attachments."""
    store.save(make_session("s1"))
    store.clear("s1")
    assert [d.what for d in store.trash.deleted()] == ["cleared"]
    assert read_json(store.home / "sessions/s1/session.json")["messages"] == []


def test_deleting_fails_while_a_bamboo_server_runs(grove: Store) -> None:
    """The server would write the session again, or miss it."""
    grove.delete("k")
    slot = last_slot(grove)
    plan = grove.prune.plan_cleanup("all")
    grove._home.bamboo.note_rewrite()
    for attempt in (
        lambda: grove.delete("r"),
        lambda: grove.clear("r"),
        lambda: grove.trash.undelete(slot),
        lambda: grove.prune.apply(plan),
    ):
        with pytest.raises(BambooAtWork):
            attempt()
    assert len(ids(grove)) == 6
