"""A database that does not answer: reading still works, writing is refused with the truth about the outcome."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from store import Message, Session, Store
from store.commit.write_request import WriteRequest
from store.errors import ReadOnly, Unreachable, Unsure
from store.grove.agreeing import GroveAgreement
from store.grove.private_server import PrivateServer
from store.path_kinds import classify_path
from tests.grove.conftest import new_database
from tests.grove.homes import agreement_of, assert_same_and_clean, pull, texts, unfollowed_hosts

LOST = psycopg.OperationalError("the connection was lost")


def fail_after_sending(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Let the connection be lost after the server has done the statement."""
    real, lost = GroveAgreement._send, [0]

    def send(self: GroveAgreement, *args: Any, **kwargs: Any) -> int | None:
        seq = real(self, *args, **kwargs)
        if lost[0] < times:
            lost[0] += 1
            raise LOST
        return seq

    monkeypatch.setattr(GroveAgreement, "_send", send)
    return lost


def wait_writable(store: Store) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            return agreement_of(store).check()
        except ReadOnly:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_lost_answer_is_found_by_its_token(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement is sent again, and neither a message nor a version exists twice."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        lost = fail_after_sending(monkeypatch, 2)
        a.append("s", [Message.user("once")])
        assert lost == [2]
        a.append("s", [Message.user("then")])
        pull(b, "s")
        assert texts(b, "s") == ["once", "then"]
        assert_same_and_clean(a, b)


def test_without_an_answer_the_outcome_is_unknown(
    tmp_path: Path, own_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says so, and the change appears once the database is back."""
    with unfollowed_hosts(tmp_path, new_database(own_server), "a") as (a,):
        a.save(Session.new("s", "m"))
        real = GroveAgreement._send

        def send(self: GroveAgreement, *args: Any, **kwargs: Any) -> int | None:
            real(self, *args, **kwargs)
            own_server.kill()
            raise LOST

        monkeypatch.setattr(GroveAgreement, "_send", send)
        with pytest.raises(Unsure, match="outcome unknown"):
            a.append("s", [Message.user("perhaps")])
        monkeypatch.undo()
        assert texts(a, "s") == []
        own_server.start()
        wait_writable(a)
        pull(a, "s")
        assert texts(a, "s") == ["perhaps"]
        a.append("s", [Message.user("sure")])
        assert texts(a, "s") == ["perhaps", "sure"]
        assert_same_and_clean(a)


def test_an_unreachable_database_refuses_writes_until_it_is_back(tmp_path: Path, own_server: PrivateServer) -> None:
    """Nothing is changed; the second refusal is immediate; writing works again without opening the home again."""
    with unfollowed_hosts(tmp_path, new_database(own_server), "a") as (a,):
        a.save(Session.new("s", "m"))
        own_server.kill()
        with pytest.raises((Unreachable, Unsure)):
            a.append("s", [Message.user("no")])
        with pytest.raises(Unreachable, match="Nothing was changed"):
            a.append("s", [Message.user("no")])
        assert texts(a, "s") == []
        assert a.check().findings == []
        own_server.start()
        wait_writable(a)
        a.append("s", [Message.user("yes")])
        assert texts(a, "s") == ["yes"]
        assert_same_and_clean(a)


def test_a_home_opens_and_reads_while_the_database_is_away(tmp_path: Path, own_server: PrivateServer) -> None:
    with unfollowed_hosts(tmp_path, new_database(own_server), "a") as (a,):
        a.save(Session.new("s", "m"))
        a.append("s", [Message.user("a walrus")])
    own_server.kill()
    with Store.open(tmp_path / "a", background=False) as store:
        assert texts(store, "s") == ["a walrus"]
        assert store.search("walrus")
        with pytest.raises(Unreachable):
            store.append("s", [Message.user("no")])
        assert store.check().findings == []


def test_a_typed_text_is_kept_while_the_database_is_away(tmp_path: Path, own_server: PrivateServer) -> None:
    """As rejected content is: the text next to the document, and the reason."""
    with unfollowed_hosts(tmp_path, new_database(own_server), "a") as (a,):
        a.save(Session.new("s", "m"))
        before = a.get_document("s", "session.json")
        assert before is not None
        own_server.kill()
        typed = before + b"\n"
        place = classify_path("sessions/s/session.json")
        for _ in range(2):  # the first refusal, and one from the last known state
            with pytest.raises((Unreachable, Unsure)):
                a.names.commit(WriteRequest(place, typed))
            kept = a.names.rejects.path("sessions/s", "session.json.rejected")
            assert kept is not None
            assert (a.home / kept).read_bytes() == typed
        assert a.get_document("s", "session.json") == before
