"""A session that is deleted and created again under its id: nothing of its first life gets into the second."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from store import InboxMessage, Message, NotFound, Session, Store
from store.commit.agreement import Stale
from store.commit.commit import Commit
from store.commit.write_request import WriteRequest
from store.disk.disk import Disk
from store.disk.file import NewFile
from store.errors import Unsure
from store.grove.publishing import Publishing
from store.grove.wire import DELETED
from store.layout import Location
from store.path_kinds import classify_path
from tests.grove.homes import (
    agreement_of,
    assert_same_and_clean,
    be_unsure,
    follower_of,
    pull,
    rows_to_apply,
    texts,
    unfollowed_hosts,
)

NAMES = pytest.mark.parametrize("name", ["s", "s/c"])


def create(store: Store, name: str) -> None:
    root, _, child = name.partition("/")
    store.save(Session.new_child(child, root, "m", "child") if child else Session.new(root, "m"))


def with_session(store: Store, name: str) -> None:
    if "/" in name:
        create(store, name.partition("/")[0])
    create(store, name)


def send(store: Store, name: str, number: int) -> None:
    store.mail.at(name).deliver(InboxMessage.new("boss", "reply", {"n": number}))


@contextmanager
def hosts_with(tmp_path: Path, url: str, name: str, *, has_mail: bool = False) -> Iterator[tuple[Store, Store]]:
    """Two hosts that both have a session, with a message in its mailbox if it `has_mail`."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        with_session(a, name)
        if has_mail:
            send(a, name, 1)
        pull(b, "s")
        yield a, b


def waiting(store: Store, name: str) -> list[int]:
    return [found.message.body["n"] for found in store.mail.at(name).pending()]


@NAMES
@pytest.mark.parametrize("has_mail", [True, False])
def test_a_message_to_a_session_that_another_host_deleted_is_refused(
    tmp_path: Path, url: str, name: str, has_mail: bool
) -> None:
    with hosts_with(tmp_path, url, name, has_mail=has_mail) as (a, b):
        a.delete(name)
        with pytest.raises(NotFound):
            send(b, name, 2)
        create(a, name)
        pull(b, "s")
        assert waiting(a, name) == waiting(b, name) == []
        assert_same_and_clean(a, b)


