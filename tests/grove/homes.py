"""Homes that have joined a grove without any follower: only what an operation pulls itself is here."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from store import Store
from store.errors import Unsure
from store.grove import schema
from store.grove.agreeing import GroveAgreement
from store.grove.follower import LogFollower
from store.grove.log_query import read_page
from store.grove.replica import Membership, Replica, machine_id, private_inode
from store.grove.wire import LogRow


def new_grove(url: str) -> str:
    """Create the tables; returns the epoch."""
    epoch = str(uuid.uuid4())
    with psycopg.connect(url) as connection:
        schema.create_tables(connection, epoch)
    return epoch


def join_empty(home: Path, url: str, epoch: str) -> None:
    """Let a new, empty home join."""
    Store.open(home, background=False).close()
    host = str(uuid.uuid4())
    member = Membership(host, home.name, url, epoch, schema.SHARDS, machine_id(), private_inode(home), time.time_ns())
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO grove.hosts (host, name, machine, home_inode, format, cursor) VALUES (%s, %s, %s, %s, %s, %s)",
            (host, home.name, member.machine, member.home_inode, schema.FORMAT, [0] * schema.SHARDS),
        )
    Replica.create(home, member).close()


@contextmanager
def unfollowed_hosts(directory: Path, url: str, *names: str) -> Iterator[list[Store]]:
    """Open homes of a new grove."""
    epoch = new_grove(url)
    stores: list[Store] = []
    try:
        for name in names:
            join_empty(directory / name, url, epoch)
            stores.append(Store.open(directory / name, background=False, author=name))
        yield stores
    finally:
        for store in stores:
            store.close()


def agreement_of(store: Store) -> GroveAgreement:
    found = store._core.agreement
    assert isinstance(found, GroveAgreement)
    return found


def pull(store: Store, *roots: str) -> None:
    """Bring trees to their newest versions, as a follower would."""
    for root in roots:
        with store._core.locked_tree(root):
            agreement_of(store).pull_tree(root)
        agreement_of(store).merge_set_aside()


def follower_of(store: Store) -> LogFollower:
    grove = agreement_of(store)
    return LogFollower(grove.core, grove.replica, grove.server, grove.outside, grove.deletions, grove.chains)


def rows_to_apply(store: Store) -> list[LogRow]:
    """The rows of the log that a follower of this home has not read."""
    grove = agreement_of(store)
    cursors, shards = grove.replica.cursors(), grove.replica.membership.shards
    return grove.server.run(lambda connection: read_page(connection, cursors, shards)).rows


def be_unsure(monkeypatch: pytest.MonkeyPatch, *, is_stored: bool) -> None:
    """Let the next agreement end without an answer, after the database has stored it or not."""
    real = GroveAgreement._decide

    def decide(self: GroveAgreement, values: dict[str, Any]) -> int:
        monkeypatch.setattr(GroveAgreement, "_decide", real)
        if is_stored:
            real(self, values)
        raise Unsure("outcome unknown")

    monkeypatch.setattr(GroveAgreement, "_decide", decide)


def texts(store: Store, session_id: str) -> list[str]:
    loaded = store.load(session_id)
    assert loaded is not None
    return [str(message.content) for message in loaded.messages]


def documents(home: Path) -> dict[str, bytes]:
    """The shared files of a home."""
    found = [path for top in ("sessions", "state") for path in (home / top).rglob("*") if path.is_file()]
    return {str(path.relative_to(home)): path.read_bytes() for path in found}


def assert_same_and_clean(*stores: Store) -> None:
    for store in stores:
        assert documents(store.home) == documents(stores[0].home)
        findings = store.check().findings
        assert findings == [], findings
