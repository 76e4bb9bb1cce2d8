"""Appending to a long session: where files can share blocks, only its end is read and written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from store import Message, Store
from store.sessions.append import SHARED_BYTES
from tests.builders import make_session

LONG_BYTES = 10 << 20


def save_long(store: Store, size_bytes: int = LONG_BYTES) -> Path:
    session = make_session("s1")
    session.add_message(Message.user("x" * size_bytes))
    store.save(session)
    return store.home / "sessions/s1/session.json"


def append(store: Store, *texts: str) -> None:
    for text in texts:
        store.append("s1", [Message.user(text)])


def last_texts(store: Store, count: int) -> list[str]:
    session = store.load("s1")
    assert session is not None
    return [message.content for message in session.messages[-count:]]


@pytest.fixture
def sharing(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store that works as if its filesystem could share blocks; here the kept bytes are copied."""
    monkeypatch.setitem(vars(store._core.disk), "can_share_blocks", True)
    return store


@pytest.mark.parametrize("size_bytes", [SHARED_BYTES - 5000, SHARED_BYTES, SHARED_BYTES + 5000, 2 * SHARED_BYTES + 1])
def test_the_text_is_the_same_as_when_it_is_written_whole(sharing: Store, size_bytes: int) -> None:
    """Byte for byte, and so is every version in the history."""
    path = save_long(sharing, size_bytes)
    texts = [path.read_bytes()]
    for text in ("first", "second", "x" * 5000):
        append(sharing, text)
        texts.append(path.read_bytes())
        assert path.read_bytes().startswith(texts[-2][: size_bytes - 5000])
    assert last_texts(sharing, 3) == ["first", "second", "x" * 5000]
    versions = reversed(sharing.history.log("s1", limit=10))
    assert [sharing.history.read(version).main for version in versions] == texts
    assert len(list(sharing.search("second"))) == 1


def test_only_the_end_of_a_long_text_is_read(sharing: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that shares blocks has no pages in the cache yet."""
    save_long(sharing)
    append(sharing, "first")
    read: list[int] = []
    disk = sharing._core.disk
    original = disk.read

    def count(*args: object, **kwargs: object) -> object:
        file = original(*args, **kwargs)  # type: ignore[arg-type]
        read.append(len(file.data) if file is not None else 0)
        return file

    monkeypatch.setattr(disk, "read", count)
    append(sharing, "second")
    assert read
    assert max(read) < 1 << 16


def test_a_text_changed_in_place_meanwhile_is_not_mixed(sharing: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stamp is compared after its blocks were taken; then the append starts again from the new text."""
    path = save_long(sharing)
    append(sharing, "first")
    disk = sharing._core.disk
    original = disk._keep_head

    def edit_then_keep(*args: object) -> None:
        monkeypatch.setattr(disk, "_keep_head", original)
        with path.open("r+b") as file:
            file.seek(100_000)
            file.write(b"EDIT")
            os.fsync(file.fileno())
        original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(disk, "_keep_head", edit_then_keep)
    append(sharing, "second")
    assert b"EDIT" in path.read_bytes()
    assert last_texts(sharing, 2) == ["first", "second"]


@pytest.fixture
def xfs(tmp_path: Path) -> Iterator[Path]:
    """A filesystem whose files can share blocks."""
    image, path = tmp_path / "image", tmp_path / "xfs"
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(400 << 20)
    subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", image], check=True, capture_output=True)
    subprocess.run(["mount", "-o", "loop", image, path], check=True, capture_output=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def free_bytes(path: Path) -> int:
    subprocess.run(["sync", "-f", path], check=True)
    found = os.statvfs(path)
    return found.f_bfree * found.f_frsize


def test_an_append_on_xfs_writes_only_the_end(xfs: Path) -> None:
    """A copy keeps the old blocks in use, so all that is used in addition is new: far less than the 10 MB."""
    with Store.open(xfs / "home", background=False) as store:
        path = save_long(store)
        append(store, "first")
        subprocess.run(["cp", "--reflink=always", path, xfs / "old"], check=True)
        before = free_bytes(xfs)
        append(store, "second")
        assert before - free_bytes(xfs) < LONG_BYTES // 4
        assert last_texts(store, 2) == ["first", "second"]
        assert store.check().is_clean
