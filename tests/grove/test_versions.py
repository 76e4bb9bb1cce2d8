"""Versions in a grove: the same numbers on every host, and log, diff, revert and undo across hosts."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from store import Message, Session, Store
from store.errors import StoreError
from store.grove import administration
from store.grove.agreeing import GroveAgreement
from store.grove.wire import LogRow
from store.undo.undo_plan import UndoRequest
from tests.grove.groves import create, join
from tests.grove.homes import agreement_of, assert_same_and_clean, follower_of, pull, texts, unfollowed_hosts
from tests.records import make_artifact

PATH = "sessions/s"


def labels(store: Store) -> list[str]:
    return [version.label for version in store.history.log(PATH, limit=100)]


def titles(store: Store, *numbers: int) -> list[str]:
    found = [store.history.get(PATH, str(number)) for number in numbers]
    return [store._home.services.versions.load(version).session.title for version in found]


def retitle(store: Store, title: str) -> None:
    session = store.load("s")
    assert session is not None
    session.title = title
    store.save(session)


def test_a_number_means_the_same_version_on_every_host(tmp_path: Path, url: str) -> None:
    """Also where another file of the session got a version in between, and where versions came one by one."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        retitle(a, "two")
        pull(b, "s")
        b.records.add_artifacts("s", [make_artifact("one")])  # version 3 of the unit
        retitle(b, "four")
        pull(a, "s")
        for store in (a, b):
            assert labels(store) == ["4", "2", "1"]
            assert titles(store, 2, 3, 4) == ["two", "two", "four"]
            assert [v.label for v in store.history.log(f"{PATH}/artifacts.json")] == ["3"]
        assert [v.author.program for v in a.history.log(PATH)] == ["b@b", "a", "a"]
        assert_same_and_clean(a, b)


