"""Mailboxes: delivery, claiming, acknowledgement, waiting, crashes."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import inotify_simple
import pytest

from store import InboxMessage, InvalidContent, InvalidName, Mailbox, NotFound, ProjectSession, SeenIds, Session, Store
from store.commit.write_request import WriteRequest
from store.disk import inotify_wait
from store.path_kinds import classify_path
from tests.builders import make_session

processes = multiprocessing.get_context("fork")
DEADLINE_S = 60.0
STOP = -1


@pytest.fixture
def box(store: Store) -> Mailbox:
    store.save(make_session("s1"))
    return store.mail.at("s1")


def note(number: int = 0) -> InboxMessage:
    return InboxMessage.new("boss", "task", {"number": number})


def numbers(found: object) -> list[int]:
    return [delivered.message.body["number"] for delivered in found]  # type: ignore[attr-defined]


def files(home: Path, box: str) -> list[str]:
    directory = home / "sessions/s1/mailbox" / box
    return sorted(p.name for p in directory.iterdir()) if directory.exists() else []


def test_a_message_is_delivered_claimed_and_acknowledged(store: Store, home: Path, box: Mailbox) -> None:
    """In new/, then in cur/, then deleted."""
    message = note()
    path = box.deliver(message)
    assert path == f"sessions/s1/mailbox/new/{message.created_at.ns:020d}-{message.id}.json"
    assert (home / path).read_bytes() == message.render()
    assert not box.is_empty()
    [claimed] = box.drain()
    assert claimed.message == message
    assert box.is_empty()
    assert not box.is_fully_empty()
    assert files(home, "cur") == [message.file_name]
    assert box.ack(message.id) is True
    assert box.ack(message.id) is False
    assert box.is_fully_empty()


def test_messages_are_received_in_the_order_of_creation(box: Mailbox) -> None:
    messages = [note(i) for i in range(10)]
    for message in random.sample(messages, len(messages)):
        box.deliver(message)
    assert numbers(box.pending()) == list(range(10))
    assert numbers(box.drain(limit=4)) == [0, 1, 2, 3]
    assert numbers(box.drain()) == [4, 5, 6, 7, 8, 9]
    assert box.drain() == []


def test_claimed_messages_are_recovered_until_acknowledged(store: Store, box: Mailbox) -> None:
    for i in range(3):
        box.deliver(note(i))
    claimed = box.drain()
    assert box.ack_delivered(claimed[1])
    assert not box.ack_delivered(claimed[1])
    assert numbers(box.recover()) == [0, 2]
    assert numbers(store.mail.at("s1").recover()) == [0, 2]


def test_delivering_a_message_again_replaces_it(box: Mailbox) -> None:
    """Same id and same time, in new/ and in cur/."""
    message = note()
    box.deliver(message)
    box.deliver(message)
    assert len(box.drain()) == 1
    box.deliver(message)
    assert len(box.drain()) == 1
    assert len(box.recover()) == 1


def test_children_and_sessions_of_projects_have_mailboxes(store: Store, home: Path) -> None:
    """In a project, the mailbox may exist before the session."""
    root = make_session("r")
    store.save(root)
    store.save(Session.new_child_of("c", root, "m", "t"))
    targets: list[tuple[str | ProjectSession, str]] = [
        ("c", "sessions/r/children/c/mailbox"),
        ("r/c", "sessions/r/children/c/mailbox"),
        ("projects/k/sessions/p", "projects/k/sessions/p/mailbox"),
        ("projects/k/sessions/p/children/c", "projects/k/sessions/p/children/c/mailbox"),
        (ProjectSession("k", "p", "c"), "projects/k/sessions/p/children/c/mailbox"),
    ]
    for target, path in targets:
        box = store.mail.at(target)
        assert box.deliver(note()).startswith(f"{path}/new/")
        [claimed] = box.drain()
        assert (home / claimed.path).exists()
        assert box.ack_delivered(claimed)


def test_an_unknown_session_has_no_mailbox(store: Store, box: Mailbox) -> None:
    """A typing error must not send mail to nowhere."""
    with pytest.raises(NotFound, match="'nobody'"):
        store.mail.at("nobody")
    for bad in ("projects/k", "projects/k/sessions", "projects/k/sessions/p/mailbox", "projects/../sessions/s1"):
        with pytest.raises(InvalidName):
            store.mail.at(bad)
    store.delete("s1")
    with pytest.raises(NotFound, match="was deleted"):
        box.deliver(note())
    assert not (store.home / "sessions/s1").exists()


def test_mail_is_renamed_deleted_and_restored_with_its_session(store: Store, box: Mailbox) -> None:
    box.deliver(note(7))
    store.rename("s1", "s2")
    assert numbers(store.mail.at("s2").pending()) == [7]
    store.delete("s2")
    store.trash.undelete(store.trash.deleted()[0].name)
    assert numbers(store.mail.at("s2").drain()) == [7]


def test_mail_is_delivered_while_the_session_is_locked(store: Store, box: Mailbox) -> None:
    """Delivering from within an update does not deadlock."""

    def change(session: Session) -> None:
        thread = threading.Thread(target=lambda: box.deliver(note(1)))
        thread.start()
        thread.join(DEADLINE_S)
        box.deliver(note(2))
        session.title = "changed"

    store.update("s1", change)
    assert numbers(box.drain()) == [1, 2]


@pytest.mark.warns
def test_unreadable_messages_are_moved_to_corrupt(store: Store, home: Path, box: Mailbox) -> None:
    """Garbage, a wrong type, a symlink, a directory. They do not affect other messages."""
    box.deliver(note(1))
    new = home / "sessions/s1/mailbox/new"
    (new / "00-garbage.json").write_bytes(b"{ no message")
    (new / "01-type.json").write_bytes(b'{"id": 5}')
    (new / "02-link.json").symlink_to("/etc/passwd")
    (new / "03-directory.json").mkdir()
    (new / ".hidden.json").write_bytes(b"an editor's")
    (new / "notes.txt").write_bytes(b"foreign")
    assert {f.kind for f in store.check().findings if f.is_damage} == {"message"}
    assert numbers(box.drain()) == [1]
    corrupt = home / "sessions/s1/mailbox/corrupt"
    assert sorted(p.name for p in corrupt.iterdir()) == [
        "00-garbage.json",
        "01-type.json",
        "02-link.json",
        "03-directory.json",
    ]
    assert (corrupt / "00-garbage.json").read_bytes() == b"{ no message"
    assert files(home, "new") == [".hidden.json", "notes.txt"]
    (new / "00-garbage.json").write_bytes(b"another of the same name")
    assert box.drain() == []
    assert (corrupt / "00-garbage.json").read_bytes() == b"{ no message"
    assert (corrupt / "00-garbage.json.2").read_bytes() == b"another of the same name"


@pytest.mark.warns
def test_check_moves_a_damaged_message_to_corrupt(store: Store, home: Path, box: Mailbox) -> None:
    """Readable messages stay."""
    box.deliver(note(1))
    broken = home / box.deliver(note(2))
    broken.write_bytes(broken.read_bytes()[:-5])
    [finding] = [f for f in store.check().findings if f.is_damage]
    assert finding.kind == "message"
    assert finding.path.endswith(broken.name)
    assert store.check(repair=True).exit_code == 1
    assert not broken.exists()
    assert (home / "sessions/s1/mailbox/corrupt" / broken.name).exists()
    assert [f.kind for f in store.check().findings] == ["set-aside"]
    assert numbers(box.drain()) == [1]


def test_check_reports_temporary_and_foreign_files(store: Store, home: Path, box: Mailbox) -> None:
    """A leftover temporary file is removed; a foreign file is only reported."""
    box.deliver(note())
    new = home / "sessions/s1/mailbox/new"
    leftover = new / ".x.json.tmp.12345678-1234-1234-1234-123456789abc"
    leftover.write_bytes(b"half")
    (home / "sessions/s1/mailbox/notes.txt").write_bytes(b"mine")
    assert sorted(f.kind for f in store.check().findings) == ["foreign-file", "temporary"]
    store.check(repair=True)
    assert not leftover.exists()
    assert [f.kind for f in store.check().findings] == ["foreign-file"]


# -- through the mount -----------------------------------------------------------------------------


def test_a_message_written_through_the_mount_is_validated(store: Store, home: Path, box: Mailbox) -> None:
    """Any file name; bytes unchanged. Invalid content is rejected and kept (rules 3 and 5)."""
    place = classify_path("sessions/s1/mailbox/new/by-hand.json")
    raw = (
        b' {"id":"m9","from":{"session_id":"me"},"kind":"task","body":{"number":9},"created_at":"2026-01-01T00:00:00Z"}'
    )
    assert store.names.commit(WriteRequest(place, raw)).is_changed
    assert not store.names.commit(WriteRequest(place, raw)).is_changed
    assert (home / place.path).read_bytes() == raw
    with pytest.raises(InvalidContent):
        store.names.commit(WriteRequest(place, b"{}"))
    assert (home / place.path).read_bytes() == raw
    assert set(store.names.rejects.names(place.directory)) == {"by-hand.json.rejected", "by-hand.json.error"}
    assert numbers(box.drain()) == [9]
    assert box.ack("m9")


def test_a_file_renamed_into_new_is_validated(store: Store, home: Path, box: Mailbox) -> None:
    drafts = home / "sessions/s1"
    (drafts / "good.txt").write_bytes(note(4).render())
    (drafts / "bad.txt").write_bytes(b"nonsense")
    store.moves.move(classify_path("sessions/s1/good.txt"), classify_path("sessions/s1/mailbox/new/a.json"))
    with pytest.raises(InvalidContent):
        store.moves.move(classify_path("sessions/s1/bad.txt"), classify_path("sessions/s1/mailbox/new/b.json"))
    assert not (drafts / "good.txt").exists()
    assert (drafts / "bad.txt").exists()
    assert files(home, "new") == ["a.json"]
    store.moves.move(classify_path("sessions/s1/mailbox/new/a.json"), classify_path("sessions/s1/mailbox/cur/a.json"))
    assert numbers(box.recover()) == [4]
    store.names.remove_file(classify_path("sessions/s1/mailbox/cur/a.json"))
    assert box.is_fully_empty()
    (drafts / "bad.txt").unlink()


def test_a_pinned_session_can_receive_and_delete_mail(store: Store) -> None:
    store.save(make_session("p", pinned=True))
    box = store.mail.at("p")
    path = box.deliver(note())
    store.names.remove_file(classify_path(path))
    assert box.is_fully_empty()


def test_mail_is_in_the_change_feed(store: Store, box: Mailbox) -> None:
    """Rule 7: every delivery, claim and acknowledgement, under the session's location."""
    cursor = store.feed.since().cursor
    box.deliver(note())
    box.ack_delivered(box.drain()[0])
    assert [(str(c.location), c.what) for c in store.feed.since(cursor).items] == [("s1", "mail")] * 3


