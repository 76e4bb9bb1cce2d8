"""What went in one go is one deletion, and is called as people call sessions."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from store import Ambiguous, NotFound, Session, Store
from store.disk.trash import PAUSE_NS, TrashSlot, find_deletion, group_deletions
from store.path_kinds import classify_path
from tests.builders import make_session

SECOND = 10**9


def slot(at_s: float, session: str, what: str = "deleted", path: str = "", title: str = "") -> TrashSlot:
    original = path or "sessions/" + session.replace("/", "/children/")
    return TrashSlot(f"{int(at_s * SECOND):020d}-x", int(at_s * SECOND), session, what, [(original, "kept")], title)


def newest_first(*slots: TrashSlot) -> list[TrashSlot]:
    return sorted(slots, key=lambda s: -s.deleted_at_ns)


def test_what_a_filesystem_takes_name_by_name_is_one_deletion() -> None:
    root = slot(9, "r")
    tree = [
        *(slot(1, "r/c", "log deleted"), slot(2, "r/c"), slot(3, "r", "attachment deleted")),
        *(slot(4, "r", "document deleted"), slot(5, "r", "record deleted"), root),
    ]
    (deletion,) = group_deletions(newest_first(*tree))
    assert deletion.slots == tuple(newest_first(*tree))
    assert deletion.last == root
    assert deletion.what == "deleted, with 1 child and 3 files"


def test_what_had_gone_before_or_elsewhere_is_another_one() -> None:
    pause_s = PAUSE_NS / SECOND
    before, cleared, other = slot(1, "r", "log deleted"), slot(1.5 + pause_s, "r", "cleared"), slot(2 + pause_s, "rr")
    found = group_deletions(newest_first(before, cleared, other, slot(2.5 + pause_s, "r")))
    assert [len(deletion.slots) for deletion in found] == [1, 1, 1, 1]
    assert group_deletions(newest_first(slot(1, "r"), slot(2, "r"))) == [((slot(2, "r"),),), ((slot(1, "r"),),)]


def test_files_that_went_one_after_the_other_are_one() -> None:
    files = [slot(n, "r", "attachment deleted", f"sessions/r/attachments/{n}") for n in range(3)]
    (deletion,) = group_deletions(newest_first(*files))
    assert deletion.what == "3 files deleted"
    assert find_deletion([deletion], "sessions/r/attachments/1").slots == (files[1],)


def test_a_deletion_is_called_as_sessions_are() -> None:
    slots = newest_first(
        *(
            slot(1, "fix-login", title="The login"),
            slot(20, "fix-login/plan"),
            slot(40, "fix-logout"),
            slot(60, "other"),
        ),
        slot(80, "fix-login", title="The login"),
    )
    found = group_deletions(slots)
    for name in ("fix-login", "fix-logi", "the  LOGIN", slots[0].name):
        assert find_deletion(found, name).last == slots[0], name  # of two the latest
    assert find_deletion(found, "plan").last.session_id == "fix-login/plan"
    assert find_deletion(found, slots[-1].name).last == slots[-1]
    assert find_deletion(found, "fix/pl").last.session_id == "fix-login/plan"
    with pytest.raises(Ambiguous, match=r"say which: fix-login, fix-logout$"):
        find_deletion(found, "fix")
    for name in ("nobody", "", " ", "ogin"):
        with pytest.raises(NotFound):
            find_deletion(found, name)


def test_attachments_and_logs_come_back(store: Store) -> None:
    store.save(make_session("s1", title="One"))
    attached = store.attach("s1", b"\x89PNG picture", "image/png")
    store.append_token_usage("s1", {"input_tokens": 1})
    picture = classify_path(f"sessions/s1/attachments/{attached.id}.png")
    log = classify_path("sessions/s1/token-usage.jsonl")
    for place in (picture, log):
        store.names.remove_file(place)
        assert not (store.home / place.path).exists()
    assert store.read_attachment("s1", attached.id) is None
    (deletion,) = group_deletions(store.deleted())
    assert (deletion.paths, deletion.last.title) == ([log.path, picture.path], "One")
    for part in deletion.slots:
        store.undelete(part.name)
    assert store.read_attachment("s1", attached.id) == (b"\x89PNG picture", "image/png")
    entry = store.entry("s1")
    assert entry is not None
    assert entry.has_attachments
    assert (store.home / log.path).read_bytes() == b'{"input_tokens":1}\n'
    assert store.deleted() == []


def test_what_editors_leave_is_not_kept(store: Store) -> None:
    store.save(make_session("s1"))
    for name in (".draw.png.swp", "draw.png~", "4913"):
        place = classify_path(f"sessions/s1/attachments/{name}")
        store.names.commit(place, b"" if name == "4913" else b"x")
        store.names.remove_file(place)
    assert store.deleted() == []


@pytest.mark.parametrize("name", ["attachments/big.bin", "token-usage.jsonl"])
def test_on_a_full_disk_a_file_goes_for_good(home: Path, name: str) -> None:
    """There it is deleted to make room, and a trash that cannot be written to is no reason to refuse."""
    is_full = False

    def step(what: str) -> None:
        if is_full and what == "write-temp":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Store.open(home, background=False, step=step) as store:
        store.save(make_session("s1"))
        place = classify_path(f"sessions/s1/{name}")
        (home / place.path).write_bytes(b"much")
        is_full = True
        store.names.remove_file(place)
        is_full = False
        assert not (home / place.path).exists()
        assert store.deleted() == []
        assert not list((home / ".grovefs/trash").iterdir())
        assert store.check().is_clean


def test_the_trash_can_be_emptied(store: Store) -> None:
    root = make_session("s1")
    store.save(root)
    store.save(Session.new_child_of("kid", root, "m", "A child"))
    store.state.save_json("facts", "f", 1)
    store.state.delete("facts", "f")
    store.delete("s1")
    assert store.empty_trash() == 2
    assert store.deleted() == []
    assert not list((store.home / ".grovefs/trash").iterdir())


def test_what_was_replaced_comes_back_by_its_own_name_alone() -> None:
    """Who wants a session back means what was deleted, not the spoiled version that a repair took away."""
    gone, spoiled = slot(1, "r"), slot(20, "r", "bad sidecar")
    found = group_deletions(newest_first(gone, spoiled))
    assert find_deletion(found, "r").slots == (gone,)
    assert find_deletion(found, spoiled.name).slots == (spoiled,)
    with pytest.raises(NotFound, match=f"bad sidecar.*grovefs undelete {spoiled.name}"):
        find_deletion(group_deletions([spoiled]), "r")


def test_an_attachment_whose_name_is_no_text_comes_back(store: Store) -> None:
    store.save(make_session("s1"))
    store.attach("s1", b"picture", "image/png")
    path = f"sessions/s1/attachments/{os.fsdecode(bytes([0xFF, 0xFE]))}.bin"
    (store.home / path).write_bytes(b"odd")
    store.names.remove_file(classify_path(path))
    assert not (store.home / path).exists()
    (deletion,) = group_deletions(store.deleted())
    assert deletion.paths == [path]
    store.undelete(deletion.last.name)
    assert (store.home / path).read_bytes() == b"odd"
