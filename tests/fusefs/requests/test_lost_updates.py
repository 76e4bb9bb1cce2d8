"""What one writer accepted by the mount must not undo of another (rule 8), in sequences that once did."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyfuse3
import pytest
import trio

from fusefs.requests import callers
from fusefs.tree.processes import Process
from store import Message, Store
from store.commit.write_request import WriteRequest
from store.disk.rejects import Rejects
from store.path_kinds import classify_path
from tests.builders import make_session
from tests.fusefs.requests.harness import READER, WRITER, FakeKernel, HandlerMount, caller, fails_with, in_trio

DOCUMENT = "sessions/root/session.json"
SIDECAR = "sessions/root/runtime.json"
DRAFT = "sessions/root/draft"
RECORD = "sessions/root/verification.json"
STATE = "state/memory/x.json"
STATE_DRAFT = "state/memory/draft.tmp"
LATER_S = 0.1  # file times are some milliseconds behind


@pytest.fixture(autouse=True)
def known_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two callers are processes of one terminal."""

    def read(thread: int, uid: int) -> Process:
        return Process(thread, 1, f"p{thread}", uid, session_id=1, parent=2) if thread else Process(uid=uid)

    monkeypatch.setattr(callers, "read_process", read)


def on_disk(mount: HandlerMount, path: str = DOCUMENT) -> bytes:
    return (mount.store.home / path).read_bytes()


async def retitle_sidecar(mount: HandlerMount) -> None:
    """An agent changes the title in runtime.json alone; session.json stays as it is."""
    await trio.sleep(LATER_S)
    agent = mount.store.load_runtime("root")
    assert agent is not None
    agent.title = "Theirs"
    mount.store.save_runtime(agent)
    await trio.sleep(LATER_S)


def change_outside_the_mount(mount: HandlerMount, old: bytes, new: bytes, path: str = DOCUMENT) -> None:
    mount.store.names.commit(WriteRequest(classify_path(path), on_disk(mount, path).replace(old, new)))


def right_after_the_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let another writer take the session's lock as soon as it is released."""
    clear, done = Rejects.clear, list[bool]()

    def late_clear(self: Rejects, *arguments: Any) -> None:
        if not done:
            done.append(True)
            act()
        clear(self, *arguments)

    monkeypatch.setattr(Rejects, "clear", late_clear)


# -- a change of runtime.json alone ----------------------------------------------------------------


@in_trio
async def test_reading_again_before_a_save_does_not_count_as_having_seen_the_sidecar(mount: HandlerMount) -> None:
    """vim with backupcopy=yes reads session.json again to copy it as a backup."""
    text = await mount.content(DOCUMENT, WRITER)
    await retitle_sidecar(mount)
    assert await mount.content(DOCUMENT, WRITER) == text
    with fails_with(errno.ESTALE):
        await mount.save(DOCUMENT, text.replace(b"Before", b"Mine"))
    assert mount.title("root") == "Theirs"


@in_trio
async def test_nor_does_reading_a_newer_session_json(mount: HandlerMount) -> None:
    text = await mount.content(DOCUMENT, WRITER)
    mount.store.append("root", [Message.user("agent")])
    await retitle_sidecar(mount)
    await mount.content(DOCUMENT, WRITER)
    with fails_with(errno.ESTALE):
        await mount.save(DOCUMENT, text.replace(b"Before", b"Mine"))
    assert mount.title("root") == "Theirs"


@pytest.mark.parametrize("by_rename", [False, True])
@in_trio
async def test_after_a_refusal_what_is_read_again_can_be_saved(mount: HandlerMount, by_rename: bool) -> None:
    """The reason names both titles. Without reading again it stays refused."""

    async def save() -> None:
        if by_rename:
            await mount.add(DRAFT, text.replace(b"Before", b"Mine"))
            await mount.rename(DRAFT, DOCUMENT)
        else:
            await mount.save(DOCUMENT, text.replace(b"Before", b"Mine"))

    text = await mount.content(DOCUMENT, WRITER)
    await retitle_sidecar(mount)
    for _ in range(2):
        with fails_with(errno.ESTALE):
            await save()
        assert mount.title("root") == "Theirs"
        if by_rename:
            await mount.unlink(DRAFT)
    await trio.sleep(LATER_S)
    await mount.content(DOCUMENT, WRITER)
    await save()
    assert mount.title("root") == "Mine"


@in_trio
async def test_a_sidecar_renamed_into_place_may_have_an_older_mtime(mount: HandlerMount) -> None:
    """`jq … runtime.json > t`; a person opens session.json; `mv t runtime.json`; the person saves."""
    side = json.loads(await mount.content(SIDECAR, READER)) | {"title": "Theirs"}
    opened, _ = await mount.operations.create(*await mount.split(DRAFT), 0o644, os.O_WRONLY, caller(READER))
    await mount.write(opened.fh, 0, json.dumps(side).encode())
    await mount.finish(opened.fh)
    await trio.sleep(LATER_S)
    text = await mount.content(DOCUMENT, WRITER)
    await trio.sleep(LATER_S)
    await mount.rename(DRAFT, SIDECAR, pid=READER)
    with fails_with(errno.ESTALE):
        await mount.save(DOCUMENT, text.replace(b"Before", b"Mine"))
    assert mount.title("root") == "Theirs"


