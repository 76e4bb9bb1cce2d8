"""search/ on a real mount: with ls, cat and find, and during concurrent writes."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from store import Message
from tests.builders import make_session
from tests.mount.conftest import Mount, wait_until


def sh(command: str, cwd: Path) -> str:
    return subprocess.run(["bash", "-c", command], cwd=cwd, capture_output=True, text=True, timeout=60).stdout


def test_query_directory_lists_resolving_links(mounted: Mount) -> None:
    """ls lists the best match first, every link resolves, and the page has the size reported by stat."""
    assert os.listdir(mounted.path / "search") == []
    assert "search" in os.listdir(mounted.path)
    folder = mounted.path / "search/msg"
    names = sh("ls search/msg", mounted.path).split()
    assert [name[:3] for name in names] == ["01-", "02-", "res"]
    assert {name.rpartition("~")[2] for name in names[:-1]} == {"root", "pinned"}
    assert {os.path.realpath(folder / name) for name in names[:-1]} == {
        str(mounted.sessions / "root"),
        str(mounted.sessions / "pinned"),
    }
    assert (folder / names[0] / "session.json").read_bytes()
    page = (folder / "results.md").read_bytes()
    assert (folder / "results.md").stat().st_size == len(page)
    assert b"[msg]-0" in page
    assert sh("cd search/'from the child' && cat 01-*/session.json | head -c1", mounted.path) == "{"


def test_walks_through_the_mount_terminate(mounted: Mount) -> None:
    """Previous queries are not listed: find and rsync see an empty directory."""
    sh("ls search/msg search/child", mounted.path)
    assert sh("find search", mounted.path).split() == ["search"]


def test_repeated_query_shows_changes(mounted: Mount) -> None:
    """Changes through the mount and by another process are visible at once."""
    page = mounted.path / "search/novelty/results.md"
    assert "No matches" in page.read_text()
    with mounted.store() as store:
        store.append("root", [Message.user("a novelty by another")])
        assert "a [novelty] by another" in page.read_text()
    document = mounted.sessions / "root/session.json"
    document.write_bytes(document.read_bytes().replace(b"novelty by another", b"novelty through the mount"))
    assert "a [novelty] through the mount" in page.read_text()
    assert len(os.listdir(page.parent)) == 2


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (".hidden", errno.ENOENT),
        ("x" * 300, errno.ENAMETOOLONG),
        ("***", errno.EINVAL),
        ("msg/03-nobody", errno.ENOENT),
    ],
)
def test_invalid_queries_fail_clearly(mounted: Mount, name: str, number: int) -> None:
    """The mount stays usable."""
    with pytest.raises(OSError, match=os.strerror(number)) as refused:
        os.stat(mounted.path / "search" / name)
    assert refused.value.errno == number
    assert os.listdir(mounted.path / "search/msg")


@pytest.mark.parametrize(
    "change", ["mkdir search/new", "rm search/msg/results.md", "echo x > search/msg/results.md", "rmdir search/msg"]
)
def test_search_is_read_only(mounted: Mount, change: str) -> None:
    """It is virtual: every change fails with EROFS."""
    result = subprocess.run(["bash", "-c", change], cwd=mounted.path, capture_output=True, text=True, timeout=60)
    assert result.returncode != 0
    assert "Read-only" in result.stderr or "Permission denied" in result.stderr or "exists" in result.stderr


def test_slow_query_does_not_delay_others(mounted: Mount) -> None:
    """Searches run in a thread; reads are served meanwhile."""
    with mounted.store() as store:
        for i in range(40):
            store.save(make_session(f"s{i}", messages=0, title=" ".join(f"word{k}{i}" for k in range(200))))
    stop = threading.Event()
    errors: list[OSError] = []

    def search(number: int) -> None:
        while not stop.is_set():
            try:
                (mounted.path / f"search/wo* {number} OR wor* OR word*/results.md").read_bytes()
            except OSError as error:
                errors.append(error)

    searchers = [threading.Thread(target=search, args=(n,)) for n in range(4)]
    for thread in searchers:
        thread.start()
    deadline = time.monotonic() + 20
    for _ in range(20):
        assert (mounted.sessions / "root/session.json").read_bytes()
        assert time.monotonic() < deadline
    stop.set()
    for thread in searchers:
        thread.join(30)
    assert not errors


def test_b8_names_that_were_looked_up_are_released(mounted: Mount) -> None:
    """There is no end of names that exist when they are named: the daemon keeps the newest."""
    stats = mounted.path / ".grovefs/stats.json"
    for number in range(2_000):
        (mounted.path / f"search/word{number}").stat()
    wait_until(lambda: json.loads(stats.read_bytes())["nodes"] < 1_000, 60.0)
    assert (mounted.path / "search/msg").is_dir()


def test_b8_a_directory_in_use_stays(mounted: Mount) -> None:
    """A program in a query's directory can continue, although many others were looked up since."""
    folder = os.open(mounted.path / "search/msg", os.O_RDONLY | os.O_DIRECTORY)
    try:
        before = sorted(os.listdir(folder))
        for number in range(1_000):
            (mounted.path / f"search/word{number}").stat()
        assert sorted(os.listdir(folder)) == before
        assert os.stat("results.md", dir_fd=folder).st_size
        assert sorted(os.listdir(mounted.path / "search/msg")) == before
    finally:
        os.close(folder)
