"""Agreeing: two homes write one grove, with no follower; each pulls what it needs."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from store import InboxMessage, Message, Session, Store
from store.documents.merge import MergeConflict
from store.errors import Conflict, LocalOnly, NotFound, ReadOnly, StoreError
from store.grove import agreeing
from store.grove.agreeing import GroveAgreement
from store.grove.connection import DeadlineConnection
from store.workspace.project_records import ProjectSession
from tests.grove.homes import agreement_of, assert_same_and_clean, pull, texts, unfollowed_hosts
from tests.records import make_artifact

SIZE = 2_500_000  # three chunks


def log_of(url: str) -> list[tuple[str, int, str]]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT unit, version, what FROM grove.log ORDER BY at, shard, seq")
        return [tuple(row) for row in rows]


def test_versions_are_agreed_to_without_gaps(tmp_path: Path, url: str) -> None:
    """Each commit is one row of the log; the home records the version and the digests of its files."""
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        a.append("s", [Message.user("one")])
        a.append("s", [Message.user("two")])
        assert [(unit, version) for unit, version, _ in log_of(url)] == [("sessions/s", n) for n in (1, 2, 3)]
        replica = agreement_of(a).replica
        known = replica.find_unit("sessions/s")
        assert known is not None
        assert known.version == 3
        for name, file in replica.files("sessions/s").items():
            assert file.stamp == a._core.disk.stamp(f"sessions/s/{name}")
        assert_same_and_clean(a)


def test_an_append_sends_few_bytes(tmp_path: Path, url: str) -> None:
    """The row of an append to a long session has the new message, not the session."""
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        session = Session.new("s", "m")
        session.messages += [Message.user(f"{number} " + "lorem ipsum " * 50) for number in range(500)]
        a.save(session)
        a.append("s", [Message.user("short")])
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT length(ops) FROM grove.log WHERE version = 2").fetchone()
        assert row is not None
        assert row[0] < 1024


def test_appends_of_two_homes_are_all_kept_in_one_order(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        for number in range(5):
            a.append("s", [Message.user(f"a{number}")])
            b.append("s", [Message.user(f"b{number}")])
        pull(a, "s")
        assert texts(a, "s") == [f"{name}{number}" for number in range(5) for name in "ab"]
        assert_same_and_clean(a, b)


def test_a_counter_loses_no_increment(tmp_path: Path, url: str) -> None:
    """Rule 8 across hosts: three threads on two homes count with update()."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")

        def count(store: Store) -> None:
            def increment(session: Session) -> None:
                session.metadata["n"] = str(int(session.metadata.get("n", "0")) + 1)

            for _ in range(15):
                store.update("s", increment)

        threads = [threading.Thread(target=count, args=(store,)) for store in (a, b, b)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pull(a, "s")
        pull(b, "s")
        loaded = a.load("s")
        assert loaded is not None
        assert loaded.metadata["n"] == "45"
        assert_same_and_clean(a, b)


def test_a_stale_save_is_refused_or_merged_as_on_one_host(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        stale, other = b.load("s"), b.load("s")
        assert stale is not None
        assert other is not None
        a.append("s", [Message.user("from a")])
        stale.title = "by b"
        with pytest.raises(Conflict):
            b.save(stale)
        assert texts(b, "s") == ["from a"]  # the refusal has pulled
        other.title = "by b"
        b.save(other, on_conflict="merge")
        pull(a, "s")
        loaded = a.load("s")
        assert loaded is not None
        assert (loaded.title, texts(a, "s")) == ("by b", ["from a"])
        assert_same_and_clean(a, b)


def test_a_clash_of_two_hosts_is_refused(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        mine, theirs = b.load("s"), a.load("s")
        assert mine is not None
        assert theirs is not None
        theirs.title = "theirs"
        a.save(theirs)
        mine.title = "mine"
        with pytest.raises(MergeConflict, match="title: changed by both sides"):
            b.save(mine, on_conflict="merge")
        loaded = b.load("s")
        assert loaded is not None
        assert loaded.title == "theirs"


def test_a_stale_document_is_merged(tmp_path: Path, url: str) -> None:
    """As the mount and `grovefs edit` put it, with the text that was edited."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        base = b.get_document("s", "session.json")
        assert base is not None
        a.append("s", [Message.user("from a")])
        edited = base.replace(b'"title": "', b'"title": "edited ') if b'"title": "' in base else base
        edited = edited.replace(b'"title":"', b'"title":"edited ')
        assert edited != base
        assert b.put_document("s", "session.json", edited, base=base, on_conflict="merge")
        pull(a, "s")
        loaded = a.load("s")
        assert loaded is not None
        assert loaded.title.startswith("edited")
        assert texts(a, "s") == ["from a"]
        assert_same_and_clean(a, b)


def test_attachments_are_sent_in_chunks_once(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        data = os.urandom(SIZE)
        a.attach("s", data, "application/octet-stream")
        pull(b, "s")
        b.attach("s", data, "application/octet-stream")
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT count(*) FROM grove.chunks").fetchone()
        assert row == (3,)
        pull(a, "s")
        assert_same_and_clean(a, b)


def test_state_documents_of_two_homes(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        for number in range(3):
            for store, name in ((a, "a"), (b, "b")):

                def add(value: object, entry: str = f"{name}{number}") -> list[object]:
                    return [*(value or []), entry]  # type: ignore[misc]

                store.state.update_json("memory", "list", add)
        pull(a, "/state")
        assert a.state.load_json("memory", "list") == ["a0", "b0", "a1", "b1", "a2", "b2"]
        assert_same_and_clean(a, b)


def test_a_message_has_one_claimant(tmp_path: Path, url: str) -> None:
    """Both homes see the same messages in new/; drains get each once, and recover returns only one's own."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        for number in range(4):
            a.mail.at("s").deliver(InboxMessage.new("boss", "reply", {"number": number}))
        pull(b, "s")
        first, second = a.mail.at("s").drain(limit=2), b.mail.at("s").drain()
        ids = [found.message.id for found in (*first, *second)]
        assert len(ids) == len(set(ids)) == 4
        assert len(second) == 2
        pull(a, "s")
        assert {found.message.id for found in a.mail.at("s").recover()} == {found.message.id for found in first}
        assert {found.message.id for found in b.mail.at("s").recover()} == {found.message.id for found in second}
        for found in second:
            assert b.mail.at("s").ack_delivered(found)
        pull(a, "s")
        assert_same_and_clean(a, b)


def test_delete_and_undelete_cross(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        a.new_child("s", "c")
        pull(b, "s")
        assert b.delete("s")
        with pytest.raises(NotFound):
            a.append("s", [Message.user("too late")])
        assert not a.exists("s")
        slot = b.trash.deleted()[0].name
        b.trash.undelete(slot)
        pull(a, "s")
        assert a.ids() == ["s", "s/c"]
        assert_same_and_clean(a, b)


def test_a_child_created_elsewhere_is_deleted_with_its_root(tmp_path: Path, url: str) -> None:
    """Deleting a tree deletes what others added to it since, which this home has not seen."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        b.new_child("s", "c")
        assert a.delete("s")
        pull(b, "s")
        assert b.ids() == []
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM grove.units WHERE NOT gone").fetchone() == (0,)
        assert_same_and_clean(a, b)


def test_a_child_cannot_be_created_in_a_deleted_tree(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        assert a.delete("s")
        with pytest.raises((NotFound, Conflict)):
            b.new_child("s", "c")
        pull(b, "s")
        assert_same_and_clean(a, b)


def test_two_homes_create_one_session(tmp_path: Path, url: str) -> None:
    """The second learns that it exists, and has pulled it."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        with pytest.raises(Conflict):
            b.save(Session.new("s", "other"))
        loaded = b.load("s")
        assert loaded is not None
        assert loaded.model == "m"
        assert_same_and_clean(a, b)


def test_what_does_not_cross_is_refused(tmp_path: Path, url: str) -> None:
    """Nothing is changed, here or there."""
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        rows = log_of(url)
        with pytest.raises(LocalOnly, match="yet; nothing was changed"):
            a.rename("s", "t")
        with pytest.raises(LocalOnly, match="forked"):
            a.fork("s", "t")
        with pytest.raises(LocalOnly):
            a.projects.save(ProjectSession("k", "p"), {"x": 1})
        assert a.ids() == ["s"]
        assert log_of(url) == rows
        assert_same_and_clean(a)


def test_a_frozen_grove_refuses_writes_and_can_be_read(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE grove.grove SET frozen = 'test'")
        with pytest.raises(ReadOnly, match="frozen: test"):
            a.append("s", [Message.user("x")])
        assert "frozen: test" in a.maintenance.status()["grove_refuses_writes"]
        assert texts(a, "s") == []
        assert_same_and_clean(a)


def test_lost_history_freezes_the_grove(tmp_path: Path, url: str) -> None:
    """A database that was set back is noticed by the token of the newest row this home was acknowledged."""
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        a.append("s", [Message.user("lost there")])
        with psycopg.connect(url) as connection:
            connection.execute("DELETE FROM grove.log WHERE version = 2")
        agreement_of(a).server.close()
        agreement_of(a).server._closed.clear()
        with pytest.raises(ReadOnly, match="lost commits"):
            a.append("s", [Message.user("x")])
        assert texts(a, "s") == ["lost there"]
        with psycopg.connect(url) as connection:
            row = connection.execute("SELECT frozen FROM grove.grove").fetchone()
        assert row is not None
        assert "lost commits" in row[0]


def test_messages_from_an_iterator_survive_a_repetition(tmp_path: Path, url: str) -> None:
    """The operation runs twice, the iterator can be read once."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        a.append("s", [Message.user("first")])
        assert len(b.append("s", iter([Message.user("second")]))) == 1
        b.records.add_artifacts("s", iter([make_artifact("x")]))
        a.records.add_artifacts("s", iter([make_artifact("y")]))
        found = a.records.load_artifacts("s")
        assert found is not None
        assert len(found.artifacts) == 2
        assert texts(b, "s") == ["first", "second"]
        pull(b, "s")
        assert_same_and_clean(a, b)


def test_a_session_that_another_host_writes_all_the_time_can_be_deleted(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first refusal the rows of the tree are held, so that the other host waits."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        real = GroveAgreement._generation
        threads: list[threading.Thread] = []
        refused: list[StoreError] = []

        def append() -> None:
            try:
                b.append("s", [Message.user("again")])
            except StoreError as error:
                refused.append(error)

        def generation(self: GroveAgreement, root: str, gone: Sequence[str]) -> int | None:
            found = real(self, root, gone)
            threads.append(threading.Thread(target=append))
            threads[-1].start()
            threads[-1].join(0.5)  # it ends, unless it has to wait
            return found

        monkeypatch.setattr(GroveAgreement, "_generation", generation)
        monkeypatch.setattr(agreeing, "REPEAT_S", 3.0)
        assert a.delete("s")
        for thread in threads:
            thread.join()
        assert [type(error) for error in refused] == [NotFound]
        pull(b, "s")
        assert not b.exists("s")
        assert_same_and_clean(a, b)


def test_a_commit_takes_one_round_trip(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append, a save, a state document and a message each ask the database once."""
    asked: list[str] = []
    real = DeadlineConnection.wait

    def wait(self: DeadlineConnection, *args: Any, **kwargs: Any) -> Any:
        if threading.current_thread() is threading.main_thread():  # hints have a thread of their own
            asked.append(self.info.dbname)
        return real(self, *args, **kwargs)

    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        a.state.save_json("facts", "f", 1)
        a.mail.at("s").deliver(InboxMessage.new("boss", "reply", 1))
        session = a.load("s")
        assert session is not None
        session.title = "new"
        monkeypatch.setattr(DeadlineConnection, "wait", wait)
        for change in (
            lambda: a.save(session),
            lambda: a.append("s", [Message.user("x")]),
            lambda: a.state.save_json("facts", "f", 2),
            lambda: a.mail.at("s").deliver(InboxMessage.new("boss", "reply", 2)),
        ):
            asked.clear()
            change()
            assert len(asked) == 1
        assert_same_and_clean(a)


def test_the_server_plans_the_agreement_once(tmp_path: Path, url: str) -> None:
    """Planning the statement takes as long as running it."""
    plans = (
        "SELECT sum(generic_plans), sum(custom_plans) FROM pg_prepared_statements WHERE statement LIKE '%grove.log%'"
    )
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        for number in range(20):
            a.append("s", [Message.user(str(number))])
        [connection] = agreement_of(a).server._idle
        generic, custom = connection.execute(plans).fetchone()
        assert (generic > 10, custom) == (True, 0)