@in_trio
async def test_a_mount_that_rejects_stale_saves_looks_at_the_sidecar_too(store: Store, kernel: FakeKernel) -> None:
    store.save(make_session("root", title="Before"))
    mount = HandlerMount(store, on_conflict="reject")
    try:
        text = await mount.content(DOCUMENT, WRITER)
        await retitle_sidecar(mount)
        with fails_with(errno.ESTALE):
            await mount.save(DOCUMENT, text.replace(b"Before", b"Mine"))
        assert mount.title("root") == "Theirs"
    finally:
        mount.close()


# -- a writer that comes right after a save ----------------------------------------------------------


@pytest.mark.parametrize("flags", [0, pyfuse3.RENAME_EXCHANGE])
@in_trio
async def test_a_change_right_after_a_save_by_rename_is_not_taken_for_that_save(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch, flags: int
) -> None:
    """The stamp of the save was looked up after the session's lock was released."""
    text = await mount.content(DOCUMENT, WRITER)
    await mount.add(DRAFT, text.replace(b"Before", b"First!"))
    right_after_the_commit(monkeypatch, lambda: change_outside_the_mount(mount, b"msg-0", b"rival"))
    await mount.rename(DRAFT, DOCUMENT, flags)
    assert b"rival" in on_disk(mount)
    with suppress(pyfuse3.FUSEError):
        await mount.save(DOCUMENT, text.replace(b"Before", b"Second"))
    assert b"rival" in on_disk(mount)


@in_trio
async def test_a_change_right_after_a_save_of_state_is_not_taken_for_that_save(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount.store.state.save_json("memory", "x", {"a": 1, "b": 1})
    await mount.content(STATE, WRITER)
    await mount.add(STATE_DRAFT, b'{"a": 2, "b": 1}')
    right_after_the_commit(monkeypatch, lambda: mount.store.state.save_json("memory", "x", {"a": 2, "b": 2}))
    await mount.rename(STATE_DRAFT, STATE)
    await mount.add(STATE_DRAFT, b'{"a": 3, "b": 1}')
    with suppress(pyfuse3.FUSEError):
        await mount.rename(STATE_DRAFT, STATE)
    assert json.loads(on_disk(mount, STATE))["b"] == 2


# -- opening is not reading ----------------------------------------------------------------------------


@pytest.mark.parametrize("access", [os.O_WRONLY, os.O_RDWR])
@in_trio
async def test_a_file_that_is_emptied_when_it_is_opened_was_not_read(mount: HandlerMount, access: int) -> None:
    """`open(path, "w+")` after another writer changed what the program has read before."""
    await mount.add(RECORD, b"[]")
    await mount.content(RECORD, WRITER)
    change_outside_the_mount(mount, b"[]", b"[ ]", RECORD)
    fh = await mount.open(RECORD, access | os.O_TRUNC)
    await mount.write(fh, 0, b"[  ]")
    with fails_with(errno.ESTALE):
        await mount.finish(fh)
    assert on_disk(mount, RECORD) == b"[ ]"


@in_trio
async def test_an_old_version_does_not_replace_what_came_after_the_unlink(mount: HandlerMount) -> None:
    """`rm session.json`, an agent appends, `cp backup session.json` within ten seconds."""
    backup = on_disk(mount)
    mount.store.append("root", [Message.user("one")])
    await mount.unlink(DOCUMENT)
    mount.store.append("root", [Message.user("in between")])
    fh = await mount.create(DOCUMENT)
    await mount.write(fh, 0, backup)
    with fails_with(errno.ESTALE):
        await mount.finish(fh)
    assert b"in between" in on_disk(mount)


@pytest.mark.parametrize(
    ("document", "draft", "text"), [(DOCUMENT, DRAFT, None), (STATE, STATE_DRAFT, b'{"a": 2, "b": 1}')]
)
@in_trio
async def test_writing_to_a_file_after_it_was_renamed_onto_a_document_fails(
    mount: HandlerMount, document: str, draft: str, text: bytes | None
) -> None:
    """The document has the bytes of that moment; close(2) must not report more as stored."""
    mount.store.state.save_json("memory", "x", {"a": 1, "b": 1})
    saved = text or on_disk(mount).replace(b"Before", b"First!")
    fh = await mount.create(draft)
    await mount.write(fh, 0, saved)
    await mount.rename(draft, document)
    with fails_with(errno.ESTALE):
        await mount.write(fh, 0, saved.replace(b"1", b"9"))
    with fails_with(errno.ESTALE):
        await mount.set(mount.files.handles.get(fh).node.inode, fh, st_size=0)
    await mount.finish(fh)
    assert on_disk(mount, document) == saved


@in_trio
async def test_writing_to_a_file_after_it_was_exchanged_with_a_document_fails(mount: HandlerMount) -> None:
    before = on_disk(mount)
    fh = await mount.create(DRAFT)
    await mount.write(fh, 0, before.replace(b"Before", b"First!"))
    await mount.rename(DRAFT, DOCUMENT, pyfuse3.RENAME_EXCHANGE)
    with fails_with(errno.ESTALE):
        await mount.write(fh, 0, before.replace(b"Before", b"Second"))
    await mount.finish(fh)
    assert (mount.title("root"), on_disk(mount, DRAFT)) == ("First!", before)
