"""Joining a grove with a home that has sessions, leaving it, and joining again."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from store import InboxMessage, Message, ReadOnly, Session, Store
from store.disk import syscalls
from store.errors import InvalidName, StoreError, Unreachable
from store.grove import administration, applying
from store.grove.replica import LogPosition, Replica, is_joined
from store.history.recording import Recorder
from tests.grove.groves import assert_clean, create, files, join, wait_equal, wait_until
from tests.records import make_artifact


def home_with(path: Path, **texts: str) -> Path:
    """A home with one session for each text."""
    with Store.open(path, background=False) as store:
        for name, text in texts.items():
            store.save(Session.new(name, "m"))
            store.append(name, [Message.user(text)])
    return path


def roots(store: Store, words: str) -> list[str]:
    """The sessions that a search finds."""
    return [hit.location.root for hit in store.search(words) if hit.location is not None]


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fusefs.cli", "grove", *arguments, "--home", str(home)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_home_with_sessions_is_published_and_an_empty_one_gets_them(tmp_path: Path, url: str) -> None:
    """Both have the same files then, and can be written."""
    home_with(tmp_path / "one", a="first", b="second")
    create(url)
    join(tmp_path / "one", url)
    join(tmp_path / "two", url)
    assert files(tmp_path / "one") == files(tmp_path / "two")
    one_knows, two_knows = (Replica(tmp_path / name).units() for name in ("one", "two"))
    assert one_knows == two_knows
    assert list(two_knows) == ["sessions/a", "sessions/b"]
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        two.append("a", [Message.user("third")])
        wait_until(lambda: one.search("third"))
        wait_equal(one, two)
        assert_clean(one, two)


def test_equal_sessions_are_adopted_and_different_ones_kept_as_copies(tmp_path: Path, url: str) -> None:
    """The copy is local until it is published by name."""
    home_with(tmp_path / "one", same="text", differs="ours")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with Store.open(tmp_path / "two", background=False) as two:
        two.append("differs", [Message.user("theirs")])
    create(url)
    join(tmp_path / "one", url)
    plan = administration.plan_joining(tmp_path / "two", url)
    assert plan.actions == {"sessions/differs": "conflict", "sessions/same": "adopt"}
    join(tmp_path / "two", url)
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        assert roots(two, "theirs") == ["differs~two"]
        assert two.get_document("differs", "session.json") == one.get_document("differs", "session.json")
        assert not one.exists("differs~two")
        two.grove.publish("differs~two")
        wait_until(lambda: one.exists("differs~two"))
        wait_equal(one, two)
        assert_clean(one, two)


def test_an_old_copy_does_not_bring_a_deleted_session_back(tmp_path: Path, url: str) -> None:
    """A version that the grove had goes to the trash of the home that joins."""
    home_with(tmp_path / "one", old="text", kept="text")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    create(url)
    join(tmp_path / "one", url)
    with Store.open(tmp_path / "one", background=False) as one:
        one.delete("old")
    join(tmp_path / "two", url)
    with Store.open(tmp_path / "two", background=False) as two:
        assert two.ids() == ["kept"]
        assert [slot.session_id for slot in two.trash.deleted()] == ["old"]
        assert_clean(two)


def test_a_copied_home_writes_nothing_until_it_rejoins(tmp_path: Path, url: str) -> None:
    """It has the host id of the original."""
    home_with(tmp_path / "one", a="text")
    create(url)
    join(tmp_path / "one", url)
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with Store.open(tmp_path / "copy", background=False) as copy, pytest.raises(ReadOnly, match="rejoin"):
        copy.append("a", [Message.user("from the copy")])
    administration.rejoin(tmp_path / "copy")
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "copy") as copy:
        copy.append("a", [Message.user("from the copy")])
        wait_until(lambda: one.search("copy"))
        wait_equal(one, copy)


def test_lost_history_is_noticed_and_freezes_the_grove(tmp_path: Path, url: str) -> None:
    """As after an asynchronous failover. Nothing is overwritten; rejoining keeps what differs as a copy."""
    home_with(tmp_path / "one", a="text")
    create(url)
    join(tmp_path / "one", url)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE before AS SELECT * FROM grove.units")
    with Store.open(tmp_path / "one", background=False) as one:
        one.append("a", [Message.user("lost by the database")])
    with psycopg.connect(url) as connection:  # the database forgets its last commit
        connection.execute("UPDATE grove.shards SET seq = seq - 1 WHERE seq > 0")
        connection.execute("DELETE FROM grove.log WHERE version = 2")
        connection.execute("DELETE FROM grove.units")
        connection.execute("INSERT INTO grove.units SELECT * FROM before")
    with Store.open(tmp_path / "one", background=False) as one:
        with pytest.raises(ReadOnly, match=r"lost|frozen"):
            one.append("a", [Message.user("more")])
        assert one.search("lost")
    assert administration.status(tmp_path / "one").frozen
    administration.rejoin(tmp_path / "one", thaw=True)
    with Store.open(tmp_path / "one", background=False) as one:
        assert roots(one, "lost") == ["a~one"]
        one.append("a", [Message.user("more")])
        assert_clean(one)


def test_other_hosts_must_rejoin_when_one_has_accepted_a_loss(tmp_path: Path, url: str) -> None:
    """`status` says so, and the refused write names the command."""
    home_with(tmp_path / "one", a="text")
    create(url)
    for name in ("one", "two"):
        join(tmp_path / name, url)
    administration.rejoin(tmp_path / "one", thaw=True)
    assert not administration.status(tmp_path / "one").problem
    found = administration.status(tmp_path / "two")
    assert "until this home rejoins" in found.problem
    assert not found.unreachable
    with Store.open(tmp_path / "two", background=False) as two, pytest.raises(ReadOnly, match="grovefs grove rejoin"):
        two.append("a", [Message.user("not yet")])
    administration.rejoin(tmp_path / "two")
    assert not administration.status(tmp_path / "two").problem


@pytest.mark.parametrize("name", ["bad name", "a/b", "~x", "", "x" * 64])
def test_a_host_name_that_cannot_be_part_of_an_id_is_rejected(tmp_path: Path, url: str, name: str) -> None:
    create(url)
    with pytest.raises(StoreError, match="cannot name a host"):
        administration.join(tmp_path / "one", url, name)
    assert not (tmp_path / "one").exists()


def test_leaving_makes_an_ordinary_home(tmp_path: Path, url: str) -> None:
    """Its sessions stay, and it writes without the grove."""
    home_with(tmp_path / "one", a="text")
    create(url)
    join(tmp_path / "one", url)
    administration.leave(tmp_path / "one")
    assert not is_joined(tmp_path / "one")
    with Store.open(tmp_path / "one", background=False) as one:
        one.append("a", [Message.user("alone")])
        one.rename("a", "b")
        assert_clean(one)


def test_a_home_that_is_open_elsewhere_cannot_join(tmp_path: Path, url: str) -> None:
    """That process would keep writing without the grove."""
    create(url)
    home_with(tmp_path / "one", a="text")
    code = "import sys; from store import Store; s = Store.open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path / "one")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(StoreError, match="open in another process"):
            join(tmp_path / "one", url)
    assert not is_joined(tmp_path / "one")


def test_an_unsafe_server_and_a_stored_password_are_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidName, match="password"):
        administration.create("postgresql://u:secret@127.0.0.1/x")
    with pytest.raises(Unreachable, match="does not answer"):
        administration.create("postgresql:///x?host=/nowhere")
    with pytest.raises(ReadOnly, match="synchronous_commit=off"):
        administration.create(f"{url}&options=-csynchronous_commit%3Doff")


def test_commands(tmp_path: Path, url: str) -> None:
    """create, join with its plan, status, leave; and a home without a grove says so."""
    home = home_with(tmp_path / "one", a="text")
    missing = run(home, "status")
    assert (missing.returncode, "has not joined a grove" in missing.stderr) == (1, True)
    created = subprocess.run(
        [sys.executable, "-m", "fusefs.cli", "grove", "create", url], capture_output=True, text=True
    )
    assert created.returncode == 0, created.stderr
    planned = run(home, "join", url, "--dry-run", "--json")
    assert json.loads(planned.stdout) == {"sessions/a": "publish"}
    assert not is_joined(home)
    joined = run(home, "join", url, "--yes", "--name", "laptop")
    assert joined.returncode == 0, joined.stderr
    shown = json.loads(run(home, "status", "--json").stdout)
    assert [(host["name"], host["is_this"]) for host in shown["hosts"]] == [("laptop", True)]
    times = [shown["membership"]["joined_at"], shown["hosts"][0]["seen_at"]]
    assert all(datetime.fromisoformat(text).utcoffset() is not None for text in times)
    left = run(home, "leave", "--yes")
    assert left.returncode == 0, left.stderr


def test_one_bad_row_stops_nobody(tmp_path: Path, url: str) -> None:
    """A unit that cannot be applied is listed as behind; later rows of other units are applied."""
    create(url)
    for name in ("one", "two"):
        join(tmp_path / name, url)
    with Store.open(tmp_path / "one", background=False) as one:
        one.save(Session.new("bad", "m"))
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE grove.log SET ops = 'nonsense'")
        one.save(Session.new("good", "m"))
    with Store.open(tmp_path / "two", background=False) as two:
        assert two.ids() == ["good"]
    replica = Replica(tmp_path / "two")
    assert [unit.unit for unit in replica.behind()] == ["sessions/bad"]
    replica.close()


def test_files_that_are_missing_on_disk_are_fetched_again(tmp_path: Path, url: str) -> None:
    """A removed file is never taken for a deletion."""
    home_with(tmp_path / "one", a="text", b="text")
    create(url)
    for name in ("one", "two"):
        join(tmp_path / name, url)
    (tmp_path / "two/sessions/a/session.json").unlink()
    shutil.rmtree(tmp_path / "two/sessions/b")
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        wait_equal(one, two)
        wait_until(lambda: two.ids() == ["a", "b"])
        assert one.ids() == ["a", "b"]
        assert_clean(one, two)


def test_a_dry_run_creates_nothing_where_there_is_no_home(tmp_path: Path, url: str) -> None:
    """Nor in an empty directory; the plan says what would be fetched."""
    create(url)
    join(tmp_path / "one", url)
    with Store.open(tmp_path / "one", background=False) as one:
        one.save(Session.new("s", "m"))
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        plan = administration.plan_joining(tmp_path / name, url)
        assert plan.units("fetch") == ["sessions/s"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "one"]
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_new_host_syncs_once(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it says that it has everything. A home with a text that the grove's replaces syncs every file."""
    home_with(tmp_path / "one", a="first", b="second")
    for name in ("one", "full"):
        with Store.open(tmp_path / name, background=False) as store:
            store.state.save_json("facts", "f", name)
    create(url)
    join(tmp_path / "one", url)
    done: list[str] = []
    real, set_cursors = syscalls.syncfs, Replica.set_cursors

    def note_sync(fd: int) -> None:
        done.append("synced")
        real(fd)

    def note_end(self: Replica, positions: Mapping[int, LogPosition]) -> None:
        done.append("ready")
        set_cursors(self, positions)

    monkeypatch.setattr("store.disk.disk.syncfs", note_sync)
    monkeypatch.setattr(Replica, "set_cursors", note_end)
    join(tmp_path / "two", url)
    join(tmp_path / "full", url)
    assert done == ["synced", "ready", "ready"]
    with (
        Store.open(tmp_path / "one") as one,
        Store.open(tmp_path / "two") as two,
        Store.open(tmp_path / "full") as full,
    ):
        wait_equal(one, two, full)
        assert_clean(one, two, full)