def test_another_hosts_version_is_reverted_and_undone(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        began_ns = time.time_ns()
        retitle(a, "by a")
        pull(b, "s")
        plan = b._home.services.undoer.plan(UndoRequest(began_ns, time.time_ns() + 10**9, by="a@*"))
        assert [[version.label for version in item.bad] for item in plan.to_undo] == [["2"]]
        assert len(b.history.undo(plan).undone) == 1
        pull(a, "s")
        assert titles(a, 2, 3) == ["by a", "New Session"]
        assert a.history.revert(a.history.get(PATH, "2"))
        pull(b, "s")
        assert titles(b, 4) == ["by a"]
        assert_same_and_clean(a, b)


def test_a_restored_session_has_the_number_of_its_restoration(tmp_path: Path, url: str) -> None:
    """On the host that restored it too, though its text did not change."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        a.state.save_json("notes", "n", {"id": "n"})
        pull(b, "s")
        follower_of(b).catch_up(60)
        b.delete("s")
        b.state.delete("notes", "n")
        follower_of(a).catch_up(60)
        for slot in a.trash.deleted():
            a.trash.undelete(slot.name)
        pull(b, "s")
        follower_of(b).catch_up(60)
        retitle(b, "four")
        pull(a, "s")
        for store in (a, b):
            assert [label for label in labels(store) if label in ("1", "3", "4")][:2] == ["4", "3"]
            assert titles(store, 3, 4) == ["New Session", "four"]
        newest = [store.history.log("state/notes/n.json")[0].label for store in (a, b)]
        assert newest == ["3", "3"]
        assert_same_and_clean(a, b)


def test_a_revert_is_repeated_if_another_host_was_faster(tmp_path: Path, url: str) -> None:
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        retitle(a, "two")
        pull(b, "s")
        version = b.history.get(PATH, "1")
        a.append("s", [Message.user("meanwhile")])
        assert b.history.revert(version)
        pull(a, "s")
        assert texts(a, "s") == []  # a revert brings the whole version back
        assert titles(a, 4) == ["New Session"]
        assert_same_and_clean(a, b)


def test_the_base_of_a_stale_save_is_found_in_the_log(tmp_path: Path, url: str) -> None:
    """A host that joined later has no history of the version that a text was edited from."""
    create(url)
    join(tmp_path / "a", url)
    with Store.open(tmp_path / "a", background=False) as a:
        a.save(Session.new("s", "m"))
        old = a.get_document("s", "session.json")
        assert old is not None
        a.append("s", [Message.user("later")])
        join(tmp_path / "b", url)
        with Store.open(tmp_path / "b", background=False) as b:
            assert labels(b) == ["2"]
            typed = old.replace(b'"New Session"', b'"edited from the old one"')
            assert b.put_document("s", "session.json", typed, on_conflict="merge")
            loaded = b.load("s")
            assert loaded is not None
            assert (loaded.title, texts(b, "s")) == ("edited from the old one", ["later"])
            pull(a, "s")
            assert_same_and_clean(a, b)


def test_versions_from_before_joining_are_local(tmp_path: Path, url: str) -> None:
    """They are shown, and found by time; after leaving, all versions have the numbers of this home again."""
    create(url)
    home = tmp_path / "a"
    with Store.open(home, background=False) as a:
        a.save(Session.new("s", "m"))
        retitle(a, "two")
    join(home, url)
    with Store.open(home, background=False) as a:
        assert labels(a)[-2:] == ["local-2", "local-1"]
        retitle(a, "shared")
        known = agreement_of(a).replica.find_unit(PATH)
        assert known is not None
        assert labels(a)[0] == str(known.version)
        assert titles(a, known.version) == ["shared"]
    administration.leave(home)
    with Store.open(home, background=False) as a:
        assert labels(a) == [str(number) for number in range(len(labels(a)), 0, -1)]
        assert a.check().is_clean


def test_what_another_host_did_while_this_one_was_away_keeps_its_time(tmp_path: Path, url: str) -> None:
    """A version is found by the time at which it was made, not at which it arrived."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        retitle(a, "made now")
        until_ns = time.time_ns()
        time.sleep(0.05)
        pull(b, "s")
        found = b._core.history.made_until(PATH, until_ns)
        assert found is not None
        assert found.label == "2"
        assert found.made_at_ns <= until_ns < found.at_ns


@contextmanager
def joined_later(tmp_path: Path, url: str) -> Iterator[list[Store]]:
    """A host that has made five versions, and one that has joined after them."""
    create(url)
    join(tmp_path / "a", url)
    with Store.open(tmp_path / "a", background=False, author="agent") as a:
        a.save(Session.new("s", "m"))
        retitle(a, "two")
        a.records.add_artifacts("s", [make_artifact("one")])  # version 3 of the unit
        a.records.add_artifacts("s", [make_artifact("two")])
        retitle(a, "five")
        join(tmp_path / "b", url)
        with Store.open(tmp_path / "b", background=False) as b:
            yield [a, b]


def test_a_version_from_before_a_host_joined_is_fetched_when_it_is_named(tmp_path: Path, url: str) -> None:
    with joined_later(tmp_path, url) as (a, b):
        assert labels(b) == ["5"]
        assert titles(b, 2, 5) == ["two", "five"]
        assert b.history.revert(b.history.get(PATH, "1"))
        pull(a, "s")
        assert titles(a, 6) == ["New Session"]
        assert_same_and_clean(a, b)


def test_the_log_of_a_host_that_joined_later_is_that_of_the_others(tmp_path: Path, url: str) -> None:
    """With numbers, times, authors and texts, also page by page."""
    with joined_later(tmp_path, url) as (a, b):
        newest = b.history.log(PATH, limit=2)  # as a mount does: it never waits for the database
        older = b.history.log(PATH, limit=10, before=newest[0].number, fetch=True)
        assert [v.label for v in [*newest, *older]] == labels(a) == labels(b) == ["5", "2", "1"]
        assert [v.number for v in b.history.log(PATH)] == [3, 2, 1]
        assert [v.author.program for v in older] == ["agent@a", "agent@a"]
        assert [b.history.host_of(v) for v in older] == [a.history.host_of(v) for v in a.history.log(PATH)[1:]]
        for ours, theirs in zip(b.history.log(PATH), a.history.log(PATH), strict=True):
            assert b.history.read(ours) == a.history.read(theirs)
        assert b.history.summaries(b.history.log(PATH)) == a.history.summaries(a.history.log(PATH))
        artifacts = f"{PATH}/artifacts.json"
        assert [v.label for v in b.history.log(artifacts, fetch=True)] == ["4", "3"]
        retitle(b, "goes on")
        assert labels(b) == ["6", "5", "2", "1"]
        assert len(b.history.log(PATH, fetch=True)) == 4  # nothing is added twice
        assert b.history.log(PATH, limit=0, fetch=True) == []
        pull(a, "s")
        assert_same_and_clean(a, b)


def test_versions_that_were_looked_up_before_older_ones_came_are_the_same(tmp_path: Path, url: str) -> None:
    """A mount that shows history/ holds them, and a writer has opened one whose mode was changed since."""
    with joined_later(tmp_path, url) as (_, b):
        document = b.home / PATH / "session.json"
        opened = b._core.disk.stamp(f"{PATH}/session.json")
        assert opened is not None
        document.chmod(0o640)
        b._core.history.observe(PATH)
        retitle(b, "six")
        held = b.history.log(PATH)
        before = [b.history.read(version) for version in held]
        assert len(b.history.log(PATH, fetch=True)) == len(held) + 2
        assert [b.history.read(version) for version in held] == before == b._core.history.read_run(held)
        found = b._core.history.with_stamp(PATH, "session.json", opened)
        assert found is not None
        assert found.label == "5"
        assert_same_and_clean(b)


def test_nobody_waits_for_a_session_while_older_versions_are_fetched(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database may be slow. Another process may fetch the same versions meanwhile: they are added once."""
    with joined_later(tmp_path, url) as (a, b):
        real = GroveAgreement.rows_until
        refused: list[StoreError] = []

        def write_and_fetch() -> None:
            try:
                b.append("s", [Message.user("meanwhile")])
                b.history.log(PATH, fetch=True)
            except StoreError as error:
                refused.append(error)

        def rows_until(self: GroveAgreement, unit: str, version: int) -> list[LogRow]:
            monkeypatch.setattr(GroveAgreement, "rows_until", real)
            other = threading.Thread(target=write_and_fetch)
            other.start()
            other.join()
            return real(self, unit, version)

        monkeypatch.setattr(GroveAgreement, "rows_until", rows_until)
        assert titles(b, 2) == ["two"]
        assert refused == []
        assert labels(b) == ["6", "5", "2", "1"]
        assert [version.number for version in b.history.log(PATH)] == [4, 3, 2, 1]
        pull(a, "s")
        assert_same_and_clean(a, b)


def test_a_change_from_before_a_host_joined_is_undone_there(tmp_path: Path, url: str) -> None:
    with joined_later(tmp_path, url) as (a, b):
        began_ns = a.history.log(f"{PATH}/artifacts.json")[0].at_ns + 1
        plan = b._home.services.undoer.plan(UndoRequest(began_ns, time.time_ns(), by="agent@a"))
        assert [[version.label for version in item.bad] for item in plan.to_undo] == [["5"]]
        assert len(b.history.undo(plan).undone) == 1
        pull(a, "s")
        assert titles(a, 6) == ["two"]
        assert_same_and_clean(a, b)


def test_the_log_names_the_host_of_every_version(tmp_path: Path, url: str) -> None:
    """Also of those that this host has made. A home without a grove has none."""
    with unfollowed_hosts(tmp_path, url, "a", "b") as (a, b):
        a.save(Session.new("s", "m"))
        pull(b, "s")
        retitle(b, "by b")
        pull(a, "s")
        for store in (a, b):
            assert [store.history.host_of(version) for version in store.history.log(PATH)] == ["b", "a"]
    shown = subprocess.run(
        [sys.executable, "-m", "fusefs.cli", "log", "--home", str(tmp_path / "a"), "s"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "api: b@b" in shown.stdout
    assert "api: a@a (" in shown.stdout
    with Store.open(tmp_path / "alone", background=False) as alone:
        alone.save(Session.new("s", "m"))
        assert [alone.history.host_of(version) for version in alone.history.log(PATH)] == [""]