def test_messages_to_two_sessions_are_refused_together_if_one_was_deleted(tmp_path: Path, url: str) -> None:
    """Both mailboxes are new to the grove."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        for name in ("s", "s/c", "s/d"):
            create(a, name)
        pull(b, "s")
        a.delete("s/d")
        core, message = agreement_of(b).core, InboxMessage.new("boss", "reply", {"n": 1})
        paths = [f"sessions/s/children/{child}/mailbox/new/{message.file_name}" for child in "cd"]
        files = [NewFile(path, [message.render()]) for path in paths]
        dirs = [path.rpartition("/")[0] for path in paths]
        with core.locked_tree("s"), pytest.raises(Stale):
            core.journal.run(Commit(Location("s", "c"), files, dirs=dirs, whole_tree=True))
        pull(b, "s")
        assert_same_and_clean(a, b)


@NAMES
@pytest.mark.parametrize("has_mail", [True, False])
def test_a_message_to_a_second_life_comes_without_the_mail_of_the_first(
    tmp_path: Path, url: str, name: str, has_mail: bool
) -> None:
    """The sender has heard neither of the deletion nor of the new session."""
    with hosts_with(tmp_path, url, name, has_mail=has_mail) as (a, b):
        b.attach(name, b"of the first life", "text/plain")
        a.delete(name)
        create(a, name)
        send(b, name, 2)
        pull(a, "s")
        assert waiting(a, name) == waiting(b, name) == [2]
        assert not [*(b.home / "sessions").rglob("*.txt")]
        assert_same_and_clean(a, b)


@NAMES
def test_a_deletion_takes_mail_along_that_its_host_had_not_heard_of(tmp_path: Path, url: str, name: str) -> None:
    with hosts_with(tmp_path, url, name) as (a, b):
        send(b, name, 1)
        a.delete(name)
        create(a, name)
        pull(b, "s")
        assert waiting(a, name) == waiting(b, name) == []
        assert_same_and_clean(a, b)
        a.delete(name)
        a.trash.undelete(min(deleted(a)))
        pull(b, "s")
        assert waiting(a, name) == waiting(b, name) == [1]


def deleted(store: Store, name: str | None = None) -> list[str]:
    """The slots of deleted sessions in the trash, or of those with this name."""
    slots = [slot for slot in store.trash.deleted() if slot.what == "deleted"]
    return [slot.name for slot in slots if name in (None, slot.session_id)]


def catch_up_by_tree(store: Store, units: list[str]) -> None:
    pull(store, "s")


def catch_up_by_unit(store: Store, units: list[str]) -> None:
    """As a follower does after it could not get the lock of the tree."""
    grove = agreement_of(store)
    for unit in units:
        grove.replica.note_behind(unit, "locked")
    follower_of(store).retry_behind()
    assert grove.replica.behind() == []


@NAMES
@pytest.mark.parametrize("catch_up", [catch_up_by_tree, catch_up_by_unit])
def test_a_host_that_slept_through_both_events_keeps_the_first_life_in_its_trash(
    tmp_path: Path, url: str, name: str, catch_up: Callable[[Store, list[str]], None]
) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        with_session(a, name)
        send(a, name, 1)
        pull(b, "s")
        a.delete(name)
        create(a, name)
        directory = agreement_of(b).core.locate(name).dir  # type: ignore[union-attr]
        catch_up(b, [directory, f"{directory}/mailbox"])
        assert waiting(b, name) == []
        assert_same_and_clean(a, b)
        b.delete(name)
        [first, _] = sorted(deleted(b))
        b.trash.undelete(first)
        assert waiting(b, name) == [1]


def fetch_each_unit(store: Store) -> None:
    """As a follower does that could get no lock while it read the log."""
    grove = agreement_of(store)
    for row in rows_to_apply(store):
        grove.replica.note_behind(row.unit, "locked")
    follower_of(store).retry_behind()
    assert grove.replica.behind() == []


def apply_deletions_only(store: Store) -> None:
    """As a follower does that got the locks again when it came to the deletion."""
    for row in rows_to_apply(store):
        if row.ops == DELETED:
            follower_of(store)._apply_row(row)


CATCH_UPS = pytest.mark.parametrize(
    "catch_up", [lambda store: pull(store, "s"), fetch_each_unit, apply_deletions_only], ids=["pull", "fetch", "delete"]
)


@NAMES
@CATCH_UPS
def test_the_trash_has_the_last_changes_of_a_session_that_a_host_did_not_hear_of(
    tmp_path: Path, url: str, name: str, catch_up: Callable[[Store], None]
) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        with_session(a, name)
        pull(b, "s")
        a.append(name, [Message.user("the last words")])
        a.attach(name, b"the last attachment", "text/plain")
        send(a, name, 1)
        a.delete(name)
        catch_up(b)
        [slot] = deleted(b)
        b.trash.undelete(slot)
        pull(a, "s")
        assert texts(a, name) == texts(b, name) == ["the last words"]
        assert [path.read_bytes() for path in (b.home / "sessions").rglob("*.txt")] == [b"the last attachment"]
        assert waiting(a, name) == waiting(b, name) == [1]
        assert_same_and_clean(a, b)


@CATCH_UPS
def test_the_trash_has_children_that_a_host_did_not_hear_of(
    tmp_path: Path, url: str, catch_up: Callable[[Store], None]
) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        create(a, "s")
        pull(b, "s")
        create(a, "s/c")
        send(a, "s/c", 1)
        a.delete("s")
        catch_up(b)
        [slot] = deleted(b)
        b.trash.undelete(slot)
        pull(a, "s")
        assert b.ids() == a.ids() == ["s", "s/c"]
        assert waiting(a, "s/c") == waiting(b, "s/c") == [1]
        assert_same_and_clean(a, b)


@CATCH_UPS
def test_the_trash_has_every_life_that_a_host_did_not_hear_of(
    tmp_path: Path, url: str, catch_up: Callable[[Store], None]
) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        create(a, "s")
        create(a, "s/c")
        pull(b, "s")
        for life in ("first", "second"):
            a.append("s/c", [Message.user(life)])
            a.delete("s/c")
            create(a, "s/c")
        a.append("s/c", [Message.user("third")])
        a.delete("s")
        catch_up(b)
        [of_root] = deleted(b, "s")
        b.trash.undelete(of_root)
        assert texts(b, "s/c") == ["third"]
        for slot, life in zip(sorted(deleted(b, "s/c")), ["first", "second"], strict=True):
            b.delete("s/c")
            b.trash.undelete(slot)
            assert texts(b, "s/c") == [life]
        pull(a, "s")
        assert_same_and_clean(a, b)


def test_the_mail_of_a_session_that_only_this_host_has_is_local(tmp_path: Path, url: str) -> None:
    """Until the session is published: another host would get a mailbox without a session."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        shutil.copytree(a.home / "sessions/s", a.home / "sessions/copied")
        for document in (a.home / "sessions/copied").glob("*.json"):
            document.write_text(document.read_text().replace('"s"', '"copied"'))
        send(a, "copied", 1)
        pull(b, "copied")
        assert not (b.home / "sessions/copied").exists()
        Publishing(agreement_of(a).core).publish("copied")
        pull(b, "s", "copied")
        assert waiting(b, "copied") == [1]
        assert_same_and_clean(a, b)


