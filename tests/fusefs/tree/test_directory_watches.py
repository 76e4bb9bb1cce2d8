"""Inotify watches of directories: events, limits and removed directories."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusefs.tree import directory_watches
from fusefs.tree.directory_watches import DirectoryWatches, Event
from fusefs.tree.nodes import Node


@pytest.fixture
def watches(tmp_path: Path) -> Iterator[DirectoryWatches]:
    opened = DirectoryWatches(tmp_path)
    yield opened
    opened.close()


def directory(home: Path, name: str, inode: int = 7) -> Node:
    (home / name).mkdir(exist_ok=True)
    return Node(inode, None, name, name, None)


def test_created_name_is_reported_once(watches: DirectoryWatches, tmp_path: Path) -> None:
    """Creating a file makes several events: one is kept for the name and one for the bytes."""
    node = directory(tmp_path, "d")
    assert watches.add(node)
    assert watches.add(node), "watched already"
    (tmp_path / "d/file").write_bytes(b"data")
    assert watches.read() == [Event(node, "file", True), Event(node, "file", False)]
    assert watches.read() == []


def test_dropped_directory_reports_nothing(watches: DirectoryWatches, tmp_path: Path) -> None:
    node = directory(tmp_path, "d")
    watches.add(node)
    watches.drop(node)
    assert not node.is_watched
    (tmp_path / "d/file").write_bytes(b"data")
    assert watches.read() == []
    watches.drop(node)


def test_removed_directory_is_reported_and_no_longer_watched(watches: DirectoryWatches, tmp_path: Path) -> None:
    node = directory(tmp_path, "d")
    unwatched: list[Node] = []
    watches.unwatched = unwatched.append  # type: ignore[method-assign, assignment]
    watches.add(node)
    os.rmdir(tmp_path / "d")
    assert Event(node, "", True, is_gone=True) in watches.read()
    assert not node.is_watched
    assert unwatched == [node]


def test_another_node_takes_over_the_watch_of_its_directory(watches: DirectoryWatches, tmp_path: Path) -> None:
    """inotify has one watch per inode: the old node must not claim to be watched."""
    old, new = directory(tmp_path, "d"), directory(tmp_path, "d", 8)
    assert watches.add(old)
    assert watches.add(new)
    assert (old.is_watched, new.is_watched) == (False, True)


def test_absent_directory_is_not_watched(watches: DirectoryWatches) -> None:
    assert not watches.add(Node(7, None, "absent", "absent", None))


def test_limit_of_the_system_is_respected(
    watches: DirectoryWatches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After ENOSPC no further watch is tried: each attempt would cost a system call per lookup."""
    one, two = directory(tmp_path, "one"), directory(tmp_path, "two", 8)
    assert watches.add(one)
    attempts = []

    def fail(path: bytes, _mask: int) -> int:
        attempts.append(path)
        raise OSError(errno.ENOSPC, "no more watches")

    monkeypatch.setattr(watches._inotify, "add_watch", fail)
    assert not watches.add(two)
    assert not watches.add(two)
    assert len(attempts) == 1


def test_half_of_the_users_watches_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a readable limit nothing is watched, and caches are short."""
    limit = tmp_path / "max_user_watches"
    monkeypatch.setattr(directory_watches, "_LIMIT_FILE", limit)
    assert directory_watches._watch_limit() == 0
    limit.write_text("1001\n")
    assert directory_watches._watch_limit() == 500
