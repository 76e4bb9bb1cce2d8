"""Two homes of one grove: what one does, the other has."""

from __future__ import annotations

from pathlib import Path

from store import InboxMessage, Message, Session, Store
from tests.grove.groves import assert_clean, create, hosts, wait_equal, wait_until


def test_a_new_session_and_its_messages_reach_the_other_home(tmp_path: Path, url: str) -> None:
    """With index and search, and with the author and the host in its history."""
    with hosts(tmp_path, create(url), "one", "two") as (one, two):
        one.save(Session.new("s1", "m"))
        one.append("s1", [Message.user("a walrus")])
        wait_until(lambda: two.search("walrus"))
        loaded = two.load("s1")
        assert loaded is not None
        assert [message.content for message in loaded.messages] == ["a walrus"]
        assert {version.author.program for version in two.history.log("sessions/s1")} == {"agent-one@one"}
        wait_equal(one, two)
        assert_clean(one, two)


def test_both_homes_append_to_one_session(tmp_path: Path, url: str) -> None:
    """Nothing is lost, nothing is stored twice, both end with the same bytes."""
    with hosts(tmp_path, create(url), "one", "two") as (one, two):
        one.save(Session.new("s1", "m"))
        wait_until(lambda: two.exists("s1"))
        for number in range(10):
            one.append("s1", [Message.user(f"one {number}")])
            two.append("s1", [Message.user(f"two {number}")])
        wait_equal(one, two)
        loaded = one.load("s1")
        assert loaded is not None
        texts = [message.content for message in loaded.messages]
        assert sorted(map(str, texts)) == sorted(f"{name} {n}" for name in ("one", "two") for n in range(10))
        assert_clean(one, two)


def test_attachments_records_and_state_cross(tmp_path: Path, url: str) -> None:
    """A large attachment is sent in chunks."""
    with hosts(tmp_path, create(url), "one", "two") as (one, two):
        one.save(Session.new("s1", "m"))
        one.attach("s1", b"\0\1\2" * 700_000, "application/octet-stream")
        one.state.save_json("memory/facts", "f", {"a": 1})
        one.state.save_markdown("notes", "plan", "an aardvark")
        wait_equal(one, two)
        wait_until(lambda: two.search("aardvark"))
        one.state.delete("memory/facts", "f")
        wait_equal(one, two)
        assert_clean(one, two)


def test_a_deletion_and_its_undoing_cross(tmp_path: Path, url: str) -> None:
    """The other home has the session in its own trash meanwhile."""
    with hosts(tmp_path, create(url), "one", "two") as (one, two):
        one.save(Session.new("s1", "m"))
        one.new_child("s1", "c1")
        wait_until(lambda: two.exists("s1/c1"))
        one.delete("s1")
        wait_until(lambda: not two.exists("s1"))
        wait_equal(one, two)
        assert two.trash.deleted()
        one.trash.undelete(one.trash.deleted()[0].name)
        wait_until(lambda: two.exists("s1/c1"))
        wait_equal(one, two)
        assert_clean(one, two)


def test_mail_is_claimed_once(tmp_path: Path, url: str) -> None:
    """A message that one host has claimed is not drained by the other."""
    with hosts(tmp_path, create(url), "one", "two") as (one, two):
        one.save(Session.new("s1", "m"))
        wait_until(lambda: two.exists("s1"))
        for number in range(3):
            one.mail.at("s1").deliver(InboxMessage.new("boss", "reply", {"number": number}))
        wait_equal(one, two)
        claimed = two.mail.at("s1").drain()
        assert len(claimed) == 3
        assert one.mail.at("s1").drain() == []
        wait_equal(one, two)
        for delivered in claimed:
            assert two.mail.at("s1").ack_delivered(delivered)
        wait_equal(one, two)
        assert_clean(one, two)


def test_a_file_edited_on_disk_reaches_the_other_home(tmp_path: Path, url: str) -> None:
    """The watcher notes it, the follower publishes it; also what was edited while nobody had the home open."""
    with hosts(tmp_path, create(url), "one", "two") as (one, two):
        one.save(Session.new("s1", "m"))
        wait_until(lambda: two.exists("s1"))
        document = one.home / "sessions/s1/session.json"
        edited = document.with_name("edited")  # renamed: an empty document would be reported, if one was found
        edited.write_bytes(document.read_bytes().replace(b'"New Session"', b'"by an editor"'))
        edited.rename(document)
        wait_until(lambda: b'"by an editor"' in (two.home / "sessions/s1/session.json").read_bytes())
        wait_equal(one, two)
        assert_clean(one, two)
    document.write_bytes(document.read_bytes().replace(b'"by an editor"', b'"while closed"'))
    (tmp_path / "two/sessions/s1/runtime.json").unlink()
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        wait_until(lambda: b'"while closed"' in (two.home / "sessions/s1/session.json").read_bytes())
        wait_equal(one, two)
        assert_clean(one, two)
