"""Freshness server: no change made before a request is missed, and it serves only if everything is watched."""

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


def ask_token(home: Path) -> str | None:
    before = Path.cwd()
    os.chdir(home)
    try:
        return known_files.ask_freshness(b"")
    finally:
        os.chdir(before)


def wait_served(home: Path) -> str:
    """The token, once a freshness server answers."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        token = ask_token(home)
        if token is not None:
            return token
        time.sleep(0.02)
    raise AssertionError("no freshness server")


@pytest.fixture
def served(home: Path) -> Iterator[Store]:
    """A home with thirty indexed sessions and a freshness server."""
    make_home(home)
    settle()
    with Store.open(home, background=False) as store:
        store.trigrams.rebuild()
        server = FreshnessServer(store.trigrams, start_s=0)
        wait_served(home)
        yield store
        server.stop()


def agree(home: Path, pattern: str, most: int) -> None:
    """The same result as grep, from at most `most` files."""
    assert ask_token(home) is not None
    found, files = in_process(home, [pattern])
    assert found == gnu(home, [pattern])
    assert files is not None
    assert len(files) <= most


def test_no_earlier_change_is_missed(served: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edited in place, appended, replaced by rename, created, moved, deleted: found without comparing stamps."""
    monkeypatch.setattr(known_files.KnownFiles, "differing", lambda _: pytest.fail("every file was compared"))
    home = served.home
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
    served.save(make_session("made", title="zyzzyva, saved"))
    agree(home, "zyzzyva", 6)
    served.rename("made", "renamed")
    agree(home, "zyzzyva", 10)
    served.delete("renamed")
    agree(home, "zyzzyva", 4)


def test_merge_while_served(served: Store) -> None:
    """Indexed files leave the list; a later change lists them again."""
    home = served.home
    (home / "sessions/s08/new.txt").write_text("zyzzyva")
    agree(home, "zyzzyva", 1)
    settle()
    served.trigrams.merge()
    assert "sessions/s08/new.txt" not in listed(served)
    agree(home, "zyzzyva", 1)
    agree(home, "absent words", 0)
    (home / "sessions/s08/new.txt").write_text("zyzzyva absent words")
    agree(home, "absent words", 1)


def test_overflow_compares_everything_again(served: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the inotify queue overflowed, the server does not answer until all files have been compared."""
    monkeypatch.setattr(freshness, "DRAIN_S", 600.0)
    home = served.home
    token = ask_token(home)
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for i in range(
        limit // 4 + 500
    ):  # create, modify, close, delete; alternating names, because inotify merges equal events
        path = home / f"sessions/s0{i % 2}/n{i % 2}"
        path.write_text("x")
        path.unlink()
    (home / "sessions/s05/last").write_text("zyzzyva")
    found, _ = in_process(home, ["zyzzyva"])
    assert found == gnu(home, ["zyzzyva"])
    assert wait_served(home) != token
    agree(home, "zyzzyva", 1)


def test_stopped_or_killed_server_does_not_answer(home: Path) -> None:
    """Grep does not wait long for a stopped process. After kill -9 another process takes over."""
    make_home(home)
    program = (
        "import sys, time; from store import Store; from store.search.grep.freshness import FreshnessServer\n"
        "store = Store.open(sys.argv[1], background=False)\n"
        "server = FreshnessServer(store.trigrams, 0); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(home)], cwd=ROOT)
    try:
        wait_served(home)
        process.send_signal(signal.SIGSTOP)
        (home / "sessions/s08/new.txt").write_text("zyzzyva")
        assert in_process(home, ["zyzzyva"])[0] == gnu(home, ["zyzzyva"])
        assert ask_token(home) is None
    finally:
        process.kill()
        process.wait()
    assert ask_token(home) is None
    with Store.open(home, background=False) as store:
        server = FreshnessServer(store.trigrams, start_s=0)
        wait_served(home)
        (home / "sessions/s08/new.txt").write_text("zyzzyva, again")
        assert in_process(home, ["again"])[0] == gnu(home, ["again"])
        server.stop()
    assert ask_token(home) is None
    assert not (home / os.fsdecode(known_files.FRESHNESS_SOCKET)).exists()


def test_only_one_process_serves(served: Store) -> None:
    """A second server waits."""
    token = ask_token(served.home)
    second = FreshnessServer(served.trigrams, start_s=0)
    time.sleep(0.3)
    assert ask_token(served.home) == token
    second._stopping.set()
    for thread in second._threads:
        thread.join()
    served.trigrams._stopping = False


def test_token_of_another_index_is_ignored(served: Store) -> None:
    """index.db was rebuilt while the server watches for the old one: grep compares every file."""
    served._core.db.set_meta(grep_token="another")
    (served.home / "sessions/s08/new.txt").write_text("zyzzyva")
    assert in_process(served.home, ["zyzzyva"])[0] == gnu(served.home, ["zyzzyva"])


@pytest.mark.parametrize("why", ["watches", "filesystem", "unreadable"])
def test_incomplete_watch_does_not_serve(home: Path, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few watches, a network filesystem, an unreadable directory."""
    make_home(home)
    if why == "watches":
        monkeypatch.setattr(freshness, "_MAX_SHARE", 1e-6)
    elif why == "filesystem":
        monkeypatch.setattr(freshness, "filesystems_of", lambda _: {b"nfs4"})
    else:
        add = freshness.SessionsWatch._watch

        def fail(self: freshness.SessionsWatch, folder: bytes) -> None:
            if folder.endswith(b"s03"):
                raise PermissionError(errno.EACCES, "no")
            add(self, folder)

        monkeypatch.setattr(freshness.SessionsWatch, "_watch", fail)
    with Store.open(home, background=False) as store:
        server = FreshnessServer(store.trigrams, start_s=0)
        time.sleep(0.5)
        assert ask_token(home) is None
        assert in_process(home, ["needle"])[0] == gnu(home, ["needle"])
        server.stop()


def test_open_store_serves(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortly after opening, and not after closing."""
    monkeypatch.setattr("store.search.grep.freshness.START_S", 0.0)
    with Store.open(home) as store:
        store.save(make_session("a"))
        wait_served(home)
    assert ask_token(home) is None
