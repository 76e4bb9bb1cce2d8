"""grove.db: membership, agreed versions, cursors, units that are behind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from store import layout
from store.commit.commit import AgreedVersion
from store.disk.file import Stamp
from store.errors import StoreError
from store.grove import replica
from store.grove.replica import AgreedFile, AgreedUnit, LogPosition, Membership, NotJoined, Replica, is_joined


def uid() -> str:
    return str(uuid4())


DIGEST, STAMP = "01" * 32, Stamp(1, 2, 3, 4)
FILE = AgreedFile(bytes.fromhex(DIGEST), STAMP)


def agreed(number: int, digests: dict[str, str] | None = None, **more: Any) -> AgreedVersion:
    return AgreedVersion("sessions/a", number, uid(), 5, 10 * number, digests or {}, **more)


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
    """Membership, versions, files and cursors. Names need not be UTF-8."""
    first, version = joined(tmp_path), agreed(3, {"session.json": DIGEST, "attachments/\udcff": DIGEST})
    first.record_agreed([version], {f"sessions/a/{name}": STAMP for name in version.digests})
    position = LogPosition(12, uid())
    first.set_cursors({7: position})
    before = first.membership
    first.close()
    again = Replica(tmp_path)
    assert again.membership == before
    assert again.find_unit("sessions/a") == AgreedUnit(3, version.token)
    assert again.files("sessions/a") == {"session.json": FILE, "attachments/\udcff": FILE}
    assert again.cursors() == {7: position}
    assert again.acknowledged() == {5: LogPosition(30, version.token)}
    again.close()


def test_an_older_version_is_not_recorded(tmp_path: Path) -> None:
    """Two processes of one home may apply the same rows."""
    grove, newest = joined(tmp_path), agreed(2)
    grove.record_agreed([newest], {})
    grove.record_agreed([agreed(1), agreed(2)], {})
    assert grove.find_unit("sessions/a") == AgreedUnit(2, newest.token)
    grove.close()


def test_a_deleted_unit_keeps_its_version_and_no_files(tmp_path: Path) -> None:
    """Its numbers continue if it is restored."""
    grove = joined(tmp_path)
    grove.record_agreed([agreed(1, {"session.json": DIGEST})], {})
    grove.record_agreed([agreed(2, is_gone=True)], {})
    found = grove.find_unit("sessions/a")
    assert found is not None
    assert (found.version, found.is_gone, grove.files("sessions/a")) == (2, True, {})
    grove.close()


def test_a_whole_version_replaces_files_and_claims(tmp_path: Path) -> None:
    """A claim ends when it is recorded as None, or with a whole version that does not name it."""
    grove = joined(tmp_path)
    grove.record_agreed([agreed(1, {"cur/1": DIGEST, "cur/2": DIGEST}, claims={"cur/1": "h", "cur/2": "h"})], {})
    grove.record_agreed([agreed(2, claims={"cur/1": None})], {})
    assert [grove.claim_of("sessions/a", path) for path in ("cur/1", "cur/2")] == [None, "h"]
    grove.record_agreed([agreed(3, {"cur/2": DIGEST}, is_whole=True)], {})
    assert list(grove.files("sessions/a")) == ["cur/2"]
    assert grove.claim_of("sessions/a", "cur/2") is None
    grove.close()


def test_recording_a_version_does_not_end_being_behind(tmp_path: Path) -> None:
    """There may be a newer one. `behind` keeps the time of the first failure and the last reason."""
    grove = joined(tmp_path)
    grove.note_behind("sessions/a", "disk full")
    [first] = grove.behind()
    grove.note_behind("sessions/a", "still full")
    assert grove.behind() == [first._replace(why="still full")]
    grove.record_agreed([agreed(1)], {})
    assert grove.behind() == [first._replace(why="still full")]
    assert grove.is_behind("sessions/a")
    grove.forget_behind("sessions/a")
    assert grove.behind() == []
    assert not grove.is_behind("sessions/a")
    grove.close()


def test_a_failing_block_records_nothing(tmp_path: Path) -> None:
    """The version and the cursor change together or not at all."""
    grove = joined(tmp_path)

    def record_and_fail() -> None:
        with grove.write():
            grove.record_agreed([agreed(1)], {})
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