# -- waiting ---------------------------------------------------------------------------------------


def test_a_consumer_sleeps_until_mail_arrives(home: Path, store: Store, box: Mailbox) -> None:
    """From another process. Waiting uses hardly any CPU time."""

    def deliver() -> None:
        time.sleep(1.0)
        with Store.open(home, background=False) as mine:
            mine.mail.at("s1").deliver(note(5))

    process = processes.Process(target=deliver)
    process.start()
    used = time.thread_time()
    found = box.receive(DEADLINE_S)
    used = time.thread_time() - used
    process.join()
    assert numbers(found) == [5]
    assert used < 0.5


def test_a_file_renamed_into_new_on_disk_wakes_the_consumer(store: Store, home: Path, box: Mailbox) -> None:
    (home / "draft").write_bytes(note(6).render())

    def move() -> None:
        time.sleep(0.3)
        (home / "draft").rename(home / "sessions/s1/mailbox/new/x.json")

    thread = threading.Thread(target=move)
    thread.start()
    assert numbers(box.receive(DEADLINE_S)) == [6]
    thread.join()


def test_waiting_ends_at_the_timeout(box: Mailbox) -> None:
    assert box.wait(0.05) is False
    assert box.receive(0.05) == []
    box.deliver(note())
    assert box.wait(0) is True


