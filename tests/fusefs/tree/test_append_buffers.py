"""Append buffers, without handlers: what they show, and what each commit adds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusefs.tree.append_buffers import AppendBuffer
from store import Store
from store.path_kinds import classify_path
from tests.builders import make_session

PATH = "sessions/s/attachments/log"


@pytest.fixture
def buffer(store: Store) -> Iterator[AppendBuffer]:
    """A buffer for a file that contains "old "."""
    store.save(make_session("s"))
    place = classify_path(PATH)
    store.names.create_empty(place, 0o600)
    (store.home / PATH).write_bytes(b"old ")
    made = AppendBuffer(store, place, store.names.version(place), store.names.stat(PATH))
    made.pin()
    yield made
    made.discard()


def commit(store: Store, buffer: AppendBuffer) -> bytes:
    request = buffer.begin_commit("reject")
    buffer.committed(request, store.names.commit(request))
    return (store.home / PATH).read_bytes()


def test_commits_add_to_what_is_there(store: Store, buffer: AppendBuffer) -> None:
    buffer.append(b"one ")
    with (store.home / PATH).open("ab") as file:
        file.write(b"others ")
    assert (buffer.read(0, 100), buffer.size) == (b"old one ", 8)
    assert commit(store, buffer) == b"old others one "
    assert not buffer.is_dirty
    assert (buffer.read(0, 100), buffer.size) == (b"old others one ", 15)
    buffer.append(b"two")
    assert commit(store, buffer) == b"old others one two"


def test_bytes_written_during_a_commit_are_for_the_next(store: Store, buffer: AppendBuffer) -> None:
    buffer.append(b"one ")
    request = buffer.begin_commit("reject")
    buffer.append(b"two")
    buffer.committed(request, store.names.commit(request))
    assert (store.home / PATH).read_bytes() == b"old one "
    assert buffer.is_dirty
    assert buffer.read(0, 100) == b"old one two"
    assert commit(store, buffer) == b"old one two"


def test_a_failed_commit_is_repeated_whole(store: Store, buffer: AppendBuffer) -> None:
    buffer.append(b"one ")
    buffer.begin_commit("reject")
    buffer.append(b"two")
    buffer.failed(OSError())
    assert commit(store, buffer) == b"old one two"


def test_truncation_replaces_the_file(store: Store, buffer: AppendBuffer) -> None:
    buffer.append(b"one ")
    buffer.truncate(6)
    assert (buffer.read(0, 100), buffer.size) == (b"old on", 6)
    buffer.append(b"!")
    assert commit(store, buffer) == b"old on!"


def test_file_with_another_hard_link_is_copied(store: Store, buffer: AppendBuffer) -> None:
    """A link in the trash or in a backup does not change."""
    kept = store.home / "kept"
    kept.hardlink_to(store.home / PATH)
    buffer.append(b"new")
    assert commit(store, buffer) == b"old new"
    assert kept.read_bytes() == b"old "
    kept.unlink()


@given(parts=st.lists(st.binary(max_size=5), max_size=6), offset=st.integers(0, 40), size=st.integers(0, 40))
def test_reads_join_the_version_and_the_new_bytes(parts: list[bytes], offset: int, size: int) -> None:
    """At any offset, before and after commits."""
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as home, Store.open(home, background=False, durability="normal") as store:
        store.save(make_session("s"))
        place = classify_path(PATH)
        store.names.create_empty(place, 0o600)
        buffer = AppendBuffer(store, place, store.names.version(place), store.names.stat(PATH))
        buffer.pin()
        expected = b""
        for number, part in enumerate(parts):
            buffer.append(part)
            expected += part
            if number % 2:
                assert commit(store, buffer) == expected
            assert buffer.read(offset, size) == expected[offset : offset + size]
            assert buffer.size == len(expected)
        buffer.discard()
        assert os.listdir(store.home / ".grovefs/tmp") == []