def newest_versions(url: str) -> list[tuple[str, int]]:
    with psycopg.connect(url) as connection:
        return [*connection.execute("SELECT unit, version FROM grove.units ORDER BY unit")]


class PowerFailure(BaseException):
    pass


def join_interrupted(home: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Join, and stop before the fetched files are synced."""

    def fail(*args: object) -> None:
        raise PowerFailure

    with monkeypatch.context() as patch:
        patch.setattr("store.disk.disk.syncfs", fail)
        with pytest.raises(PowerFailure):
            join(home, url)


@pytest.mark.parametrize("fetched", [1, 2, 4])
def test_a_host_that_is_killed_while_it_fetches_goes_on_when_it_is_opened(
    tmp_path: Path, url: str, fetched: int
) -> None:
    """Its index does not have what was fetched together with what was not."""
    home_with(tmp_path / "one", a="first", b="second", c="third", d="fourth")
    with Store.open(tmp_path / "one", background=False) as one:
        one.mail.at("a").deliver(InboxMessage.new("boss", "reply", {}))
    create(url)
    join(tmp_path / "one", url)
    killed = os.fork()
    if killed == 0:
        real, times = applying.Applier.plan_whole, itertools.count()

        def apply_some(*args: Any) -> Any:
            if next(times) == fetched:
                os._exit(9)
            return real(*args)

        pytest.MonkeyPatch().setattr(applying.Applier, "plan_whole", apply_some)
        join(tmp_path / "two", url)
        os._exit(0)
    assert os.waitpid(killed, 0)[1] == 9 << 8
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        wait_equal(one, two)
        for name, word in {"a": "first", "b": "second", "c": "third", "d": "fourth"}.items():
            wait_until(partial(lambda name, word: roots(two, word) == [name], name, word))
        two.append("a", [Message.user("goes on")])
        wait_until(lambda: roots(one, '"goes on"') == ["a"])
        wait_equal(one, two)
        assert_clean(one, two)
        assert [version.label for version in two.history.log("sessions/a", limit=1)] == ["2"]


def in_killed_child(work: Callable[[Callable[[], None]], None]) -> None:
    """Run `work` in a child process that calls what it is passed to die."""
    killed = os.fork()
    if killed == 0:
        try:
            work(lambda: os._exit(9))
        finally:
            os._exit(1)
    assert os.waitpid(killed, 0)[1] == 9 << 8


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_host_that_is_killed_while_it_fetches_has_the_numbers_of_the_grove(
    tmp_path: Path, url: str, is_recorded: bool
) -> None:
    """Files are in place a moment before their versions are recorded."""
    home_with(tmp_path / "one", a="first", b="second", c="third")
    create(url)
    join(tmp_path / "one", url)

    def join_and_die(die: Callable[[], None]) -> None:
        real = Recorder.add

        def add(*args: Any) -> None:
            if is_recorded:
                real(*args)
            die()

        pytest.MonkeyPatch().setattr(Recorder, "add", add)
        join(tmp_path / "two", url)

    in_killed_child(join_and_die)
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        wait_equal(one, two)
        for name in ("a", "b", "c"):
            wait_until(partial(lambda name: labels(two, name) == ["1"], name))
        two.append("a", [Message.user("goes on")])
        assert labels(two, "a") == ["2", "1"]
        wait_equal(one, two)
        assert_clean(one, two)


def labels(store: Store, name: str) -> list[str]:
    return [version.label for version in store.history.log(f"sessions/{name}", limit=10)]


@pytest.mark.warns  # the store logs the row
def test_a_new_host_joins_although_a_row_is_damaged(tmp_path: Path, url: str) -> None:
    """It has everything else, and status names the session that it could not store."""
    home_with(tmp_path / "one", a="first", b="second", c="third")
    create(url)
    join(tmp_path / "one", url)
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE grove.log SET ops = 'damaged' WHERE unit = 'sessions/b'")
    join(tmp_path / "two", url)
    with Store.open(tmp_path / "two") as two:
        assert two.ids() == ["a", "c"]
        assert [unit.unit for unit in administration.status(two.home).behind] == ["sessions/b"]
        assert_clean(two)


@pytest.mark.warns
@pytest.mark.parametrize("content", [b"", b"\0\0"])
@pytest.mark.parametrize("name", ["session.json", "runtime.json", "artifacts.json"])
def test_what_a_power_failure_has_emptied_while_joining_is_not_published_by_name(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, content: bytes, name: str
) -> None:
    """The command may come before the first sweep."""
    home_with(tmp_path / "one", a="first")
    with Store.open(tmp_path / "one", background=False) as one:
        one.records.add_artifacts("a", [make_artifact("one")])
    create(url)
    join(tmp_path / "one", url)
    fetched, versions = files(tmp_path / "one"), newest_versions(url)
    join_interrupted(tmp_path / "two", url, monkeypatch)
    (tmp_path / "two/sessions/a" / name).write_bytes(content)
    with Store.open(tmp_path / "two", background=False) as two:
        assert two.grove.publish("a") == []
        assert files(two.home) == fetched
        assert newest_versions(url) == versions
        assert_clean(two)


def test_publishing_a_shared_session_publishes_what_was_edited_on_disk(tmp_path: Path, url: str) -> None:
    home_with(tmp_path / "one", a="first")
    create(url)
    join(tmp_path / "one", url)
    document = tmp_path / "one/sessions/a/session.json"
    with Store.open(tmp_path / "one", background=False) as one:
        document.write_bytes(document.read_bytes().replace(b"first", b"third"))
        assert one.grove.publish("a") == ["sessions/a"]
        assert one.grove.publish("a") == []
    join(tmp_path / "two", url)
    assert files(tmp_path / "two") == files(tmp_path / "one")
    assert b"third" in document.read_bytes()


@pytest.mark.warns
def test_files_that_a_power_failure_has_emptied_while_joining_come_again(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although they have the size and the time that they had. They are not published as edits."""
    home_with(tmp_path / "one", a="first", b="second")
    with Store.open(tmp_path / "one", background=False) as one:
        one.attach("a", b"picture", "image/png")
        one.state.save_json("facts", "f", 1)
        for number in range(25):  # more than are published without asking
            one.state.save_markdown("notes", f"n{number}", "a note")
    create(url)
    join(tmp_path / "one", url)
    fetched = files(tmp_path / "one")
    versions = newest_versions(url)
    join_interrupted(tmp_path / "two", url, monkeypatch)
    emptied = [path for path in fetched if not path.startswith("sessions/b/")]
    assert any("/attachments/" in path for path in emptied)
    for number, path in enumerate(emptied):
        file = tmp_path / "two" / path
        info = file.stat()
        file.write_bytes(b"\0" * info.st_size if number % 2 == 0 or path.endswith("session.json") else b"")
        os.utime(file, ns=(info.st_mtime_ns, info.st_mtime_ns))
    with Store.open(tmp_path / "two") as two:
        replica = Replica(two.home)
        wait_until(lambda: not replica.unsynced())
        replica.close()
        wait_until(lambda: files(two.home) == fetched)
    assert newest_versions(url) == versions
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        wait_equal(one, two)
        two.append("a", [Message.user("goes on")])
        wait_until(lambda: one.search("goes on"))
        wait_equal(one, two)
        assert_clean(one, two)
