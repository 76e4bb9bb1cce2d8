"""Vouching: who asks is told of everything that was done before, and nothing is vouched for that is not watched."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from store import Store
from store.search.grep import freshness, known_files
from store.search.grep.freshness import FreshnessServer
from tests.builders import make_session
from tests.store.search.grep.test_grep import ROOT, gnu, in_process, make_home, settle
from tests.store.search.grep.test_maintenance import listed

DEADLINE_S = 60.0


def asked(home: Path) -> str | None:
    before = Path.cwd()
    os.chdir(home)
    try:
        return known_files.ask_freshness(b"")
    finally:
        os.chdir(before)


def wait_vouched(home: Path) -> str:
    """The token, once someone vouches and index.db says so."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        token = asked(home)
        if token is not None:
            return token
        time.sleep(0.02)
    raise AssertionError("nobody vouches")


@pytest.fixture
def vouched(home: Path) -> Iterator[Store]:
    """A home with thirty sessions, all known, and someone who vouches for it."""
    make_home(home)
    settle()
    with Store.open(home, background=False) as store:
        store.trigrams.rebuild()
        warden = FreshnessServer(store.trigrams, start_s=0)
        wait_vouched(home)
        yield store
        warden.stop()


def agree(home: Path, pattern: str, most: int) -> None:
    """The truth, without every file having been looked at."""
    assert asked(home) is not None
    found, files = in_process(home, [pattern])
    assert found == gnu(home, [pattern])
    assert files is not None
    assert len(files) <= most


