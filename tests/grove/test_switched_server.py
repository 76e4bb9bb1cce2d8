"""A server that is switched silently: the connections stay, and lead to an older history.

A pool of connections or a virtual address does that after a failover. The loss is noticed by the next thing that a
home does, and nothing is overwritten.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from store import Message, Session, Store
from store.errors import ReadOnly
from store.grove.applying import LostHistory
from store.grove.following import follow
from store.grove.schema import SHARDS
from store.grove.units import shard_of
from tests.grove.homes import agreement_of, pull, texts, unfollowed_hosts

pytestmark = pytest.mark.warns
TABLES = ("grove", "hosts", "shards", "trees", "units", "log", "chunks", "refs")


@contextmanager
def switched_to_the_history_of(url: str) -> Iterator[None]:
    """What is committed inside is lost at the end. No connection breaks."""
    with psycopg.connect(url, autocommit=True) as database:
        for table in TABLES:
            database.execute(f"CREATE TABLE public.old_{table} AS TABLE grove.{table}")  # type: ignore[arg-type, unused-ignore]
        yield
        with database.transaction():
            for table in TABLES:
                database.execute(f"DELETE FROM grove.{table}")  # type: ignore[arg-type, unused-ignore]
                database.execute(f"INSERT INTO grove.{table} TABLE public.old_{table}")  # type: ignore[arg-type, unused-ignore]


def log_of(url: str) -> list[tuple[str, int, str]]:
    with psycopg.connect(url) as database:
        return [*database.execute("SELECT unit, version, token::text FROM grove.log ORDER BY shard, seq")]


def neighbour(name: str) -> str:
    """Another session whose changes are in the same shard."""
    names = (f"t{number}" for number in itertools.count())
    return next(other for other in names if shard_of(other, SHARDS) == shard_of(name, SHARDS))


def require_frozen(url: str, store: Store, before: list[tuple[str, int, str]]) -> None:
    """Nothing was added to the older history, this home keeps what it has, and nobody writes any more."""
    assert log_of(url) == before
    assert texts(store, "s") == ["kept", "lost"]
    with psycopg.connect(url) as database:
        row = database.execute("SELECT frozen FROM grove.grove").fetchone()
    assert row is not None
    assert "lost" in row[0]
    with pytest.raises(ReadOnly):
        store.state.save_json("facts", "f", {})


@pytest.mark.parametrize("target", ["the session that has lost a version", "another one of its shard", "a new one"])
def test_the_next_write_notices_it(tmp_path: Path, url: str, target: str) -> None:
    """Also a write to a session of which nothing is lost: the older history gets no row of this home."""
    other = neighbour("s")
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        a.append("s", [Message.user("kept")])
        if target != "a new one":
            a.save(Session.new(other, "m"))
        pull(b, "s")
        with switched_to_the_history_of(url):
            a.append("s", [Message.user("lost")])
        before = log_of(url)
        writes: dict[str, Callable[[], object]] = {
            "the session that has lost a version": lambda: a.append("s", [Message.user("new")]),
            "another one of its shard": lambda: a.append(other, [Message.user("new")]),
            "a new one": lambda: a.save(Session.new(other, "m")),
        }
        with pytest.raises(ReadOnly, match="lost commits that host a has"):
            writes[target]()
        require_frozen(url, a, before)
        with pytest.raises(ReadOnly, match="frozen"):  # the host that has lost nothing
            b.append("s", [Message.user("not stored")])


def test_the_next_query_of_the_follower_notices_it(tmp_path: Path, url: str) -> None:
    """Although its connection stays open. It may have written nothing itself."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        a.append("s", [Message.user("kept")])
        follower = follow(b._core, background=False)
        with switched_to_the_history_of(url):
            a.append("s", [Message.user("lost")])
            while follower.step():
                pass
        before = log_of(url)
        with pytest.raises(LostHistory, match="lost 1 commits that this home has"):
            follower.step()
        require_frozen(url, b, before)


def test_a_write_elsewhere_is_not_refused_for_a_history_that_is_whole(tmp_path: Path, url: str) -> None:
    """What this home knows of a shard grows with its own commits and with those that it follows."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        shard = shard_of("s", SHARDS)
        known = agreement_of(a).replica.newest_known(shard)
        assert known is not None
        assert agreement_of(b).replica.newest_known(shard) is None
        pull(b, "s")
        b.append("s", [Message.user("by b")])
        newer = agreement_of(b).replica.newest_known(shard)
        assert newer is not None
        assert newer.seq == known.seq + 1
        a.append("s", [Message.user("by a")])
        assert texts(a, "s") == ["by b", "by a"]
