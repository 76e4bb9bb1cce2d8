"""A database that does not answer: reading still works, writing is refused with the truth about the outcome."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
from store.transfer import import_follow
from store.transfer.import_follow import ImportFollower
from tests.grove.conftest import new_database
from tests.grove.groves import create, hosts, wait_until
from tests.grove.homes import agreement_of, assert_same_and_clean, be_unsure, pull, texts, unfollowed_hosts
from tests.mount.conftest import CODE
from tests.store.transfer.foreign import CLAUDE_ID, claude_line, make_claude

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


@contextmanager
def following(store: Store, source: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Follow a source in a thread; yields whether each of its imports succeeded."""
    outcomes: list[bool] = []
    real = ImportFollower._import

    def note(self: ImportFollower, *args: Any) -> bool:
        outcomes.append(real(self, *args))
        return outcomes[-1]

    monkeypatch.setattr(import_follow, "RETRY_S", 0.1)
    monkeypatch.setattr(ImportFollower, "_import", note)
    ready = threading.Event()
    found = store.imports.find(str(source)).found
    follower = ImportFollower(store.imports, found, lambda item: None, on_ready=ready.set)
    thread = threading.Thread(target=follower.run)
    thread.start()
    try:
        assert ready.wait(60)
        yield outcomes
    finally:
        follower.stop.set()
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.warns  # the follower logs that it tries again
def test_a_followed_import_goes_on_when_the_database_is_back(
    tmp_path: Path, own_server: PrivateServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cursor stays where it was, so that nothing is missing or twice."""
    make_claude(tmp_path / "user/.claude")
    log = tmp_path / f"user/.claude/projects/-home-me-shop/{CLAUDE_ID}.jsonl"
    with (
        unfollowed_hosts(tmp_path, new_database(own_server), "a", "b") as (a, b),
        following(a, tmp_path / "user", monkeypatch) as outcomes,
    ):
        assert outcomes == [True]
        imported = texts(a, CLAUDE_ID)
        own_server.kill()
        with log.open("a") as file:
            file.write(claude_text("n1", "written while the database is away"))
        wait_until(lambda: False in outcomes)
        with log.open("a") as file:
            file.write(claude_text("n2", "and this"))
        assert texts(a, CLAUDE_ID) == imported
        own_server.start()
        wait_until(lambda: len(texts(a, CLAUDE_ID)) == len(imported) + 2)
        assert texts(a, CLAUDE_ID) == [*imported, "written while the database is away", "and this"]
        pull(b, CLAUDE_ID)
        assert texts(b, CLAUDE_ID) == texts(a, CLAUDE_ID)


@pytest.mark.warns  # the follower logs that it tries again
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_followed_import_of_unknown_outcome_is_made_once(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, is_stored: bool
) -> None:
    """If it was stored after all, the log of the grove brings it, and the next attempt finds it."""
    make_claude(tmp_path / "user/.claude")
    log = tmp_path / f"user/.claude/projects/-home-me-shop/{CLAUDE_ID}.jsonl"
    with (
        hosts(tmp_path, create(url), "a", "b") as (a, b),
        following(a, tmp_path / "user", monkeypatch) as outcomes,
    ):
        imported = texts(a, CLAUDE_ID)
        be_unsure(monkeypatch, is_stored=is_stored)
        with log.open("a") as file:
            file.write(claude_text("n1", "perhaps"))
        wait_until(lambda: outcomes[-1] and False in outcomes)
        assert texts(a, CLAUDE_ID) == [*imported, "perhaps"]
        wait_until(lambda: texts(b, CLAUDE_ID) == texts(a, CLAUDE_ID))


def claude_text(uuid: str, text: str) -> str:
    line = claude_line("user", uuid, {"role": "user", "content": text}, "40:00", parentUuid="u5")
    return json.dumps(line) + "\n"


def test_follow_says_when_the_database_goes_away_and_comes_back(tmp_path: Path, own_server: PrivateServer) -> None:
    """Two hosts: one prints for people, one for programs."""
    with unfollowed_hosts(tmp_path, new_database(own_server), "a", "b"):
        pass
    command = [sys.executable, "-c", CODE, "grove", "follow", "--home"]
    people = subprocess.Popen(
        [*command, tmp_path / "a"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )
    program = subprocess.Popen([*command, tmp_path / "b", "--json"], stdout=subprocess.PIPE, text=True, bufsize=1)
    try:
        assert people.stdout is not None
        assert program.stdout is not None
        assert people.stdout.readline() == f"following the grove in {tmp_path / 'a'}; press Ctrl-C to stop\n"
        assert json.loads(program.stdout.readline())["event"] == "following"
        own_server.kill()
        assert "changes of other hosts do not arrive: the database of the grove" in people.stdout.readline()
        interrupted = json.loads(program.stdout.readline())
        assert interrupted["event"] == "interrupted"
        assert "the database of the grove" in interrupted["problem"]
        own_server.start()
        while "following again" not in (line := people.stdout.readline()):  # a server that starts has other reasons
            assert "do not arrive" in line
        while (event := json.loads(program.stdout.readline()))["event"] != "following":
            assert event["problem"]
        assert event["problem"] == ""
        people.send_signal(signal.SIGTERM)
        program.send_signal(signal.SIGINT)
        assert (people.wait(60), program.wait(60)) == (130, 130)
    finally:
        for process in (people, program):
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
