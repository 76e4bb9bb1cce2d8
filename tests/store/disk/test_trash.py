"""The trash: deleted files are kept and can be restored."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from store import Session, Store
from store.commit.write_request import WriteRequest
from store.disk.trash import HIDDEN_DELETED
from store.path_kinds import classify_path
from store.sessions.deletions import group_deletions
from tests.builders import make_session


def test_attachments_and_logs_can_be_restored(store: Store) -> None:
    store.save(make_session("s1", title="One"))
    attached = store.attach("s1", b"\x89PNG image", "image/png")
    store.usage.append("s1", {"input_tokens": 1})
    image = classify_path(f"sessions/s1/attachments/{attached.id}.png")
    log = classify_path("sessions/s1/token-usage.jsonl")
    for place in (image, log):
        store.names.remove_file(place)
        assert not (store.home / place.path).exists()
    assert store.attachments.read("s1", attached.id) is None
    (deletion,) = group_deletions(store.trash.deleted())
    assert (deletion.paths, deletion.last.title) == ([log.path, image.path], "One")
    for part in deletion.slots:
        store.trash.undelete(part.name)
    assert store.attachments.read("s1", attached.id) == (b"\x89PNG image", "image/png")
    entry = store.entry("s1")
    assert entry is not None
    assert entry.has_attachments
    assert (store.home / log.path).read_bytes() == b'{"input_tokens":1}\n'
    assert store.trash.deleted() == []


def test_temp_files_of_editors_are_not_kept(store: Store) -> None:
    """A backup is kept: it is the last copy of the old text. The name of the session does not select it."""
    store.save(make_session("s1"))
    for name in (".draw.png.swp", "draw.png~", "4913"):
        place = classify_path(f"sessions/s1/attachments/{name}")
        store.names.commit(WriteRequest(place, b"" if name == "4913" else b"x"))
        store.names.remove_file(place)
    (slot,) = store.trash.deleted()
    assert (slot.what, slot.moves[0][0]) == (HIDDEN_DELETED, "sessions/s1/attachments/draw.png~")


@pytest.mark.parametrize("name", ["attachments/big.bin", "token-usage.jsonl"])
def test_file_is_deleted_at_once_on_a_full_disk(home: Path, name: str) -> None:
    """The user wants to free space, so a trash that cannot be written must not prevent it."""
    is_full = False

    def step(what: str) -> None:
        if is_full and what == "write-temp":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Store.open(home, background=False, step=step) as store:
        store.save(make_session("s1"))
        place = classify_path(f"sessions/s1/{name}")
        (home / place.path).write_bytes(b"much")
        is_full = True
        store.names.remove_file(place)
        is_full = False
        assert not (home / place.path).exists()
        assert store.trash.deleted() == []
        assert not list((home / ".grovefs/trash").iterdir())
        assert store.check().is_clean


def test_trash_can_be_emptied(store: Store) -> None:
    root = make_session("s1")
    store.save(root)
    store.save(Session.new_child_of("kid", root, "m", "A child"))
    store.state.save_json("facts", "f", 1)
    store.state.delete("facts", "f")
    store.delete("s1")
    assert store.trash.empty() == 2
    assert store.trash.deleted() == []
    assert not list((store.home / ".grovefs/trash").iterdir())


def test_attachment_with_a_non_utf8_name_can_be_restored(store: Store) -> None:
    store.save(make_session("s1"))
    store.attach("s1", b"image", "image/png")
    path = f"sessions/s1/attachments/{os.fsdecode(bytes([0xFF, 0xFE]))}.bin"
    (store.home / path).write_bytes(b"odd")
    store.names.remove_file(classify_path(path))
    assert not (store.home / path).exists()
    (deletion,) = group_deletions(store.trash.deleted())
    assert deletion.paths == [path]
    store.trash.undelete(deletion.last.name)
    assert (store.home / path).read_bytes() == b"odd"
