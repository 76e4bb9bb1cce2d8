"""Rows of different sessions are applied in one shared commit, and each of them as if it were alone."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from store import Message, Session, Store
from store.commit.journal import AgreedCommit, Journal
from store.grove import follower
from store.grove.together import MAX_ROWS, waves
from store.grove.wire import DELETED, LogRow
from store.layout import Location
from tests.grove.homes import (
    agreement_of,
    assert_same_and_clean,
    follower_of,
    pull,
    texts,
    unfollowed_hosts,
)
from tests.grove.test_killed_host import MAX_STEPS, Change, run_and_kill

NAMES = ("s1", "s2", "s3", "s4")


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The sessions of each shared commit that was made."""
    made: list[list[str]] = []
    real = Journal.run_together

    def run_together(self: Journal, group: list[AgreedCommit]) -> None:
        made.append([each.commit.location.root for each in group])
        real(self, group)

    monkeypatch.setattr(Journal, "run_together", run_together)
    return made


@pytest.fixture
def pair(tmp_path: Path, url: str) -> Iterator[tuple[Store, Store]]:
    """Two hosts that have the same sessions; the second has no thread that follows."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        for name in NAMES:
            a.save(Session.new(name, "m"))
        follower_of(b).step()
        yield a, b


def append_to_all(store: Store, text: str) -> None:
    for name in NAMES:
        store.append(name, [Message.user(text)])


def authors(store: Store, name: str) -> list[tuple[int | None, str]]:
    """The agreed number and the author of every version, the oldest first."""
    found = store._core.history.log(f"sessions/{name}", limit=1_000)
    return [(version.agreed, version.author.program) for version in reversed(found)]


def test_rows_of_different_sessions_share_a_commit(pair: tuple[Store, Store], groups: list[list[str]]) -> None:
    """Index, search and history have each of them."""
    a, b = pair
    append_to_all(a, "pomegranate")
    follower_of(b).step()
    assert groups == [[*NAMES]]
    assert [texts(b, name) for name in NAMES] == [["pomegranate"]] * 4
    assert {hit.path for hit in b.search("pomegranate")} == {f"sessions/{name}" for name in NAMES}
    assert [authors(b, name) for name in NAMES] == [[(1, "a@a"), (2, "a@a")]] * 4
    assert_same_and_clean(a, b)


def test_rows_of_one_session_keep_their_order(pair: tuple[Store, Store], groups: list[list[str]]) -> None:
    """The second rows of all sessions share the second commit, and every version is in the history."""
    a, b = pair
    append_to_all(a, "one")
    append_to_all(a, "two")
    a.append("s3", [Message.user("three")])
    follower_of(b).step()
    assert groups == [[*NAMES], [*NAMES]]
    assert texts(b, "s3") == ["one", "two", "three"]
    assert [number for number, _ in authors(b, "s3")] == [1, 2, 3, 4]
    assert_same_and_clean(a, b)


def test_versions_of_several_authors_keep_theirs(tmp_path: Path, url: str, groups: list[list[str]]) -> None:
    """One shared commit has rows of two hosts and of two programs of one host."""
    with unfollowed_hosts(tmp_path, url, "a", "b", "c") as (a, b, c):
        for name in NAMES:
            a.save(Session.new(name, "m"))
        follower_of(b).step()
        follower_of(c).step()
        a.append("s1", [Message.user("x")])
        c.append("s2", [Message.user("x")])
        with Store.open(a.home, background=False, author="other") as other:
            other.append("s3", [Message.user("x")])
        a.append("s4", [Message.user("x")])
        groups.clear()
        follower_of(b).step()
        assert groups == [[*NAMES]]
        assert [authors(b, name)[-1] for name in NAMES] == [(2, "a@a"), (2, "c@c"), (2, "other@a"), (2, "a@a")]
        follower_of(a).step()
        follower_of(c).step()
        assert_same_and_clean(a, b, c)


@pytest.mark.parametrize("damage", [b"\x01 not a row", b""], ids=["damaged", "empty"])
def test_a_bad_row_stops_nobody(pair: tuple[Store, Store], url: str, groups: list[list[str]], damage: bytes) -> None:
    """The others are applied, its session is behind, and it is made up for once the row can be read."""
    a, b = pair
    append_to_all(a, "x")
    where = "WHERE unit = 'sessions/s2' AND version = 2"
    with psycopg.connect(url) as connection:
        [row] = connection.execute(f"SELECT ops FROM grove.log {where}").fetchall()
        connection.execute(f"UPDATE grove.log SET ops = %s {where}", (damage,))
    follower_of(b).step()
    assert groups == [["s1", "s3", "s4"]]
    assert [len(texts(b, name)) for name in NAMES] == [1, 0, 1, 1]
    assert [item.unit for item in agreement_of(b).replica.behind()] == ["sessions/s2"]
    with psycopg.connect(url) as connection:
        connection.execute(f"UPDATE grove.log SET ops = %s {where}", (bytes(row[0]),))
    follower_of(b).retry_behind()
    assert agreement_of(b).replica.behind() == []
    assert_same_and_clean(a, b)


def test_a_failing_group_is_applied_one_by_one(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, groups: list[list[str]]
) -> None:
    """Nothing of it is lost, and no temporary file stays."""
    a, b = pair
    append_to_all(a, "x")
    real = Journal._store_entries

    def store_entries(self: Journal, entries: list[tuple[str, ...]], *, durable: bool) -> None:
        if len(entries) > 1:
            raise OSError(5, "no")
        real(self, entries, durable=durable)

    monkeypatch.setattr(Journal, "_store_entries", store_entries)
    follower_of(b).step()
    assert groups == [[*NAMES]]
    assert [texts(b, name) for name in NAMES] == [["x"]] * 4
    assert [authors(b, name)[-1] for name in NAMES] == [(2, "a@a")] * 4
    assert [*(b.home / ".grovefs/tmp").iterdir()] == []
    assert_same_and_clean(a, b)


def test_a_file_that_cannot_be_replaced_stops_no_other(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its session is behind with its journal entry, which the next holder of its lock finishes."""
    a, b = pair
    append_to_all(a, "x")
    real = Journal._move

    def move(self: Journal, source: str, target: str, *args: object) -> None:
        if target == "sessions/s2/session.json":
            raise OSError(5, "no")
        real(self, source, target, *args)  # type: ignore[arg-type]

    with caplog.at_level("ERROR", logger="grovefs.store"):
        monkeypatch.setattr(Journal, "_move", move)
        follower_of(b).step()
        monkeypatch.setattr(Journal, "_move", real)
    assert [len(texts(b, name)) for name in ("s1", "s3", "s4")] == [1, 1, 1]
    assert [item.unit for item in agreement_of(b).replica.behind()] == ["sessions/s2"]
    follower_of(b).retry_behind()
    assert texts(b, "s2") == ["x"]
    assert agreement_of(b).replica.behind() == []
    assert_same_and_clean(a, b)