def test_waiting_ends_when_the_session_is_deleted(store: Store, box: Mailbox) -> None:
    threading.Timer(0.3, lambda: store.delete("s1")).start()
    started = time.monotonic()
    with pytest.raises(NotFound, match="was deleted"):
        box.receive(DEADLINE_S)
    assert time.monotonic() - started < DEADLINE_S  # it did not wait for the timeout


def test_without_inotify_the_consumer_polls(store: Store, box: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs may use up the system's limit of inotify instances."""

    def none_left() -> None:
        raise OSError(24, "no instances left")

    monkeypatch.setattr(inotify_simple, "INotify", none_left)
    monkeypatch.setattr(inotify_wait, "POLL_S", 0.05)
    thread = threading.Timer(0.2, lambda: box.deliver(note(8)))
    thread.start()
    assert numbers(box.receive(DEADLINE_S)) == [8]


# -- several processes, and kill -9 ----------------------------------------------------------------


def test_each_message_is_claimed_by_one_of_several_consumers(store: Store, home: Path, box: Mailbox) -> None:
    """Three senders and two consumers, each a process."""
    expected = Counter(who * 100 + i for who in range(3) for i in range(20))

    def send(who: int) -> None:
        with Store.open(home, background=False) as mine:
            for i in range(20):
                mine.mail.at("s1").deliver(note(who * 100 + i))

    def consume(says: int) -> None:
        with Store.open(home, background=False) as mine:
            while found := mine.mail.at("s1").receive(DEADLINE_S, limit=1):
                mine.mail.at("s1").ack_delivered(found[0])
                if numbers(found) == [STOP]:
                    return
                os.write(says, f"{numbers(found)[0]}\n".encode())

    said, says = os.pipe()
    senders = [processes.Process(target=send, args=(who,)) for who in range(3)]
    consumers = [processes.Process(target=consume, args=(says,)) for _ in range(2)]
    for process in [*senders, *consumers]:
        process.start()
    os.close(says)
    for process in senders:
        process.join(DEADLINE_S)
    for _ in consumers:
        box.deliver(note(STOP))
    with os.fdopen(said) as pipe:
        got = Counter(map(int, pipe.read().split()))
    for process in [*senders, *consumers]:
        process.join(DEADLINE_S)
        assert process.exitcode == 0
    assert got == expected
    assert box.is_fully_empty()


def test_kill_9_of_senders_and_consumers_loses_no_message(store: Store, home: Path, box: Mailbox) -> None:
    """At least once: every acknowledged delivery arrives, though both sides are killed repeatedly."""
    said, says = os.pipe()

    def send(start: int) -> None:
        with Store.open(home, background=False) as mine:
            for i in range(start, start + 1000):
                mine.mail.at("s1").deliver(note(i))
                os.write(says, f"sent {i}\n".encode())

    def consume() -> None:
        with Store.open(home, background=False) as mine:
            mailbox = mine.mail.at("s1")
            found = mailbox.recover()
            while True:
                for delivered in found:
                    os.write(says, f"got {delivered.message.body['number']} {delivered.message.id}\n".encode())
                    mailbox.ack_delivered(delivered)
                found = mailbox.receive(0.2)

    lines: list[str] = []

    def read() -> None:
        with os.fdopen(said) as pipe:
            lines.extend(pipe)

    reader = threading.Thread(target=read)
    reader.start()
    for round_number in range(6):
        pair = [processes.Process(target=send, args=(round_number * 1000,)), processes.Process(target=consume)]
        before = len(lines)
        for process in pair:
            process.start()
        deadline = time.monotonic() + DEADLINE_S
        while len(lines) < before + 10:  # both are running
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.4))
        for process in pair:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
    os.close(says)
    reader.join()
    sent = {int(line.split()[1]) for line in lines if line.startswith("sent")}
    got = [line.split()[1:] for line in lines if line.startswith("got")]
    rest = [*box.recover(), *box.drain()]
    arrived = {int(number) for number, _ in got} | set(numbers(rest))
    assert sent
    assert sent <= arrived
    seen = SeenIds()
    once = [number for number, message_id in got if seen.admit(message_id)]
    assert len(once) == len(set(once))
    assert {f.kind for f in store.check(repair=True).findings} <= {"temporary"}  # from killed processes


def test_c7_unknown_kinds_are_read_but_not_sent(store: Store) -> None:
    """Bamboo discards a message of a kind that it does not know."""
    store.save(make_session("s9"))
    inbox = store.mail.at("s9")
    with pytest.raises(InvalidContent, match="kind: expected one of task, ask"):
        inbox.deliver(InboxMessage.new("boss", "nonsense", "x"))
    assert inbox.pending() == []
    path = store.home / inbox.deliver(InboxMessage.new("boss", "task", "x"))
    path.write_bytes(path.read_bytes().replace(b'"task"', b'"of_the_future"'))
    assert [delivered.message.kind for delivered in inbox.pending()] == ["of_the_future"]
