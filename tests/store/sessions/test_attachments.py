"""Adding, deleting and renaming attachments updates the index, also across crashes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from store import Location, NotFound, Store
from store.commit.write_request import WriteRequest
from store.path_kinds import PathInfo, classify_path
from tests.builders import make_session

KILLED = """
import os, sys
from store import Store
from store.path_kinds import classify_path
store = Store.open(sys.argv[1], background=False)
def step(name):
    if name == sys.argv[2]:
        os._exit(9)
store._core.disk.step = step
if len(sys.argv) > 4:
    store.moves.move(classify_path(sys.argv[3]), classify_path(sys.argv[4]))
else:
    store.names.remove_file(classify_path(sys.argv[3]))
"""


def attached(home: Path, root: str, name: str) -> PathInfo:
    return classify_path(f"sessions/{root}/attachments/{name}")


@pytest.fixture
def two(home: Path) -> Path:
    """One session with an attachment, one without."""
    with Store.open(home, background=False) as store:
        store.save(make_session("one"))
        store.save(make_session("two"))
        store.names.commit(WriteRequest(attached(home, "one", "x"), b"bytes"))
        (home / "sessions/two/attachments").mkdir(exist_ok=True)
    return home


def has_attachments(store: Store, root: str) -> bool:
    """Whether a session has attachments; asserts that index and files agree."""
    entry = store.entry(root)
    assert entry is not None
    assert entry.has_attachments == bool(os.listdir(store.home / f"sessions/{root}/attachments")), root
    return entry.has_attachments


@pytest.mark.parametrize("step", ["journal", "move", "sync-dir", "index"])
@pytest.mark.parametrize("names", [["one/attachments/x"], ["one/attachments/x", "two/attachments/y"]])
def test_the_index_is_right_after_a_kill(two: Path, step: str, names: list[str]) -> None:
    """Rule 7, even if another process keeps the home open, so that no sweep runs."""
    with Store.open(two, background=False) as other:
        arguments = [str(two), step, *(f"sessions/{name}" for name in names)]
        assert subprocess.run([sys.executable, "-c", KILLED, *arguments]).returncode == 9
        with Store.open(two, background=False):  # recovers the commit
            pass
        is_left, is_there = has_attachments(other, "one"), has_attachments(other, "two")
        assert is_left is (step == "journal")  # with a journal entry the commit is finished
        assert is_there is (len(names) == 2 and not is_left)
        assert not [finding for finding in other.check().findings if finding.kind != "temporary"]


def test_a_move_is_announced_for_both_sessions(two: Path) -> None:
    with Store.open(two, background=False) as store:
        cursor = store.feed.since().cursor
        store.moves.move(attached(two, "one", "x"), attached(two, "two", "y"))
        assert (has_attachments(store, "one"), has_attachments(store, "two")) == (False, True)
        assert {change.location for change in store.feed.since(cursor).items} == {Location("one"), Location("two")}
        store.moves.move(attached(two, "two", "y"), classify_path("sessions/two/notes"))
        assert not has_attachments(store, "two")
        store.moves.move(classify_path("sessions/two/notes"), attached(two, "two", "y"))
        assert has_attachments(store, "two")
        assert (two / "sessions/two/attachments/y").read_bytes() == b"bytes"


def test_a_failed_move_changes_nothing(two: Path) -> None:
    with Store.open(two, background=False) as store:
        store.names.make_dir(attached(two, "two", "directory"))
        with pytest.raises(IsADirectoryError, match="nothing was changed"):
            store.moves.move(attached(two, "one", "x"), attached(two, "two", "directory"))
        assert has_attachments(store, "one")
        assert has_attachments(store, "two")
        store.names.remove_dir(attached(two, "two", "directory"))
        assert not has_attachments(store, "two")
        assert store.check().is_clean


def test_removing_a_missing_attachment_raises_not_found(two: Path) -> None:
    with Store.open(two, background=False) as store, pytest.raises(NotFound):
        store.names.remove_file(attached(two, "one", "nothing"))


def test_c12_an_unknown_type_is_stored_as_bin(store: Store) -> None:
    """As Bamboo does; the bytes are worth more than their label."""
    store.save(make_session("s9"))
    attached = store.attach("s9", b"data", "garbage")
    assert attached.mime == "application/octet-stream"
    assert [path.suffix for path in (store.home / "sessions/s9/attachments").iterdir()] == [".bin"]
