"""Sequences that would lose, resurrect or diverge data, each as one test. More of them are in the other files."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest

from store import AutoPrune, Keep, Message, Session
from store.commit.write_request import WriteRequest
from store.errors import LocalOnly, ReadOnly, StoreError, Unsure
from store.grove import agreeing, connection
from store.grove.agreeing import GroveAgreement
from store.path_kinds import classify_path
from tests.grove.homes import agreement_of, assert_same_and_clean, documents, pull, texts, unfollowed_hosts


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as database:
        for statement in statements:
            database.execute(statement)  # type: ignore[arg-type, unused-ignore]


def count_rows(url: str) -> int:
    with psycopg.connect(url) as database:
        row = database.execute("SELECT count(*) FROM grove.log").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.warns
def test_the_same_version_with_another_token_is_lost_history(tmp_path: Path, url: str) -> None:
    """A failover lost version 2, and another host has made another version 2: nobody overwrites anything."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        a.append("s", [Message.user("here")])
        other = uuid.uuid4()
        execute(
            url,
            f"UPDATE grove.units SET token = '{other}'",
            f"UPDATE grove.log SET token = '{other}' WHERE version = 2",
        )
        rows = count_rows(url)
        with pytest.raises(ReadOnly, match=r"frozen|history"):
            a.append("s", [Message.user("not stored")])
        with pytest.raises(StoreError):
            b.save(Session.new("t", "m"))
        assert count_rows(url) == rows
        assert texts(a, "s") == ["here"]


