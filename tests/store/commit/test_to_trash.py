"""The part of a commit that puts files into the trash."""

from __future__ import annotations

import json
from pathlib import Path

from store import Location, Store
from store.commit.to_trash import NOTHING_KEPT, deletion_reason, is_worth_keeping, to_trash
from store.commit.write_request import WriteRequest
from store.disk.file import File, Stamp, Temp
from store.disk.trash import HIDDEN_DELETED
from store.path_kinds import classify_path
from tests.builders import make_session

LOCATION = Location("s1")
FILE = File(b"old", Stamp(1, 3, 17, 18), 0o640, 0, 0)


def test_moves_and_copies_share_one_slot() -> None:
    """info.json lists both; `moves` contains only the moved files."""
    part = to_trash(LOCATION, "cleared", moved=["sessions/s1/a"], copied=[("sessions/s1/b", FILE)], title="T")
    (slot,) = part.dirs
    copy, info = part.files
    assert part.moves == [("sessions/s1/a", f"{slot}/a")]
    assert (copy.path, copy.content, copy.mtime_ns, copy.mode) == (f"{slot}/b", [b"old"], 17, 0o640)
    assert info.path == f"{slot}/info.json"
    assert not isinstance(info.content, Temp)
    noted = json.loads(b"".join(info.content))
    assert noted["moves"] == [["sessions/s1/b", f"{slot}/b"], ["sessions/s1/a", f"{slot}/a"]]
    assert (noted["what"], noted["title"], noted["session_id"]) == ("cleared", "T", "s1")


def test_numbered_files_may_have_equal_names() -> None:
    """Files of two directories go into one slot."""
    part = to_trash(LOCATION, "deleted", moved=["x/same", "y/same"], numbered=True)
    assert [target.rpartition("/")[2] for _, target in part.moves] == ["0", "1"]


def test_without_files_there_is_no_slot() -> None:
    """An empty slot would stay in the trash for a week."""
    assert to_trash(LOCATION, "displaced") == NOTHING_KEPT


def test_swap_files_are_not_worth_keeping(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "empty").touch()
    info = (tmp_path / "file").stat()
    for name in (".x.swp", ".x.swo", ".x.kate-swp", ".~lock.x.odt#", "session.json~"):
        assert not is_worth_keeping(f"sessions/s1/{name}", info), name
    for name in (".env", "x~", ".swp", "x.swp", ".import.json"):
        assert is_worth_keeping(f"sessions/s1/attachments/{name}", info), name
    assert not is_worth_keeping("sessions/s1/attachments/x", (tmp_path / "empty").stat())
    assert deletion_reason("a/.env", "log deleted") == deletion_reason("a/x~", "log deleted") == HIDDEN_DELETED
    assert deletion_reason("a/.import.json", "log deleted") == "log deleted"


def test_a_deleted_file_named_info_json_can_be_restored(store: Store) -> None:
    """It must not replace the slot's own info.json."""
    store.save(make_session("s1"))
    place = classify_path("sessions/s1/attachments/info.json")
    store.names.commit(WriteRequest(place, b"an attachment"))
    store.names.remove_file(place)
    (slot,) = store.trash.deleted()
    store.trash.undelete(slot.name)
    assert (store.home / place.path).read_bytes() == b"an attachment"
