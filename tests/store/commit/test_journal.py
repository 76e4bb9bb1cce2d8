"""Journal.run with a finished temporary file: a failure at any step loses nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from store import Location, Message, Store
from store.commit.commit import Commit, IndexRefresh
from store.disk.file import NewFile, Temp
from tests.builders import make_session

LOCATION = Location("s1")
PATH = "sessions/s1/session.json"


class Steps:
    """Records the durable steps of a commit; fails at one of them, if `lasting` also at later ones."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.fail_at: int | None = None
        self.lasting = False
        self.error: Callable[[], BaseException] = lambda: OSError(errno.EIO, os.strerror(errno.EIO))

    def __call__(self, name: str) -> None:
        number = len(self.names)
        self.names.append(name)
        if self.fail_at is not None and (number == self.fail_at or (self.lasting and number > self.fail_at)):
            raise self.error()

    def start(self, fail_at: int | None, *, lasting: bool = False) -> None:
        self.names, self.fail_at, self.lasting = [], fail_at, lasting


def new_version(store: Store) -> tuple[Temp, bytes]:
    """A temporary file with a changed document."""
    raw = (store.home / PATH).read_bytes().replace(b"msg-0", b"after")
    temp = store._core.disk.open_temp()
    os.write(temp.fd, raw)
    return temp, raw


def run(store: Store, temp: Temp) -> None:
    core = store._core
    with core.locked(LOCATION):
        old = core.disk.read(PATH)
        core.journal.run(Commit(LOCATION, [NewFile(PATH, temp, old)]), IndexRefresh([LOCATION]))


def commit_steps(home: Path) -> list[str]:
    steps = Steps()
    with Store.open(home, background=False, step=steps) as store:
        store.save(make_session("s1"))
        temp, raw = new_version(store)
        steps.start(None)
        run(store, temp)
        os.close(temp.fd)
        assert (store.home / PATH).read_bytes() == raw
        return list(steps.names)


def test_temp_is_renamed_into_place(home: Path) -> None:
    """It is synced and renamed, not written again."""
    assert commit_steps(home) == ["sync-temp", "journal", "move", "sync-dir", "history-add", "index"]


@pytest.mark.warns
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("number", range(5))
def test_error_at_any_step_keeps_one_whole_version(home: Path, number: int, *, lasting: bool) -> None:
    """Rule 3: the old version, or the new one if the error says so.

    What was acknowledged stays (rule 2).
    """
    steps = Steps()
    with Store.open(home, background=False, step=steps) as store:
        store.save(make_session("s1"))
        old = (store.home / PATH).read_bytes()
        temp, new = new_version(store)
        steps.start(number, lasting=lasting)
        try:
            run(store, temp)
            expected = new
        except OSError as error:
            is_unchanged = "nothing was changed" in str(error)
            expected = old if is_unchanged else new
        steps.start(None)
        assert os.pread(temp.fd, len(new) + 1, 0) == new  # a writer can retry from the open file
        os.close(temp.fd)
        assert expected == (old if number < 2 or (number == 2 and not lasting) else new)
        loaded = store.load("s1")  # finishes an interrupted commit
        assert loaded is not None
        assert loaded.messages[0].content == ("msg-0" if expected == old else "after")
        assert (store.home / PATH).read_bytes() == expected
    with Store.open(home, background=False) as store:
        assert (store.home / PATH).read_bytes() == expected
        assert os.listdir(home / ".grovefs/tmp") == []
        assert store.check().is_clean


@pytest.mark.parametrize("number", range(5))
def test_interrupt_at_any_step_keeps_one_whole_version(home: Path, number: int) -> None:
    """KeyboardInterrupt, as opposed to an error, can arrive after the point of no return."""
    steps = Steps()
    steps.error = KeyboardInterrupt
    with Store.open(home, background=False, step=steps) as store:
        store.save(make_session("s1"))
        old = (store.home / PATH).read_bytes()
        temp, new = new_version(store)
        steps.start(number)
        with pytest.raises(KeyboardInterrupt):
            run(store, temp)
        steps.start(None)
        os.close(temp.fd)
        expected = old if number < 3 else new
        loaded = store.load("s1")
        assert loaded is not None
        assert loaded.messages[0].content == ("msg-0" if expected == old else "after")
        assert (store.home / PATH).read_bytes() == expected
        assert store._core.journal.all_pending() == []
        assert store.check().is_clean


# -- the sync of the journal entry ---------------------------------------------------------------------------------


def synced_entries(store: Store, monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> list[bool]:
    """For each transaction that stores a journal entry: whether it is synced."""
    found: list[bool] = []
    record = store._core.journal._record

    def note(*args: Any, durable: bool) -> None:
        found.append(durable)
        record(*args, durable=durable)

    with monkeypatch.context() as patched:
        patched.setattr(store._core.journal, "_record", note)
        change()
    return found


def retitle(store: Store) -> None:
    session = store.load("s1")
    assert session is not None
    session.title = "new"
    store.save_runtime(session)


def test_entry_is_synced_unless_a_valid_state_is_left_without_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a single rename of a file, but not after one of two documents or of a directory."""
    session = make_session("s1")
    changes: dict[str, tuple[Callable[[], object], list[bool]]] = {
        "create": (lambda: store.save(session), [True]),
        "append": (lambda: store.append("s1", [Message.user("one")]), [True]),
        "runtime": (lambda: retitle(store), [False]),
        "state": (lambda: store.state.save_markdown("notes", "plan", "first"), [True]),  # makes directories
        "state again": (lambda: store.state.save_markdown("notes", "plan", "second"), [False]),
        "update": (lambda: store.update("s1", lambda found: setattr(found, "title", "other")), [True]),
        "rename": (lambda: store.rename("s1", "s2"), [True]),
        "delete": (lambda: store.delete("s2"), [True]),
    }
    for name, (change, expected) in changes.items():
        assert synced_entries(store, monkeypatch, change) == expected, name


@pytest.mark.parametrize("is_replaced", [True, False])
def test_an_edit_on_disk_right_after_the_rename_is_noticed(home: Path, *, is_replaced: bool) -> None:
    """Another program writes the document before the commit has looked at it again: its text is not taken for ours."""
    path = home / PATH
    edits: list[Callable[[bytes], object]] = []

    def edit_before_sync(name: str) -> None:
        if name == "sync-dir" and edits:
            edits.pop()(path.read_bytes().replace(b"msg-0", b"edited"))

    def replace(raw: bytes) -> None:
        (home / "new").write_bytes(raw)
        (home / "new").rename(path)

    with Store.open(home, background=False, step=edit_before_sync) as store:
        store.save(make_session("s1"))
        edits.append(replace if is_replaced else path.write_bytes)
        store.append("s1", [Message.user("appended")])
        assert b"edited" in path.read_bytes()
        store.append("s1", [Message.user("later")])
        assert [match.location for match in store.search("edited")] == [LOCATION]
        texts = [store.history.read(version).main or b"" for version in store.history.log("s1")]
        assert [b"edited" in text for text in texts] == [True, True, False, False]
        assert store.check().is_clean