@pytest.mark.warns  # psycopg logs that the server has ended the connection
def test_a_slow_change_gives_up_the_row_and_goes_on(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ends a transaction that does nothing; the commit is then decided by comparison."""
    monkeypatch.setattr(connection, "_SETTINGS", connection._SETTINGS.replace("'5s'", "'200ms'"))
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        a.append("s", [Message.user("from a")])
        calls = 0

        def change(session: Session) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:  # the row is held now
                time.sleep(1)
            session.title = f"call {calls}"

        b.update("s", change)
        pull(a, "s")
        loaded = a.load("s")
        assert loaded is not None
        assert (loaded.title, texts(a, "s")) == ("call 2", ["from a"])
        assert_same_and_clean(a, b)


def test_another_unit_is_agreed_to_while_a_row_is_held(tmp_path: Path, url: str) -> None:
    """The callback of an update may write to another session."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        for name in ("s", "t"):
            a.save(Session.new(name, "m"))
        pull(b, "s", "t")
        a.append("s", [Message.user("from a")])

        def change(session: Session) -> None:
            b.append("t", [Message.user("inside")])
            session.title = "changed"

        b.update("s", change)
        pull(a, "s", "t")
        assert texts(a, "t") == ["inside", "inside"]  # the callback ran twice
        assert_same_and_clean(a, b)


def test_deadlocks_of_the_server_are_repeated(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """40P01 and 40001 mean that nothing was changed."""
    real = GroveAgreement._send
    errors = [psycopg.errors.DeadlockDetected("deadlock"), psycopg.errors.SerializationFailure("again")]

    def send(self: GroveAgreement, *args: Any, **kwargs: Any) -> int | None:
        if errors:
            raise errors.pop()
        return real(self, *args, **kwargs)

    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        monkeypatch.setattr(GroveAgreement, "_send", send)
        a.append("s", [Message.user("stored")])
        assert texts(a, "s") == ["stored"]
        assert_same_and_clean(a)


def test_a_temporary_file_survives_a_repetition(tmp_path: Path, url: str) -> None:
    """What the mount typed is written once, and renamed into place after another host's version was pulled."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.state.save_markdown("notes", "n", "one")
        pull(b, "/state")
        a.state.save_markdown("notes", "other", "x")
        buffer = b.names.new_write_buffer()
        content = b"\0binary " * 300_000
        os.write(buffer.fd, content)
        a.save(Session.new("s", "m"))
        pull(b, "s")
        a.append("s", [Message.user("makes b stale")])
        b.names.commit(WriteRequest(classify_path("sessions/s/attachments/a.bin"), buffer))
        os.close(buffer.fd)
        pull(a, "s", "/state")
        pull(b, "/state")
        assert documents(a.home)["sessions/s/attachments/a.bin"] == content
        assert_same_and_clean(a, b)


@pytest.mark.warns
def test_a_commit_that_may_not_be_replicated_is_unsure(tmp_path: Path, url: str) -> None:
    """The server warns that it stopped waiting for its standby: the change may still be lost."""
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        execute(
            url,
            "CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'canceling wait for "
            "synchronous replication due to user request'; RETURN NEW; END $$",
            "CREATE TRIGGER warn BEFORE INSERT ON grove.log FOR EACH ROW EXECUTE FUNCTION warn()",
        )
        with pytest.raises(Unsure):
            a.append("s", [Message.user("perhaps")])
        execute(url, "DROP TRIGGER warn ON grove.log")
        pull(a, "s")
        assert texts(a, "s") == ["perhaps"]
        assert_same_and_clean(a)


def test_a_chunk_that_vanishes_before_the_agreement_is_sent_again(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement counts its chunks: a version never refers to one that is not there."""
    real, deleted = GroveAgreement._send_chunks, 0

    def send_chunks(self: GroveAgreement, proposals: Any) -> None:
        nonlocal deleted
        real(self, proposals)
        if deleted == 0 and any(proposal.chunks for proposal in proposals):
            deleted = 1
            execute(url, "DELETE FROM grove.chunks")

    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        monkeypatch.setattr(GroveAgreement, "_send_chunks", send_chunks)
        a.attach("s", random.Random(1).randbytes(2_500_000), "image/png")
        assert deleted == 1
        pull(b, "s")
        assert_same_and_clean(a, b)


def test_a_nearly_full_disk_is_refused_before_the_agreement(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unfollowed_hosts(tmp_path, url, "a") as (a,):
        a.save(Session.new("s", "m"))
        rows = count_rows(url)
        monkeypatch.setattr(agreeing, "MIN_FREE_BYTES", 1 << 62)
        with pytest.raises(OSError, match="must fit") as caught:
            a.append("s", [Message.user("no")])
        assert caught.value.errno == errno.ENOSPC
        assert count_rows(url) == rows
        monkeypatch.undo()
        a.append("s", [Message.user("yes")])
        assert_same_and_clean(a)


def test_two_hosts_that_hold_two_units_do_not_deadlock(tmp_path: Path, url: str) -> None:
    """Each updates one session and writes the other one from its callback, again and again."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        for name in ("s", "t"):
            a.save(Session.new(name, "m"))
        pull(b, "s", "t")
        failed: list[StoreError] = []

        def cross(store: Any, mine: str, other: str) -> None:
            for number in range(5):
                try:
                    store.append(mine, [Message.user(f"{mine} {number}")])
                    store.append(other, [Message.user(f"{mine} {number}")])
                except StoreError as error:
                    failed.append(error)

        threads = [threading.Thread(target=cross, args=pair) for pair in ((a, "s", "t"), (b, "t", "s"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        pull(a, "s", "t")
        pull(b, "s", "t")
        assert len(texts(a, "s")) == len(texts(a, "t")) == 10
        assert_same_and_clean(a, b)
        assert agreement_of(a).replica.behind() == []


def test_pruning_and_purging_are_not_done_by_one_host_alone(tmp_path: Path, url: str) -> None:
    """Pruning deletes on every host and must be asked for; purging would leave the texts in the log."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        for name in ("old", "new"):
            a.save(Session.new(name, "m"))
        assert a.prune.run_if_due(AutoPrune(Keep(newest=1), 0)) is None
        assert a.exists("old")
        command = [sys.executable, "-m", "fusefs.cli", "prune", "--keep", "1", "--yes", "--home", str(a.home)]
        refused = subprocess.run(command, capture_output=True, text=True)
        assert (refused.returncode, "--all-hosts" in refused.stderr) == (2, True)
        assert subprocess.run([*command, "--all-hosts"], capture_output=True).returncode == 0
        pull(b, "old", "new")
        assert (b.exists("old"), b.exists("new")) == (False, True)
        with pytest.raises(LocalOnly):
            a.history.purge("new")