def test_nothing_that_was_done_before_is_missed(vouched: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place, appended, renamed onto, new, deep in new directories, moved, gone: at once, without a look at times."""
    monkeypatch.setattr(known_files.KnownFiles, "differing", lambda _: pytest.fail("every file was looked at"))
    home = vouched.home
    sessions = home / "sessions"
    agree(home, "zyzzyva", 0)
    with (sessions / "s07/session.json").open("a") as file:
        file.write("\nzyzzyva in place")
    agree(home, "zyzzyva", 1)
    with (sessions / "s07/session.json").open("r+") as file:
        file.write("ZYZ")
        file.flush()
        agree(home, "ZYZ", 1)
    (sessions / "s08/new.txt").write_text("zyzzyva, new")
    agree(home, "zyzzyva", 2)
    (sessions / "s10/children/x/attachments").mkdir(parents=True)
    (sessions / "s10/children/x/attachments/y").write_text("zyzzyva, deep")
    agree(home, "zyzzyva", 3)
    (home / "other").write_text("zyzzyva, moved")
    (home / "other").rename(sessions / "s09/runtime.json")
    agree(home, "zyzzyva", 4)
    (sessions / "s10").rename(sessions / "s99")
    (sessions / "s99/children/x/attachments/z").write_text("zyzzyva, after the move")
    agree(home, "zyzzyva", 8)
    shutil.rmtree(sessions / "s99")
    (sessions / "s11/session.json").unlink()
    agree(home, "zyzzyva", 4)
    vouched.save(make_session("made", title="zyzzyva, saved"))
    agree(home, "zyzzyva", 6)
    vouched.rename("made", "renamed")
    agree(home, "zyzzyva", 10)
    vouched.delete("renamed")
    agree(home, "zyzzyva", 4)


def test_a_merge_while_it_is_vouched_for(vouched: Store) -> None:
    """What was read is known; what changes afterwards is listed again."""
    home = vouched.home
    (home / "sessions/s08/new.txt").write_text("zyzzyva")
    agree(home, "zyzzyva", 1)
    settle()
    vouched.trigrams.merge()
    assert "sessions/s08/new.txt" not in listed(vouched)
    agree(home, "zyzzyva", 1)
    agree(home, "absent words", 0)
    (home / "sessions/s08/new.txt").write_text("zyzzyva absent words")
    agree(home, "absent words", 1)


def test_what_overflows_is_looked_at_again(vouched: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's queue ends somewhere; then nobody vouches until all has been compared."""
    monkeypatch.setattr(freshness, "DRAIN_S", 600.0)
    home = vouched.home
    token = asked(home)
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for i in range(limit // 4 + 500):  # created, modified, closed, gone; two names in turn, so that none are one
        path = home / f"sessions/s0{i % 2}/n{i % 2}"
        path.write_text("x")
        path.unlink()
    (home / "sessions/s05/last").write_text("zyzzyva")
    found, _ = in_process(home, ["zyzzyva"])
    assert found == gnu(home, ["zyzzyva"])
    assert wait_vouched(home) != token
    agree(home, "zyzzyva", 1)


def test_who_hangs_or_died_does_not_vouch(home: Path) -> None:
    """A stopped process is not waited for for long; after kill -9 the next one vouches."""
    make_home(home)
    program = (
        "import sys, time; from store import Store; from store.search.grep.freshness import FreshnessServer\n"
        "store = Store.open(sys.argv[1], background=False)\n"
        "server = FreshnessServer(store.trigrams, 0); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(home)], cwd=ROOT)
    try:
        wait_vouched(home)
        process.send_signal(signal.SIGSTOP)
        (home / "sessions/s08/new.txt").write_text("zyzzyva")
        assert in_process(home, ["zyzzyva"])[0] == gnu(home, ["zyzzyva"])
        assert asked(home) is None
    finally:
        process.kill()
        process.wait()
    assert asked(home) is None
    with Store.open(home, background=False) as store:
        warden = FreshnessServer(store.trigrams, start_s=0)
        wait_vouched(home)
        (home / "sessions/s08/new.txt").write_text("zyzzyva, again")
        assert in_process(home, ["again"])[0] == gnu(home, ["again"])
        warden.stop()
    assert asked(home) is None
    assert not (home / os.fsdecode(known_files.VOUCHER)).exists()


def test_only_one_vouches(vouched: Store) -> None:
    """The second waits its turn."""
    token = asked(vouched.home)
    second = FreshnessServer(vouched.trigrams, start_s=0)
    time.sleep(0.3)
    assert asked(vouched.home) == token
    second._stopping.set()
    for thread in second._threads:
        thread.join()
    vouched.trigrams._stopping = False


def test_a_token_of_another_index_counts_for_nothing(vouched: Store) -> None:
    """index.db was made anew behind the back of who vouches for the old one: then every file is looked at."""
    vouched._core.db.set_meta(grep_token="another")
    (vouched.home / "sessions/s08/new.txt").write_text("zyzzyva")
    assert in_process(vouched.home, ["zyzzyva"])[0] == gnu(vouched.home, ["zyzzyva"])


@pytest.mark.parametrize("why", ["watches", "filesystem", "unreadable"])
def test_who_cannot_watch_everything_does_not_vouch(home: Path, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few watches, a filesystem that others write to, a directory out of reach."""
    make_home(home)
    if why == "watches":
        monkeypatch.setattr(freshness, "_LARGEST_SHARE", 1e-6)
    elif why == "filesystem":
        monkeypatch.setattr(freshness, "filesystems_of", lambda _: {b"nfs4"})
    else:
        add = freshness.SessionsWatch._watch

        def refuse(self: freshness.SessionsWatch, folder: bytes) -> None:
            if folder.endswith(b"s03"):
                raise PermissionError(errno.EACCES, "no")
            add(self, folder)

        monkeypatch.setattr(freshness.SessionsWatch, "_watch", refuse)
    with Store.open(home, background=False) as store:
        warden = FreshnessServer(store.trigrams, start_s=0)
        time.sleep(0.5)
        assert asked(home) is None
        assert in_process(home, ["needle"])[0] == gnu(home, ["needle"])
        warden.stop()


def test_an_open_store_vouches_by_itself(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a moment, and not a moment after it was closed."""
    monkeypatch.setattr("store.home.opening.START_S", 0.0)
    with Store.open(home) as store:
        store.save(make_session("a"))
        wait_vouched(home)
    assert asked(home) is None
