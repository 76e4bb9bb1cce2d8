"""Faults: the database is killed and comes back, and two mounts see each other's changes."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest

from store import Message, Session, Store
from store.errors import StoreError
from store.grove.private_server import PrivateServer
from tests.grove.conftest import new_database
from tests.grove.groves import assert_clean, create, hosts, join, wait_equal, wait_until


@pytest.mark.warns  # the store logs that the database is gone
def test_nothing_acknowledged_is_lost_when_the_database_is_killed(tmp_path: Path, own_server: PrivateServer) -> None:
    """Writers fail or wait; reading still works; everything recovers by itself when the database is back."""
    url = create(new_database(own_server))
    with hosts(tmp_path, url, "one", "two") as (one, two):
        one.save(Session.new("s1", "m"))
        wait_until(lambda: two.exists("s1"))
        stored: list[str] = []
        refused: list[str] = []
        end = threading.Event()

        def write(store: Store, name: str) -> None:
            number = 0
            while not end.is_set():
                number += 1
                try:
                    store.append("s1", [Message.user(f"{name}-{number}")])
                    stored.append(f"{name}-{number}")
                except StoreError:
                    refused.append(f"{name}-{number}")
                    end.wait(0.05)

        writers = [threading.Thread(target=write, args=pair) for pair in ((one, "one"), (two, "two"))]
        for writer in writers:
            writer.start()
        wait_until(lambda: len(stored) > 5)
        own_server.kill()
        wait_until(lambda: refused)
        assert one.load("s1") is not None
        own_server.start()
        count = len(stored)
        wait_until(lambda: len(stored) > count + 5)
        end.set()
        for writer in writers:
            writer.join()
        wait_equal(one, two)
        loaded = two.load("s1")
        assert loaded is not None
        texts = [str(message.content) for message in loaded.messages]
        assert len(texts) == len(set(texts))
        assert set(stored) <= set(texts)
        assert_clean(one, two)


def test_a_home_opens_and_reads_without_its_database(tmp_path: Path, own_server: PrivateServer) -> None:
    """Writing fails with the reason."""
    url = create(new_database(own_server))
    join(tmp_path / "one", url)
    with Store.open(tmp_path / "one", background=False) as one:
        one.save(Session.new("s1", "m"))
    own_server.kill()
    with Store.open(tmp_path / "one", background=False) as one:
        assert one.exists("s1")
        with pytest.raises(StoreError, match="does not answer"):
            one.append("s1", [Message.user("x")])
    own_server.start()
    with Store.open(tmp_path / "one", background=False) as one:
        one.append("s1", [Message.user("x")])
        assert_clean(one)


@pytest.mark.warns  # the store logs that the connection was lost
def test_a_follower_goes_on_after_its_connections_break(tmp_path: Path, url: str) -> None:
    """Also the connection on which it waits for hints, which no other one notices."""
    create(url)
    with hosts(tmp_path, url, "one", "two") as (one, two):
        for number in range(3):
            with psycopg.connect(url) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            wait_until(lambda number=number: _is_saved(one, f"s{number}"))  # type: ignore[misc]
            wait_until(lambda number=number: two.exists(f"s{number}"))  # type: ignore[misc]


def _is_saved(store: Store, name: str) -> bool:
    try:
        store.save(Session.new(name, "m"))
    except StoreError:
        return store.exists(name)
    return True
