"""Chains of rows in the log: a new host and a reader of old versions need few of them."""

from __future__ import annotations

import random
from pathlib import Path

import psycopg
import pytest

from store import InboxMessage, Message, Session, Store
from store.grove import chains
from tests.grove.groves import create, join
from tests.grove.homes import agreement_of, assert_same_and_clean, documents, pull, unfollowed_hosts

UNIT = "sessions/s"


def rows_needed(url: str, unit: str = UNIT) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT version - base + 1 FROM grove.units WHERE unit = %s", (unit,)).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def short_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "EVERY", 4)
    monkeypatch.setattr(chains, "MAX_ROWS", 8)


@pytest.mark.usefixtures("short_chains")
def test_a_long_chain_becomes_a_whole_version(tmp_path: Path, url: str) -> None:
    """A host that is behind, and one that has nothing, get the same files; older versions can still be read."""
    create(url)
    join(tmp_path / "a", url)
    join(tmp_path / "b", url)
    with Store.open(tmp_path / "a", background=False) as a, Store.open(tmp_path / "b", background=False) as b:
        session = Session.new("s", "m")
        session.messages.append(Message.user("lorem " * 20_000))  # long, so that bytes do not count
        a.save(session)
        a.attach("s", b"\0" * 3_000_000, "image/png")
        first = a.get_document("s", "session.json")
        pull(b, "s")
        for number in range(20):
            a.append("s", [Message.user(str(number))])
            agreement_of(a).chains.shorten_due()
        assert rows_needed(url) <= 8 + 4
        pull(b, "s")
        join(tmp_path / "c", url)
        assert documents(tmp_path / "c") == documents(a.home)
        past = agreement_of(b).outside.past
        assert first in [text for _, text in past.logged_texts(f"{UNIT}/session.json")]
        b.append("s", [Message.user("goes on")])
        pull(a, "s")
        assert_same_and_clean(a, b)


@pytest.mark.usefixtures("short_chains")
def test_claims_of_mail_stay_in_a_whole_version(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        for number in range(12):
            a.mail.at("s").deliver(InboxMessage.new("boss", "reply", {"n": number}))
            if number == 0:
                assert len(a.mail.at("s").drain()) == 1
            agreement_of(a).chains.shorten_due()
        assert rows_needed(url, f"{UNIT}/mailbox") < 6
        pull(b, "s")
        assert b.mail.at("s").recover() == []
        assert len(b.mail.at("s").drain()) == 11
        pull(a, "s")
        assert_same_and_clean(a, b)


def test_rows_of_many_bytes_become_a_whole_version_early(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "EVERY", 4)
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        noise = random.Random(5)
        for number in range(8):
            a.state.save_markdown("notes", "n", f"{number} {noise.randbytes(3000).hex()}")
            agreement_of(a).chains.shorten_due()
        assert rows_needed(url, "state/notes") == 1
        pull(b, "/state")
        assert_same_and_clean(a, b)


def test_a_new_host_gets_a_long_session_that_was_appended_to(tmp_path: Path, url: str) -> None:
    """The first version is in chunks, and the rows since build on it."""
    create(url)
    join(tmp_path / "a", url)
    noise = random.Random(7)
    with Store.open(tmp_path / "a", background=False) as a:
        session = Session.new("s", "m")
        session.messages += [Message.user(noise.randbytes(10_000).hex()) for _ in range(100)]
        a.save(session)
        a.append("s", [Message.user("then")])
        join(tmp_path / "b", url)
        with Store.open(tmp_path / "b", background=False) as b:
            assert agreement_of(b).replica.behind() == []
            assert_same_and_clean(a, b)
