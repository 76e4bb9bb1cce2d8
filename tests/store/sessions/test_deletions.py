"""Grouping trash slots into deletions, and finding them by name."""

from __future__ import annotations

import pytest

from store import Ambiguous, NotFound
from store.disk.trash import HIDDEN_DELETED, TrashSlot
from store.sessions.deletions import PAUSE_NS, find_deletion, group_deletions

SECOND = 10**9


def slot(at_s: float, session: str, what: str = "deleted", path: str = "", title: str = "") -> TrashSlot:
    directory = "sessions/" + session.replace("/", "/children/")
    original = path or (directory if what == "deleted" else f"{directory}/{what}")
    return TrashSlot(f"{int(at_s * SECOND):020d}-x", int(at_s * SECOND), session, what, [(original, "kept")], title)


def newest_first(*slots: TrashSlot) -> list[TrashSlot]:
    return sorted(slots, key=lambda s: -s.deleted_at_ns)


def test_deletions_of_one_rm_form_one_group() -> None:
    """`rm -r` deletes file by file, each into a slot."""
    root = slot(9, "r")
    tree = [
        *(slot(1, "r/c", "log deleted"), slot(2, "r/c"), slot(3, "r", "attachment deleted")),
        *(slot(4, "r", "document deleted"), slot(5, "r", "record deleted"), root),
    ]
    (deletion,) = group_deletions(newest_first(*tree))
    assert deletion.slots == tuple(newest_first(*tree))
    assert deletion.last == root
    assert deletion.what == "deleted, with 1 child and 3 files"


def test_earlier_deletions_and_other_sessions_are_separate_groups() -> None:
    pause_s = PAUSE_NS / SECOND
    before, cleared, other = slot(1, "r", "log deleted"), slot(1.5 + pause_s, "r", "cleared"), slot(2 + pause_s, "rr")
    found = group_deletions(newest_first(before, cleared, other, slot(2.5 + pause_s, "r")))
    assert [len(deletion.slots) for deletion in found] == [1, 1, 1, 1]
    assert group_deletions(newest_first(slot(1, "r"), slot(2, "r"))) == [((slot(2, "r"),),), ((slot(1, "r"),),)]


def test_an_earlier_deletion_of_the_same_session_ends_a_group() -> None:
    """A session is deleted, created again and deleted again within seconds."""
    first = [slot(1, "r", "attachment deleted"), slot(2, "r", "document deleted"), slot(3, "r")]
    second = slot(5, "r")
    found = group_deletions(newest_first(*first, second))
    assert [deletion.slots for deletion in found] == [(second,), tuple(newest_first(*first))]
    for file in (slot(5, "r", "log deleted"), slot(5, "r/c", "log deleted")):
        older = slot(2, file.session_id, "attachment deleted")
        assert group_deletions(newest_first(older, slot(3, "r"), file))[0].slots == (file,)


def test_a_group_has_each_path_once() -> None:
    """What was deleted under the same name before is a deletion of its own."""
    path = "sessions/r/attachments/x"
    first, second = slot(1, "r", "attachment deleted", path), slot(2, "r", "attachment deleted", path)
    found = group_deletions(newest_first(first, second, slot(3, "r")))
    assert [deletion.slots for deletion in found] == [(slot(3, "r"), second), (first,)]
    child = [slot(1, "r/c", "log deleted", "sessions/r/children/c/old.jsonl"), slot(2, "r/c")]
    found = group_deletions(newest_first(*child, slot(4, "r/c"), slot(5, "r")))
    assert [deletion.slots for deletion in found] == [(slot(5, "r"), slot(4, "r/c")), tuple(newest_first(*child))]


def test_consecutive_deletions_of_files_form_one_group() -> None:
    files = [slot(n, "r", "attachment deleted", f"sessions/r/attachments/{n}") for n in range(3)]
    (deletion,) = group_deletions(newest_first(*files))
    assert deletion.what == "3 files deleted"
    assert find_deletion([deletion], "sessions/r/attachments/1").slots == (files[1],)


def test_a_deletion_is_found_by_the_name_of_its_session() -> None:
    """The latest of several deletions of one session."""
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


def test_hidden_files_alone_are_found_only_by_their_slot() -> None:
    """Editors delete backups after each save. With other files they are part of the deletion."""
    deleted, backup = slot(1, "r", "attachment deleted"), slot(20, "r", HIDDEN_DELETED)
    found = group_deletions(newest_first(deleted, backup))
    assert find_deletion(found, "r").slots == (deleted,)
    assert find_deletion(found, backup.name).slots == (backup,)
    (both,) = group_deletions(newest_first(deleted, slot(2, "r", HIDDEN_DELETED)))
    assert find_deletion([both], "r") == both


def test_a_replaced_version_is_found_only_by_its_slot() -> None:
    """The name of a session means its deletion, not the corrupt version that a repair replaced."""
    deleted, replaced = slot(1, "r"), slot(20, "r", "bad sidecar")
    found = group_deletions(newest_first(deleted, replaced))
    assert find_deletion(found, "r").slots == (deleted,)
    assert find_deletion(found, replaced.name).slots == (replaced,)
    with pytest.raises(NotFound, match=f"bad sidecar.*grovefs undelete {replaced.name}"):
        find_deletion(group_deletions([replaced]), "r")
