"""What went in one go is one deletion, and is called as people call sessions."""

from __future__ import annotations

import pytest

from store import Ambiguous, NotFound
from store.disk.trash import TrashSlot
from store.sessions.deletions import PAUSE_NS, find_deletion, group_deletions

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
    with pytest.raises(Ambiguous, match=r"candidates: fix-login, fix-logout$"):
        find_deletion(found, "fix")
    for name in ("nobody", "", " ", "ogin"):
        with pytest.raises(NotFound):
            find_deletion(found, name)


def test_what_was_replaced_comes_back_by_its_own_name_alone() -> None:
    """Who wants a session back means what was deleted, not the spoiled version that a repair took away."""
    gone, spoiled = slot(1, "r"), slot(20, "r", "bad sidecar")
    found = group_deletions(newest_first(gone, spoiled))
    assert find_deletion(found, "r").slots == (gone,)
    assert find_deletion(found, spoiled.name).slots == (spoiled,)
    with pytest.raises(NotFound, match=f"bad sidecar.*grovefs undelete {spoiled.name}"):
        find_deletion(group_deletions([spoiled]), "r")