@NAMES
def test_a_message_stored_in_the_mount_does_not_bring_a_deleted_session_back(
    tmp_path: Path, url: str, name: str
) -> None:
    with hosts_with(tmp_path, url, name) as (a, b):
        a.delete(name)
        message = InboxMessage.new("boss", "reply", {"n": 1})
        directory = agreement_of(b).core.locate(name).dir  # type: ignore[union-attr]
        target = classify_path(f"{directory}/mailbox/new/{message.file_name}")
        with pytest.raises(NotFound):
            b.mail.put(WriteRequest(target, message.render()), message.render())
        assert not (b.home / directory).exists()
        assert_same_and_clean(a, b)


@NAMES
@pytest.mark.parametrize("is_stored", [True, False])
def test_after_a_deletion_of_unknown_outcome_the_session_is_there_or_in_the_trash(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, name: str, is_stored: bool
) -> None:
    """And restoring it, also with an unknown outcome, leaves it on every host."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        with_session(a, name)
        send(a, name, 1)
        pull(b, "s")
        be_unsure(monkeypatch, is_stored=is_stored)
        with pytest.raises(Unsure):
            a.delete(name)
        assert a.exists(name)
        assert deleted(a) == []
        pull(a, "s")
        assert a.exists(name) != is_stored
        assert len(deleted(a)) == is_stored
        if not is_stored:
            assert a.delete(name)
        [slot] = deleted(a)
        be_unsure(monkeypatch, is_stored=is_stored)
        with pytest.raises(Unsure):
            a.trash.undelete(slot)
        pull(a, "s")
        assert a.exists(name) == is_stored
        assert deleted(a) == [slot]
        if not is_stored:
            a.trash.undelete(slot)
        pull(b, "s")
        assert waiting(a, name) == waiting(b, name) == [1]
        assert_same_and_clean(a, b)


@pytest.mark.warns  # the store logs that the commit is not stored here yet
@NAMES
@pytest.mark.parametrize("failing", ["journal", "move"])
def test_a_session_that_is_restored_but_not_yet_stored_here_keeps_its_local_files(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, name: str, failing: str
) -> None:
    """The grove has agreed, then this disk fails. Logs and foreign files are nowhere else."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        with_session(a, name)
        directory = a.home / agreement_of(a).core.locate(name).dir  # type: ignore[union-attr]
        (directory / "notes.txt").write_text("only here")
        a.delete(name)
        [slot] = deleted(a)
        fail_at(monkeypatch, agreement_of(a).core.disk, failing)
        a.trash.undelete(slot)
        monkeypatch.undo()
        assert agreement_of(a).replica.behind()
        kept = [path.read_text() for path in a.home.rglob("notes.txt")]
        assert kept == ["only here"]
        pull(a, "s")
        pull(b, "s")
        assert a.exists(name)
        assert b.exists(name)
        assert [path.read_text() for path in a.home.rglob("notes.txt")] == kept
        assert a.check().is_clean


def fail_at(monkeypatch: pytest.MonkeyPatch, disk: Disk, failing: str) -> None:
    """Let every step of this name fail."""
    real = disk.step

    def step(name: str) -> None:
        if name == failing:
            raise OSError(errno.EIO, "broken disk")
        real(name)

    monkeypatch.setattr(disk, "step", step)
