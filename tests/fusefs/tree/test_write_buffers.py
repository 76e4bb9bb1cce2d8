"""Write buffers, without handlers: copies, failures and dirty state."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from fusefs.tree import write_buffers
from fusefs.tree.write_buffers import WriteBuffer
from store import Store
from store.commit.write_request import UnfinishedCommit
from store.path_kinds import classify_path
from tests.builders import make_session

DOCUMENT = "sessions/s/session.json"
IMAGE = "sessions/s/attachments/image.png"


@pytest.fixture
def buffer(store: Store) -> Iterator[WriteBuffer]:
    store.save(make_session("s"))
    path_info = classify_path(DOCUMENT)
    made = WriteBuffer(store, path_info, store.names.version(path_info), store.names.stat(DOCUMENT))
    yield made
    made.in_commit = None
    made.discard()


def new_attachment(store: Store) -> WriteBuffer:
    return WriteBuffer(store, classify_path(IMAGE), None, None)


def committed_bytes(store: Store) -> bytes:
    return (store.home / DOCUMENT).read_bytes()


def full(*_arguments: object) -> None:
    raise OSError(errno.ENOSPC, "disk full")


def test_reads_come_from_the_opened_version_until_the_first_write(store: Store, buffer: WriteBuffer) -> None:
    """Also after the file was replaced."""
    before = committed_bytes(store)
    assert buffer.read(0, 10) == before[:10]
    store.save(make_session("s", title="Other"), overwrite=True)
    assert committed_bytes(store) != before
    assert buffer.read(0, 1 << 20) == before


def test_first_write_copies_the_committed_bytes(store: Store, buffer: WriteBuffer) -> None:
    before = committed_bytes(store)
    buffer.write(2, b"xx")
    assert buffer.read(0, 1 << 20) == before[:2] + b"xx" + before[4:]
    assert buffer.size == len(before)
    assert committed_bytes(store) == before


def test_truncated_buffer_is_not_dirty(buffer: WriteBuffer) -> None:
    """A shell truncates, and closes one descriptor before it writes."""
    buffer.truncate(0)
    assert not buffer.is_dirty
    buffer.append(b"data")
    assert buffer.is_dirty
    assert buffer.read(0, 10) == b"data"


def test_document_is_never_committed_empty(buffer: WriteBuffer) -> None:
    buffer.truncate(0)
    buffer.commit_if_empty()
    assert not buffer.is_dirty


def test_new_attachment_may_be_empty_at_once(store: Store) -> None:
    buffer = new_attachment(store)
    assert buffer.read(0, 10) == b""
    assert buffer.size == 0
    buffer.truncate(0)
    buffer.commit_if_empty()
    assert buffer.is_dirty
    buffer.discard()


def test_detached_buffer_is_never_dirty(buffer: WriteBuffer) -> None:
    buffer.write(0, b"x")
    buffer.is_detached = True
    assert not buffer.is_dirty


def test_write_after_begin_commit_goes_to_a_copy(buffer: WriteBuffer) -> None:
    buffer.truncate(0)
    buffer.write(0, b"first")
    request = buffer.begin_commit("reject")
    buffer.write(0, b"SECOND")
    assert request.content == buffer.in_commit
    assert buffer.in_commit is not None
    assert os.pread(buffer.in_commit.fd, 100, 0) == b"first"
    assert buffer.read(0, 100) == b"SECOND"
    buffer.rejected()
    assert buffer.read(0, 100) == b"SECOND"


def test_rejected_buffer_is_the_same_file(buffer: WriteBuffer) -> None:
    buffer.write(0, b"x")
    buffer.begin_commit("reject")
    temp = buffer.temp
    buffer.rejected()
    assert buffer.temp == temp
    assert buffer.in_commit is None
    assert buffer.is_dirty


def test_failed_commit_without_room_for_a_copy_blocks_later_commits(
    buffer: WriteBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes are lost, so the next commit must fail instead of committing a part."""
    buffer.write(0, b"x")
    buffer.begin_commit("reject")
    with monkeypatch.context() as patched:
        patched.setattr(write_buffers, "copy_file", full)
        buffer.failed(UnfinishedCommit(errno.EIO, "half done"))
    assert buffer.temp is None
    with pytest.raises(OSError, match="disk full"):
        buffer.begin_commit("reject")


def test_failed_write_blocks_commits_until_truncation_to_zero(
    buffer: WriteBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer.write(0, b"x")

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "disk full")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", fail)
        with pytest.raises(OSError, match="disk full"):
            buffer.write(0, b"y")
    buffer.truncate(5)
    with pytest.raises(OSError, match="disk full"):
        buffer.begin_commit("reject")
    buffer.truncate(0)
    buffer.write(0, b"all")
    assert buffer.begin_commit("reject").content is not None
    buffer.rejected()


def test_mode_alone_is_committed_without_content(buffer: WriteBuffer) -> None:
    buffer.mode = 0o640
    assert buffer.is_dirty
    request = buffer.begin_commit("reject")
    assert (request.content, request.mode) == (None, 0o640)


def test_rejected_buffer_shows_the_committed_size_until_the_next_write(store: Store, buffer: WriteBuffer) -> None:
    size = len(committed_bytes(store))
    buffer.truncate(0)
    buffer.write(0, b"bad")
    buffer.show_committed()
    assert buffer.size == size
    buffer.write(3, b"!")
    assert buffer.size == 4


def test_rejected_buffer_keeps_its_size_if_another_version_was_committed(store: Store, buffer: WriteBuffer) -> None:
    """Emacs must then ask the user."""
    buffer.truncate(0)
    buffer.write(0, b"bad")
    session = store.load("s")
    assert session is not None
    session.title = "Other"
    store.save(session)
    buffer.show_committed()
    assert buffer.size == 3


def test_discard_removes_the_buffers_file(store: Store) -> None:
    buffer = new_attachment(store)
    buffer.write(0, b"data")
    assert buffer.temp is not None
    path = store.home / buffer.temp.path
    assert path.exists()
    buffer.discard()
    assert not path.exists()