def test_a_deletion_and_a_creation_are_applied_alone(pair: tuple[Store, Store], groups: list[list[str]]) -> None:
    """What was changed before a deletion is in the trash, and a session with the same id begins again."""
    a, b = pair
    append_to_all(a, "last words")
    a.delete("s2")
    a.save(Session.new("s2", "m"))
    a.save(Session.new("new", "m"))
    append_to_all(a, "then")
    follower_of(b).step()
    assert all(len({*group}) == len(group) for group in groups)
    assert texts(b, "s2") == ["then"]
    assert texts(b, "s1") == ["last words", "then"]
    assert b.exists("new")
    [deleted] = [slot for slot in b.trash.deleted() if slot.session_id == "s2"]
    [trashed] = (b.home / ".grovefs/trash" / deleted.name).rglob("session.json")
    kept = json.loads(trashed.read_bytes())
    assert [message["content"] for message in kept["messages"]] == ["last words"]
    assert_same_and_clean(a, b)


def test_an_edit_on_disk_is_not_part_of_a_shared_commit(pair: tuple[Store, Store], groups: list[list[str]]) -> None:
    """It is merged with what the other host did, as if its row came alone."""
    a, b = pair
    append_to_all(a, "x")
    document = b.home / "sessions/s2/session.json"
    edited = json.loads(document.read_bytes())
    edited["title"] = "typed here"
    document.write_text(json.dumps(edited))
    follower_of(b).step()
    assert groups == [["s1", "s3", "s4"]]
    session = b.load("s2")
    assert session is not None
    assert (session.title, texts(b, "s2")) == ("typed here", ["x"])
    pull(a, "s2")
    assert_same_and_clean(a, b)


