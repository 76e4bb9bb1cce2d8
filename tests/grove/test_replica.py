"""grove.db: membership, agreed versions, cursors, units that are behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from store import layout
from store.disk.file import Stamp
from store.errors import StoreError
from store.grove import replica
from store.grove.replica import AgreedFile, AgreedUnit, LogPosition, Membership, NotJoined, Replica, is_joined


def uid() -> str:
    return str(uuid4())


FILE = AgreedFile(Stamp(1, 2, 3, 4), b"\1" * 32)


def joined(home: Path) -> Replica:
    (home / layout.PRIVATE).mkdir(parents=True)
    return Replica.create(home, membership(home))


def membership(home: Path) -> Membership:
    place = (replica.machine_id(), replica.private_inode(home))
    return Membership(uid(), "one", "postgresql:///g", uid(), 64, *place, 5)


def test_a_home_that_has_not_joined_says_so(tmp_path: Path) -> None:
    """Nothing is created by asking."""
    assert not is_joined(tmp_path)
    with pytest.raises(NotJoined, match="has not joined a grove"):
        Replica(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_was_recorded_is_there_after_opening_again(tmp_path: Path) -> None:
    """Membership, versions, files and cursors."""
    first = joined(tmp_path)
    token, unit = uid(), AgreedUnit(3, uid())
    first.record("sessions/a", unit, {"session.json": FILE, "attachments/\udcff": FILE})
    first.move_cursors({7: LogPosition(12, token)})
    before = first.membership
    first.close()
    again = Replica(tmp_path)
    assert again.membership == before
    assert again.find_unit("sessions/a") == unit
    assert again.files("sessions/a") == {"session.json": FILE, "attachments/\udcff": FILE}
    assert again.cursors() == {7: LogPosition(12, token)}
    again.close()


def test_a_deleted_unit_keeps_its_version_and_no_files(tmp_path: Path) -> None:
    """Its number goes on if it is restored."""
    grove = joined(tmp_path)
    grove.record("sessions/a", AgreedUnit(1, uid()), {"session.json": FILE})
    gone = AgreedUnit(2, uid(), is_gone=True)
    grove.record("sessions/a", gone, {})
    assert (grove.find_unit("sessions/a"), grove.files("sessions/a")) == (gone, {})
    grove.close()


def test_a_whole_version_replaces_files_and_claims(tmp_path: Path) -> None:
    """A claim ends when it is recorded as None, or with a whole version that does not name it."""
    grove, unit = joined(tmp_path), "sessions/a/mailbox"
    grove.record(unit, AgreedUnit(1, uid()), {"cur/1.json": FILE, "cur/2.json": FILE}, claims={"cur/1.json": "h"})
    assert grove.claimant(unit, "cur/1.json") == "h"
    assert grove.claimant(unit, "cur/2.json") is None
    grove.record(unit, AgreedUnit(2, uid()), {"cur/2.json": FILE}, is_whole=True)
    assert grove.files(unit) == {"cur/2.json": FILE}
    assert grove.claimant(unit, "cur/1.json") is None
    grove.close()


def test_recording_a_version_ends_being_behind(tmp_path: Path) -> None:
    """`behind` keeps the time of the first failure and the last reason."""
    grove = joined(tmp_path)
    grove.set_behind("sessions/a", "disk full")
    grove.set_behind("sessions/a", "still full")
    [found] = grove.behind()
    assert (found.unit, found.why) == ("sessions/a", "still full")
    grove.record("sessions/a", AgreedUnit(1, uid()), {})
    assert grove.behind() == []
    grove.close()


def test_a_failing_block_records_nothing(tmp_path: Path) -> None:
    """The version and the cursor change together or not at all."""
    grove = joined(tmp_path)

    def record_and_fail() -> None:
        with grove.write():
            grove.record("sessions/a", AgreedUnit(1, uid()), {})
            raise StoreError("stop")

    with pytest.raises(StoreError, match="stop"):
        record_and_fail()
    assert grove.find_unit("sessions/a") is None
    grove.close()


def test_a_copied_home_must_rejoin(tmp_path: Path) -> None:
    """Its .grovefs has another inode, so it is noticed even on the same machine."""
    joined(tmp_path / "one").close()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    original, copy = Replica(tmp_path / "one"), Replica(tmp_path / "two")
    assert original.problem() == ""
    assert "copied" in copy.problem()
    copy.replace_membership(membership(tmp_path / "two"))
    assert copy.problem() == ""
    original.close()
    copy.close()


def test_a_recorded_problem_stays(tmp_path: Path) -> None:
    """Lost history is remembered until the home rejoins."""
    grove = joined(tmp_path)
    grove.set_problem("the database lost 3 commits")
    grove.close()
    again = Replica(tmp_path)
    assert again.problem() == "the database lost 3 commits"
    again.close()


def test_joining_twice_is_refused(tmp_path: Path) -> None:
    joined(tmp_path).close()
    with pytest.raises(StoreError, match="has joined a grove already"):
        Replica.create(tmp_path, membership(tmp_path))