def test_a_locked_session_is_applied_without_the_others(
    pair: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch, groups: list[list[str]]
) -> None:
    """The others do not wait for it. It is behind, and is made up for when its lock is free."""
    monkeypatch.setattr(follower, "LOCK_TIMEOUT_S", 0.2)
    a, b = pair
    append_to_all(a, "x")
    is_locked, end = threading.Event(), threading.Event()

    def hold() -> None:
        with b._core.locked(Location("s2")):
            is_locked.set()
            end.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    is_locked.wait()
    try:
        follower_of(b).step()
    finally:
        end.set()
        holder.join()
    assert groups == [["s1", "s3", "s4"]]
    assert [item.unit for item in agreement_of(b).replica.behind()] == ["sessions/s2"]
    follower_of(b).retry_behind()
    assert texts(b, "s2") == ["x"]
    assert_same_and_clean(a, b)


def test_a_host_killed_in_a_shared_commit_has_all_of_it_afterwards(tmp_path: Path, url: str) -> None:
    """At every step. Each session has its own journal entry, so its next writer finishes it."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        for name in NAMES:
            a.save(Session.new(name, "m"))
        follower_of(b).step()
        a.close()
        b.close()
        for at in range(1, MAX_STEPS):

            def follow(store: Store, at: int = at) -> None:
                with Store.open(a.home, background=False, author="a") as writer:
                    append_to_all(writer, f"step {at}")
                follower_of(store).step()

            is_complete = run_and_kill(b.home, Change("follow", follow), at)
            with Store.open(a.home, background=False) as one, Store.open(b.home, background=False) as two:
                two.append("s3", [Message.user("next")])
                pull(one, *NAMES)
                assert [texts(two, name)[-1] for name in ("s1", "s2", "s4")] == [f"step {at}"] * 3
                for name in NAMES:
                    numbers = [number for number, _ in authors(two, name)]
                    assert numbers == [*range(1, len(numbers) + 1)], f"step {at}"
                assert_same_and_clean(one, two)
            if is_complete:
                return
        pytest.fail("the rows were never applied")


def test_a_follower_that_ends_leaves_the_rest_of_a_page(pair: tuple[Store, Store]) -> None:
    """The cursor stays, so the next one applies it."""
    a, b = pair
    append_to_all(a, "x")
    ended = follower_of(b)
    ended._is_stopping = True
    ended.step()
    assert [texts(b, name) for name in NAMES] == [[]] * 4
    follower_of(b).step()
    assert_same_and_clean(a, b)


def test_own_rows_need_no_lock(pair: tuple[Store, Store]) -> None:
    """A writer of this home may hold it for long."""
    a, _ = pair
    append_to_all(a, "x")
    followed = follower_of(a)
    is_locked, end = threading.Event(), threading.Event()

    def hold() -> None:
        with a._core.locked_tree("s2"):
            is_locked.set()
            end.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    is_locked.wait()
    try:
        followed.step()
    finally:
        end.set()
        holder.join()
    assert agreement_of(a).replica.behind() == []
    assert_same_and_clean(a)


def row_of(unit: str, version: int, ops: bytes = b"x", generation: int | None = None) -> LogRow:
    return LogRow(0, 1, unit, version, "t", "p", "h", "host", "saved", "api", "p", 0, generation, ops)


def test_waves_have_a_row_of_each_session() -> None:
    """No row crosses one that has to be applied alone: a deletion, a creation, mail or state."""
    one, two = "sessions/one", "sessions/two"
    alone = [
        row_of(two, 3, DELETED),
        row_of(two, 4, generation=2),
        row_of(f"{one}/mailbox", 1),
        row_of("state/memory", 1),
        row_of("no/unit", 1),
    ]
    first = [row_of(one, 1), row_of(one, 2), row_of(two, 1), row_of(two, 2), row_of(one, 3)]
    last = [row_of(one, 4), row_of(two, 5)]
    found = [[(row.unit, row.version) for row in wave] for wave in waves([*first, *alone, *last])]
    assert found == [
        [(one, 1), (two, 1)],
        [(one, 2), (two, 2)],
        [(one, 3)],
        *[[(row.unit, row.version)] for row in alone],
        [(one, 4), (two, 5)],
    ]


def test_many_sessions_are_applied_in_portions(tmp_path: Path, url: str, groups: list[list[str]]) -> None:
    """No more than MAX_ROWS locks are held at the same time."""
    names = [f"s{number:02}" for number in range(MAX_ROWS + 3)]
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        for name in names:
            a.save(Session.new(name, "m"))
        follower_of(b).step()
        for name in names:
            a.append(name, [Message.user("x")])
        follower_of(b).step()
        assert sorted(map(len, groups)) == [3, MAX_ROWS]
        assert_same_and_clean(a, b)
