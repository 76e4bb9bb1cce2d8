"""Open, write, commit, truncate and release, called without a mount."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from functools import partial

import pytest
import trio
import trio.testing

from fusefs.requests.errnos import errno_of
from fusefs.tree import write_buffers
from fusefs.tree.write_buffers import COPIED_AT_ONCE, WriteBuffer
from store import Store, layout
from store.commit.commit import Commit
from store.commit.journal import Journal
from store.commit.write_request import CommitResult, UnfinishedCommit, WriteRequest
from store.disk.file import Temp
from store.errors import Busy
from store.namespace.namespace import Namespace
from store.path_kinds import classify_path
from tests.fusefs.requests.harness import (
    READER,
    WRITER,
    FakeKernel,
    HandlerMount,
    caller,
    fails_with,
    in_trio,
    wait_until,
)

DOCUMENT = "sessions/root/session.json"
IMAGE = "sessions/root/attachments/image.png"
LOG = "sessions/root/trace.jsonl"
NOTE = "sessions/root/note.txt"
GENERATED = "transcripts/root.md"


def on_disk(mount: HandlerMount, path: str = DOCUMENT) -> bytes:
    return (mount.store.home / path).read_bytes()


def titled(mount: HandlerMount, title: str) -> bytes:
    """The document on disk with another title."""
    before = on_disk(mount)
    start = before.index(b'"title"')
    end = before.index(b",", start)
    return before[:start] + f'"title": "{title}"'.encode() + before[end:]


def commit_elsewhere(mount: HandlerMount, title: str) -> bytes:
    data = titled(mount, title)
    mount.store.names.commit(WriteRequest(classify_path(DOCUMENT), data))
    return data


# -- opening -----------------------------------------------------------------------------------------


@in_trio
async def test_first_open_for_writing_is_stale_and_the_retry_gets_a_private_node(mount: HandlerMount) -> None:
    """Writers never share a node with readers: the kernel would show readers the writer's size."""
    readers = await mount.inode(DOCUMENT)
    with fails_with(errno.ESTALE):
        await mount.open_inode(readers, os.O_WRONLY)
    private = await mount.inode(DOCUMENT)
    assert private != readers
    assert await mount.inode(DOCUMENT, READER) == readers
    fh = await mount.open_inode(private, os.O_WRONLY)
    assert await mount.inode(DOCUMENT) == readers, "the reservation is used up"
    await mount.release(fh)


@in_trio
async def test_fstat_of_a_private_node_has_the_readers_inode(mount: HandlerMount) -> None:
    """vim compares st_ino of the open file with that of the name."""
    readers = await mount.inode(DOCUMENT)
    fh = await mount.open(DOCUMENT, os.O_RDWR)
    private = mount.files.handles.get(fh).node
    assert private.inode != readers
    assert (await mount.operations.getattr(private.inode, caller(WRITER))).st_ino == readers
    await mount.release(fh)


@in_trio
async def test_retry_without_a_lookup_opens_the_private_node(mount: HandlerMount) -> None:
    """An open through /proc/self/fd sends no lookup."""
    readers = await mount.inode(DOCUMENT)
    with fails_with(errno.ESTALE):
        await mount.open_inode(readers, os.O_WRONLY)
    fh = await mount.open_inode(readers, os.O_WRONLY)
    assert mount.files.handles.get(fh).node.buffer is not None
    await mount.release(fh)


@in_trio
async def test_unclaimed_private_node_is_dropped(mount: HandlerMount, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that was killed after ESTALE must not leak a node."""
    monkeypatch.setattr("fusefs.tree.pending_opens.RETRY_S", 0.0)
    readers = await mount.inode(DOCUMENT)
    nodes = len(mount.tree.nodes)
    with fails_with(errno.ESTALE):
        await mount.open_inode(readers, os.O_WRONLY)
    assert len(mount.tree.nodes) == nodes + 1
    await mount.operations.expire_hidden()
    assert len(mount.tree.nodes) == nodes


@in_trio
async def test_open_reader_keeps_its_version(mount: HandlerMount) -> None:
    """Rule 4: one version from open to close. A new open gets the new version at once."""
    before, after = on_disk(mount), titled(mount, "After")
    fh = await mount.open(DOCUMENT, pid=READER)
    await mount.save(DOCUMENT, after)
    assert await mount.read(fh, 0, 1 << 20) == before
    await mount.release(fh)
    assert await mount.content(DOCUMENT) == after


@in_trio
async def test_reader_of_a_replaced_version_gets_the_version_of_its_retry(mount: HandlerMount) -> None:
    """The kernel retries once. The retry's lookup pins its version, so a further commit does no harm."""
    inode = await mount.inode(DOCUMENT, READER)
    second = commit_elsewhere(mount, "Second")
    with fails_with(errno.ESTALE):
        await mount.open_inode(inode, os.O_RDONLY, READER)
    retried = await mount.inode(DOCUMENT, READER)
    commit_elsewhere(mount, "Third")
    fh = await mount.open_inode(retried, os.O_RDONLY, READER)
    assert await mount.read(fh, 0, 1 << 20) == second
    await mount.release(fh)


@in_trio
async def test_unused_pin_is_closed(mount: HandlerMount, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that was killed between lookup and open must not leak a descriptor."""
    monkeypatch.setattr("fusefs.tree.pending_opens.PINNED_S", 0.0)
    inode = await mount.inode(DOCUMENT, READER)
    commit_elsewhere(mount, "Second")
    with fails_with(errno.ESTALE):
        await mount.open_inode(inode, os.O_RDONLY, READER)
    descriptors = len(os.listdir("/proc/self/fd"))
    await mount.inode(DOCUMENT, READER)
    assert len(os.listdir("/proc/self/fd")) == descriptors + 1
    await mount.operations.expire_hidden()
    assert len(os.listdir("/proc/self/fd")) == descriptors


@in_trio
async def test_cached_pages_of_a_version_are_kept(mount: HandlerMount) -> None:
    """A version never changes. A writer's buffer does, so its pages bypass the cache."""
    opened = await mount.operations.open(await mount.inode(DOCUMENT), os.O_RDONLY, caller(READER))
    assert (opened.keep_cache, opened.direct_io) == (True, False)
    fh = await mount.open(DOCUMENT, os.O_WRONLY)
    private = mount.files.handles.get(fh).node.inode
    second = await mount.operations.open(private, os.O_RDONLY, caller(WRITER))
    assert (second.keep_cache, second.direct_io) == (False, True)
    for number in (opened.fh, fh, second.fh):
        await mount.release(number)


@in_trio
async def test_replaced_or_removed_plain_file_is_stale(mount: HandlerMount) -> None:
    """The kernel then looks the name up again, and creates the file if the caller asked for that."""
    await mount.add(NOTE, b"one")
    inode = await mount.inode(NOTE)
    path = mount.store.home / NOTE
    other = path.with_name("other")
    other.write_bytes(b"two")
    other.rename(path)
    with fails_with(errno.ESTALE):
        await mount.open_inode(inode, os.O_RDONLY)
    assert await mount.content(NOTE) == b"two"
    inode = await mount.inode(NOTE)
    path.unlink()
    with fails_with(errno.ESTALE):
        await mount.open_inode(inode, os.O_RDONLY)


@in_trio
async def test_generated_files_can_be_read_but_not_written(mount: HandlerMount) -> None:
    assert b"root" in await mount.content(GENERATED)
    inode = await mount.inode(GENERATED)
    with fails_with(errno.EROFS):
        await mount.open_inode(inode, os.O_WRONLY)
    fh = await mount.open(GENERATED)
    with fails_with(errno.EROFS):
        await mount.write(fh, 0, b"x")
    await mount.release(fh)


# -- committing --------------------------------------------------------------------------------------


@in_trio
async def test_close_commits_and_the_index_follows(mount: HandlerMount, store: Store, kernel: FakeKernel) -> None:
    """The kernel must forget the name: it has a new node now."""
    directory = await mount.inode("sessions/root")
    after = titled(mount, "After")
    await mount.inode(DOCUMENT, READER)
    await mount.save(DOCUMENT, after)
    assert on_disk(mount) == after
    assert mount.title("root") == "After"
    assert (directory, b"session.json") in kernel.entries


@in_trio
async def test_close_invalidates_a_name_that_the_change_follower_has_dropped(
    mount: HandlerMount, kernel: FakeKernel
) -> None:
    """Its own invalidation comes later: a stat right after close must not find the old version."""
    directory = await mount.inode("sessions/root")
    fh = await mount.open(DOCUMENT, os.O_WRONLY | os.O_TRUNC)
    await mount.write(fh, 0, titled(mount, "After"))
    node = mount.tree.nodes.get(directory)
    for name in layout.DOCUMENTS:
        if name in node.children:
            mount.tree.nodes.detach(node.children[name])
    await mount.flush(fh)
    assert {(directory, name.encode()) for name in layout.DOCUMENTS} <= set(kernel.entries)
    await mount.release(fh)


@in_trio
async def test_close_waits_until_the_kernel_has_dropped_the_listing(
    mount: HandlerMount, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not enough that another task has begun to send the notice."""
    begun, gate, ended = threading.Event(), threading.Event(), list[str]()

    def invalidate_inode(inode: int, attr_only: bool = False) -> None:
        if not attr_only:
            begun.set()
            assert gate.wait(20)
            ended.append("notice")

    directory = mount.tree.nodes.get(await mount.inode("sessions/root"))
    mount.operations.listings.will_read(directory)
    monkeypatch.setattr(kernel, "invalidate_inode", invalidate_inode)
    fh = await mount.open(DOCUMENT, os.O_WRONLY | os.O_TRUNC)
    await mount.write(fh, 0, titled(mount, "After"))

    async def close() -> None:
        await mount.finish(fh)
        ended.append("close")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(close)
        await wait_until(begun.is_set)
        await trio.sleep(0.1)
        gate.set()
    assert ended[:2] == ["notice", "close"]


@in_trio
async def test_a_change_of_the_sidecar_right_after_a_save_is_not_undone_by_the_next_one(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 8. The agent takes the session's lock before the mount's own thread hears of the save."""
    commit = Namespace.commit

    def commit_and_lose_the_race(names: Namespace, request: WriteRequest) -> CommitResult:
        result = commit(names, request)
        agent = mount.store.load_runtime("root")
        assert agent is not None
        agent.title = "Theirs"
        mount.store.save_runtime(agent)
        return result

    fh = await mount.open(DOCUMENT, os.O_WRONLY, pid=os.getpid())
    await mount.write(fh, 0, titled(mount, "First!"))
    with monkeypatch.context() as patch:
        patch.setattr(Namespace, "commit", commit_and_lose_the_race)
        await mount.operations.fsync(fh, True)
    await mount.write(fh, 0, titled(mount, "Again!"))
    with fails_with(errno.ESTALE):
        await mount.finish(fh)
    assert mount.title("root") == "Theirs"


@in_trio
async def test_nothing_written_commits_nothing(mount: HandlerMount) -> None:
    """`> session.json` and `jq . f > f` must not empty a session."""
    before = mount.store.names.stat(DOCUMENT)
    for flags in (os.O_WRONLY, os.O_WRONLY | os.O_TRUNC):
        fh = await mount.open(DOCUMENT, flags)
        await mount.finish(fh)
    assert mount.store.names.stat(DOCUMENT) == before


@in_trio
async def test_read_only_handle_of_a_buffer_commits_nothing(mount: HandlerMount) -> None:
    writer = await mount.open(DOCUMENT, os.O_WRONLY)
    await mount.write(writer, 0, b"{ incomplete")
    reader = await mount.open_inode(mount.files.handles.get(writer).node.inode, os.O_RDONLY)
    assert (await mount.read(reader, 0, 12)) == b"{ incomplete"
    await mount.finish(reader)
    await mount.release(writer)
    assert not await mount.exists(f"{DOCUMENT}.rejected")


class BlockedCommit:
    """names.commit, which waits for an event in its worker thread."""

    def __init__(self, mount: HandlerMount, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered, self.may_go_on = threading.Event(), threading.Event()
        self.calls = 0
        self._commit: Callable[[WriteRequest], CommitResult] = mount.store.names.commit
        monkeypatch.setattr(type(mount.store.names), "commit", lambda _, request: self(request))

    def __call__(self, request: WriteRequest) -> CommitResult:
        self.calls += 1
        self.entered.set()
        assert self.may_go_on.wait(20)
        return self._commit(request)


@in_trio
async def test_write_during_a_commit_goes_into_the_next_version(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit renames the buffer's file: a write meanwhile goes to a copy and changes no committed byte."""
    first, second = titled(mount, "First1"), titled(mount, "Second")
    blocked = BlockedCommit(mount, monkeypatch)
    fh = await mount.open(DOCUMENT, os.O_WRONLY | os.O_TRUNC)
    await mount.write(fh, 0, first)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mount.flush, fh)
        await wait_until(blocked.entered.is_set)
        assert await mount.write(fh, 0, second[:20]) == 20
        assert await mount.write(fh, 20, second[20:]) == len(second) - 20
        blocked.may_go_on.set()
    assert on_disk(mount) == first
    await mount.flush(fh)
    assert on_disk(mount) == second
    await mount.release(fh)


@in_trio
async def test_two_descriptors_flushed_at_once_commit_once(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second flush waits for the first and finds nothing left to commit, and no conflict."""
    after = titled(mount, "After")
    blocked = BlockedCommit(mount, monkeypatch)
    one = await mount.open(DOCUMENT, os.O_WRONLY | os.O_TRUNC)
    other = await mount.open_inode(mount.files.handles.get(one).node.inode, os.O_WRONLY)
    await mount.write(one, 0, after)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mount.flush, one)
        await wait_until(blocked.entered.is_set)
        nursery.start_soon(mount.flush, other)
        await trio.testing.wait_all_tasks_blocked()
        blocked.may_go_on.set()
    assert (on_disk(mount), blocked.calls) == (after, 1)
    await mount.release(one)
    await mount.release(other)


@in_trio
async def test_rename_to_another_session_does_not_let_two_commits_of_a_buffer_run_at_once(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits wait per session, and a rename changes the session of a buffer while its commit runs."""
    fh = await mount.create(IMAGE)
    await mount.write(fh, 0, b"first")
    buffer = mount.files.handles.get(fh).node.buffer
    assert buffer is not None
    here, elsewhere = buffer.path_info, classify_path("sessions/other/attachments/image.png")
    blocked = BlockedCommit(mount, monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mount.flush, fh)
        await wait_until(blocked.entered.is_set)
        buffer.path_info = elsewhere
        await mount.write(fh, 5, b" second")
        nursery.start_soon(mount.flush, fh)
        await trio.testing.wait_all_tasks_blocked()
        assert blocked.calls == 1
        buffer.path_info = here
        blocked.may_go_on.set()
    assert on_disk(mount, IMAGE) == b"first second"
    await mount.release(fh)


@in_trio
async def test_rejected_commit_keeps_the_buffer_for_a_retry(mount: HandlerMount) -> None:
    """The writer corrects one byte and flushes again. The rejected text is shown until then."""
    before, after = on_disk(mount), titled(mount, "After")
    fh = await mount.open(DOCUMENT, os.O_WRONLY | os.O_TRUNC)
    await mount.write(fh, 0, b"[" + after[1:])
    with fails_with(errno.EBADMSG):
        await mount.flush(fh)
    assert on_disk(mount) == before
    assert (await mount.content(f"{DOCUMENT}.rejected")) == b"[" + after[1:]
    assert await mount.content(f"{DOCUMENT}.error")
    await mount.write(fh, 0, b"{")
    await mount.finish(fh)
    assert on_disk(mount) == after
    assert not await mount.exists(f"{DOCUMENT}.rejected")


@in_trio
async def test_attributes_after_a_rejected_write_are_not_changed(mount: HandlerMount) -> None:
    """unzip ignores the error of close, then sets mode and times of a file with other content."""
    with fails_with(errno.EBADMSG):
        await mount.save(DOCUMENT, b"not JSON")
    inode = await mount.inode(DOCUMENT)
    with fails_with(errno.EBADMSG):
        await mount.set(inode, st_mode=0o600)
    await mount.set(inode, pid=READER, st_mode=0o600)
    await mount.save(DOCUMENT, titled(mount, "After"))
    await mount.set(await mount.inode(DOCUMENT), st_mode=0o640)
    assert (mount.store.home / DOCUMENT).stat().st_mode & 0o777 == 0o640


@in_trio
async def test_rejected_fsync_shows_the_committed_size(mount: HandlerMount) -> None:
    """Emacs remembers fstat after a failed fsync and compares it before the next save."""
    size = len(on_disk(mount))
    fh = await mount.open(DOCUMENT, os.O_WRONLY | os.O_TRUNC)
    inode = mount.files.handles.get(fh).node.inode
    await mount.write(fh, 0, b"not JSON")
    assert (await mount.operations.getattr(inode, caller(WRITER))).st_size == 8
    with fails_with(errno.EBADMSG):
        await mount.operations.fsync(fh, False)
    assert (await mount.operations.getattr(inode, caller(WRITER))).st_size == size
    await mount.release(fh)


@pytest.mark.warns
@in_trio
@pytest.mark.parametrize(
    ("error", "is_copied"),
    [
        (OSError(errno.EIO, "disk error"), False),
        (Busy("locked by another writer"), False),
        (UnfinishedCommit(errno.EIO, "half done"), True),
    ],
)
async def test_failed_commit_keeps_the_bytes_for_a_retry(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch, error: Exception, is_copied: bool
) -> None:
    """If recovery still needs the file, the writer continues with a copy: it must not change that file."""
    after, used = titled(mount, "After"), []

    def commit(_: object, request: WriteRequest) -> CommitResult:
        used.append(request.content)
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(type(mount.store.names), "commit", commit)
        fh = await mount.open(DOCUMENT, os.O_WRONLY | os.O_TRUNC)
        await mount.write(fh, 0, after)
        with fails_with(errno_of(error)):
            await mount.flush(fh)
    buffer = mount.files.handles.get(fh).node.buffer
    assert buffer is not None
    assert (buffer.temp != used[0]) is is_copied
    await mount.finish(fh)
    assert on_disk(mount) == after
    left = os.listdir(mount.store.home / layout.TMP)
    assert len(left) == is_copied  # recovery removes it


@in_trio
async def test_save_succeeds_after_the_index_was_locked(mount: HandlerMount, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal entry could not be written: both documents stay, and the same descriptor can try again."""
    after = titled(mount, "After")
    record = Journal._record

    def locked(journal: Journal, commit: Commit, *rest: object, durable: bool) -> None:
        raise Busy("index.db is locked")

    fh = await mount.open(DOCUMENT, os.O_WRONLY | os.O_TRUNC)
    await mount.write(fh, 0, after)
    monkeypatch.setattr(Journal, "_record", locked)
    with fails_with(errno.EBUSY):
        await mount.operations.fsync(fh, False)
    monkeypatch.setattr(Journal, "_record", record)
    await mount.finish(fh)
    assert on_disk(mount) == after
    assert mount.title("root") == "After"
    assert os.listdir(mount.store.home / layout.TMP) == []


@in_trio
async def test_truncated_temporary_file_counts_as_new(mount: HandlerMount) -> None:
    """A program with a fixed name for its temporary file can save after one stale save, without merging too."""
    mount.files.on_conflict = "reject"
    stale, temporary = titled(mount, "Stale"), "sessions/root/.session.json.tmp"
    await mount.add(temporary, stale)
    theirs = commit_elsewhere(mount, "Theirs")
    with fails_with(errno.ESTALE):
        await mount.rename(temporary, DOCUMENT)
    assert on_disk(mount) == theirs
    mine = titled(mount, "Mine")
    fh = await mount.open(temporary, os.O_WRONLY | os.O_TRUNC)
    await mount.write(fh, 0, mine)
    await mount.finish(fh)
    await mount.rename(temporary, DOCUMENT)
    assert on_disk(mount) == mine


@in_trio
async def test_full_disk_fails_the_write_and_every_commit_until_rewritten(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A buffer with a gap must not become a version."""
    before, after = on_disk(mount), titled(mount, "After")

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "disk full")

    fh = await mount.open(DOCUMENT, os.O_WRONLY)
    with monkeypatch.context() as patched:
        patched.setattr(write_buffers, "copy_file", full)
        with fails_with(errno.ENOSPC):
            await mount.write(fh, 0, b"{")
    await mount.write(fh, 0, after)
    with fails_with(errno.ENOSPC):
        await mount.flush(fh)
    assert on_disk(mount) == before
    await mount.set(mount.files.handles.get(fh).node.inode, fh, st_size=0)
    await mount.write(fh, 0, after)
    await mount.finish(fh)
    assert on_disk(mount) == after


@in_trio
async def test_save_of_a_replaced_version_is_stale(mount: HandlerMount) -> None:
    """Rule 8: no update is lost silently."""
    mine = titled(mount, "Mine")
    fh = await mount.open(DOCUMENT, os.O_WRONLY | os.O_TRUNC)
    theirs = commit_elsewhere(mount, "Theirs")
    await mount.write(fh, 0, mine)
    with fails_with(errno.ESTALE):
        await mount.flush(fh)
    await mount.release(fh)
    assert on_disk(mount) == theirs


@in_trio
async def test_overwrite_option_replaces_newer_versions(mount: HandlerMount, store: Store) -> None:
    restoring = HandlerMount(store, on_conflict="overwrite")
    mine = titled(mount, "Mine")
    fh = await restoring.open(DOCUMENT, os.O_WRONLY | os.O_TRUNC)
    commit_elsewhere(mount, "Theirs")
    await restoring.write(fh, 0, mine)
    await restoring.finish(fh)
    restoring.close()
    assert on_disk(mount) == mine


@in_trio
async def test_release_without_flush_discards_the_buffer(mount: HandlerMount) -> None:
    """As after kill -9 of the writer: an incomplete write is not a version."""
    before = on_disk(mount)
    nodes = len(mount.tree.nodes)
    await mount.inode(DOCUMENT)
    fh = await mount.open(DOCUMENT, os.O_WRONLY)
    private = mount.files.handles.get(fh).node
    await mount.write(fh, 0, titled(mount, "Lost"))
    await mount.release(fh)
    await mount.operations.forget([(private.inode, private.lookups)])
    assert on_disk(mount) == before
    assert private not in list(mount.tree.nodes)
    assert len(mount.tree.nodes) <= nodes + 3


# -- appending and truncating ------------------------------------------------------------------------


@in_trio
async def test_append_ignores_the_kernels_offset(mount: HandlerMount) -> None:
    """The kernel's size is outdated if two descriptors append."""
    await mount.add(IMAGE, b"one ")
    fh = await mount.open(IMAGE, os.O_WRONLY | os.O_APPEND)
    await mount.write(fh, 0, b"two ")
    await mount.write(fh, 0, b"three")
    await mount.finish(fh)
    assert on_disk(mount, IMAGE) == b"one two three"


@in_trio
async def test_two_writers_append_to_a_log_in_place(mount: HandlerMount) -> None:
    await mount.add(LOG, b'{"n":0}\n')
    one = await mount.open(LOG, os.O_WRONLY | os.O_APPEND)
    other = await mount.open(LOG, os.O_WRONLY | os.O_APPEND)
    await mount.write(one, 0, b'{"n":1}\n')
    await mount.write(other, 0, b'{"n":2}\n')
    await mount.finish(one)
    await mount.finish(other)
    assert on_disk(mount, LOG) == b'{"n":0}\n{"n":1}\n{"n":2}\n'


@in_trio
async def test_truncate_by_path_commits_at_once(mount: HandlerMount) -> None:
    """There is no descriptor whose close could commit it."""
    await mount.add(IMAGE, b"123456")
    old = await mount.inode(IMAGE)
    await mount.set(old, st_size=3)
    assert on_disk(mount, IMAGE) == b"123"
    assert await mount.inode(IMAGE) != old
    assert await mount.content(IMAGE) == b"123"


@in_trio
async def test_truncate_by_path_to_invalid_json_is_rejected(mount: HandlerMount) -> None:
    before = on_disk(mount)
    with fails_with(errno.EBADMSG):
        await mount.set(await mount.inode(DOCUMENT), st_size=10)
    assert on_disk(mount) == before


@in_trio
async def test_rejected_truncate_by_path_drops_the_listing(mount: HandlerMount, kernel: FakeKernel) -> None:
    """`ls` after it shows the rejected text and the reason."""
    directory = await mount.inode("sessions/root")
    mount.operations.listings.will_read(mount.tree.nodes.get(directory))
    with fails_with(errno.EBADMSG):
        await mount.set(await mount.inode(DOCUMENT), st_size=10)
    assert (directory, False) in kernel.inodes
    assert {"session.json.error", "session.json.rejected"} < set(await mount.names("sessions/root"))


@in_trio
async def test_ftruncate_takes_effect_at_close(mount: HandlerMount) -> None:
    await mount.add(IMAGE, b"123456")
    fh = await mount.open(IMAGE, os.O_WRONLY)
    await mount.set(mount.files.handles.get(fh).node.inode, fh, st_size=2)
    assert on_disk(mount, IMAGE) == b"123456"
    await mount.finish(fh)
    assert on_disk(mount, IMAGE) == b"12"


@pytest.mark.parametrize("is_open", [True, False])
def test_plain_file_is_truncated_in_place(mount: HandlerMount, is_open: bool) -> None:
    async def scenario() -> None:
        await mount.add(NOTE, b"123456")
        inode = await mount.inode(NOTE)
        fh = await mount.open(NOTE, os.O_WRONLY) if is_open else None
        await mount.set(inode, fh, st_size=4)
        assert on_disk(mount, NOTE) == b"1234"
        if fh is not None:
            await mount.finish(fh)

    trio.run(scenario)


# -- attachments -------------------------------------------------------------------------------------


@in_trio
async def test_new_attachment_has_its_name_before_the_first_commit(mount: HandlerMount) -> None:
    """Tools rename and remove files they have open."""
    fh = await mount.create(IMAGE)
    await mount.write(fh, 0, b"data")
    assert "image.png" in await mount.names("sessions/root/attachments")
    assert await mount.exists(IMAGE)
    assert on_disk(mount, IMAGE) == b"", "its name is taken, for O_EXCL of other processes"
    await mount.finish(fh)
    assert on_disk(mount, IMAGE) == b"data"


@in_trio
async def test_empty_attachment_is_committed(mount: HandlerMount) -> None:
    """As on any filesystem truncation counts at once, here at the first close."""
    await mount.finish(await mount.create(IMAGE))
    assert on_disk(mount, IMAGE) == b""
    await mount.save(IMAGE, b"data")
    fh = await mount.open(IMAGE, os.O_WRONLY | os.O_TRUNC)
    assert on_disk(mount, IMAGE) == b"data"
    await mount.flush(fh)
    assert on_disk(mount, IMAGE) == b""
    await mount.release(fh)
    assert on_disk(mount, IMAGE) == b""


@in_trio
async def test_open_attachment_that_is_renamed_is_committed_under_the_new_name(mount: HandlerMount) -> None:
    fh = await mount.create(IMAGE)
    await mount.write(fh, 0, b"one ")
    await mount.rename(IMAGE, "sessions/root/attachments/other.png")
    await mount.write(fh, 4, b"two")
    await mount.finish(fh)
    assert on_disk(mount, "sessions/root/attachments/other.png") == b"one two"
    assert not (mount.store.home / IMAGE).exists()
    assert not mount.writers.is_being_written("sessions/root/attachments/other.png")
    assert not mount.writers.is_being_written(IMAGE)


@in_trio
async def test_open_files_below_a_renamed_directory_are_committed_there(mount: HandlerMount, store: Store) -> None:
    """Appended, new and rewritten ones."""
    await mount.add(IMAGE, b"one ")
    store.names.create_top_dirs()
    await mount.mkdir("state/notes")
    await mount.add("state/notes/a.md", b"one ")
    appenders = [await mount.open(path, os.O_WRONLY | os.O_APPEND) for path in (IMAGE, "state/notes/a.md")]
    created = await mount.create("sessions/root/attachments/new")
    for fh in (*appenders, created):
        await mount.write(fh, 0, b"two ")
    await mount.rename("sessions/root", "sessions/moved")
    await mount.rename("state/notes", "state/other")
    assert await mount.content("sessions/moved/attachments/new") == b"two "
    for fh in (*appenders, created):
        await mount.write(fh, 4, b"three")
        await mount.finish(fh)
    moved = IMAGE.replace("root", "moved")
    assert on_disk(mount, moved) == on_disk(mount, "state/other/a.md") == b"one two three"
    assert on_disk(mount, "sessions/moved/attachments/new") == b"two three"
    assert not (store.home / "sessions/root").exists()
    assert not (store.home / "state/notes").exists()
    assert not mount.writers.is_being_written(moved)
    assert not mount.writers.is_being_written(IMAGE)
    assert store.check().is_clean


@in_trio
async def test_appending_to_a_session_that_is_gone_is_stale(mount: HandlerMount, store: Store) -> None:
    """It was renamed by another program. The bytes are kept where the mount shows them."""
    await mount.add(IMAGE, b"one ")
    fh = await mount.open(IMAGE, os.O_WRONLY | os.O_APPEND)
    await mount.write(fh, 0, b"two")
    store.rename("root", "moved")
    with fails_with(errno.ESTALE):
        await mount.finish(fh)
    assert not (store.home / "sessions/root").exists()
    assert on_disk(mount, IMAGE.replace("root", "moved")) == b"one "
    kept = f"root_attachments_{IMAGE.rpartition('/')[2]}.rejected"
    assert kept in await mount.names("sessions")
    assert await mount.content(f"sessions/{kept}") == b"two"
    assert store.check().is_clean


@in_trio
async def test_appending_to_a_state_text_whose_category_is_gone_is_stale(mount: HandlerMount, store: Store) -> None:
    store.names.create_top_dirs()
    await mount.mkdir("state/notes")
    await mount.add("state/notes/a.md", b"one ")
    fh = await mount.open("state/notes/a.md", os.O_WRONLY | os.O_APPEND)
    await mount.write(fh, 0, b"two")
    store.moves.move(classify_path("state/notes"), classify_path("state/other"))
    with fails_with(errno.ESTALE):
        await mount.finish(fh)
    assert not (store.home / "state/notes").exists()
    assert await mount.content("state/notes_a.md.rejected") == b"two"
    assert store.check().is_clean


@in_trio
async def test_other_requests_do_not_wait_while_a_large_version_is_copied(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changing one byte copies the file first. A second write meanwhile is not lost."""
    data = bytes(COPIED_AT_ONCE + 1)
    await mount.add(IMAGE, data)
    started, go_on = threading.Event(), threading.Event()
    copy = WriteBuffer.copy

    def wait(buffer: WriteBuffer, source: int, size: int) -> Temp:
        started.set()
        assert go_on.wait(60)
        return copy(buffer, source, size)

    monkeypatch.setattr(WriteBuffer, "copy", wait)
    fh = await mount.open(IMAGE, os.O_RDWR)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mount.write, fh, 1, b"x")
        nursery.start_soon(mount.write, fh, 3, b"y")
        await wait_until(started.is_set)
        assert await mount.exists("sessions/root")
        assert await mount.read(fh, 0, 4) == data[:4]
        go_on.set()
    await mount.finish(fh)
    assert on_disk(mount, IMAGE) == b"\0x\0y" + data[4:]


@in_trio
async def test_a_copy_that_lacks_what_was_written_meanwhile_is_not_used(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first copy takes longer than a second write and its commit."""
    data = bytes(COPIED_AT_ONCE + 1)
    await mount.add(IMAGE, data)
    started, go_on = threading.Event(), threading.Event()
    copy = WriteBuffer.copy

    def wait_if_first(buffer: WriteBuffer, source: int, size: int) -> Temp:
        is_first, temp = not started.is_set(), copy(buffer, source, size)
        started.set()
        assert not is_first or go_on.wait(60)
        return temp

    monkeypatch.setattr(WriteBuffer, "copy", wait_if_first)
    fh = await mount.open(IMAGE, os.O_RDWR)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(mount.write, fh, 1, b"x")
        await wait_until(started.is_set)
        await mount.write(fh, 3, b"y")
        await mount.flush(fh)
        go_on.set()
    await mount.finish(fh)
    assert on_disk(mount, IMAGE) == b"\0x\0y" + data[4:]


@in_trio
async def test_open_attachment_cannot_be_renamed_out_of_attachments(mount: HandlerMount) -> None:
    fh = await mount.create(IMAGE)
    await mount.write(fh, 0, b"data")
    with fails_with(errno.EBUSY):
        await mount.rename(IMAGE, NOTE)
    await mount.finish(fh)
    assert on_disk(mount, IMAGE) == b"data"


@pytest.mark.parametrize("is_committed", [True, False])
def test_open_attachment_that_is_removed_stays_removed(mount: HandlerMount, is_committed: bool) -> None:
    """Its writer's later writes have no name to be committed to."""

    async def scenario() -> None:
        if is_committed:
            await mount.add(IMAGE, b"old")
            fh = await mount.open(IMAGE, os.O_WRONLY)
        else:
            fh = await mount.create(IMAGE)
        await mount.write(fh, 0, b"data")
        await mount.unlink(IMAGE)
        await mount.write(fh, 4, b"more")
        await mount.finish(fh)
        assert not (mount.store.home / IMAGE).exists()
        assert not await mount.exists(IMAGE)

    trio.run(scenario)


@in_trio
async def test_mode_and_time_of_an_open_buffer_are_committed_with_it(mount: HandlerMount) -> None:
    """cp -p sets both through the descriptor before it closes it."""
    fh = await mount.create(IMAGE)
    node = mount.files.handles.get(fh).node
    await mount.write(fh, 0, b"data")
    attrs = await mount.set(node.inode, fh, st_mode=0o100640, st_mtime_ns=10**18)
    assert (attrs.st_mode & 0o777, attrs.st_mtime_ns) == (0o640, 10**18)
    await mount.finish(fh)
    info = (mount.store.home / IMAGE).stat()
    assert (info.st_mode & 0o777, info.st_mtime_ns) == (0o640, 10**18)


@in_trio
async def test_read_only_mount_changes_nothing(mount: HandlerMount, store: Store) -> None:
    read_only = HandlerMount(store, read_only=True)
    inode = await read_only.inode(DOCUMENT)
    for request in (
        partial(read_only.open_inode, inode, os.O_WRONLY),
        partial(read_only.create, NOTE),
        partial(read_only.mkdir, "sessions/new"),
        partial(read_only.unlink, DOCUMENT),
        partial(read_only.set, inode, st_mode=0o600),
        partial(read_only.rename, DOCUMENT, NOTE),
        partial(read_only.rename, "views", "other"),
    ):
        with fails_with(errno.EROFS):
            await request()
    read_only.close()


# -- logs --------------------------------------------------------------------------------------------

LOG = "sessions/root/token-usage.jsonl"


@in_trio
async def test_a8_a_log_is_synced_before_close_returns(mount: HandlerMount) -> None:
    """Rule 2 has no exception for logs. A new log is synced with its name; a close that wrote nothing syncs nothing."""
    steps: list[str] = []
    mount.store._core.disk.step = steps.append
    fh = await mount.create(LOG, os.O_WRONLY | os.O_APPEND)
    await mount.write(fh, 0, b"{}\n")
    await mount.flush(fh)
    assert steps == ["sync-log", "sync-dir"]
    await mount.flush(fh)
    assert steps == ["sync-log", "sync-dir"]
    await mount.write(fh, 3, b"{}\n")
    await mount.finish(fh)
    assert steps == ["sync-log", "sync-dir", "sync-log"]


@in_trio
async def test_a8_a_failed_sync_of_a_log_is_reported_and_repeated(
    mount: HandlerMount, monkeypatch: pytest.MonkeyPatch
) -> None:
    fh = await mount.create(LOG, os.O_WRONLY | os.O_APPEND)
    await mount.write(fh, 0, b"{}\n")
    fails = [OSError(errno.EIO, "bad block")]

    def step(name: str) -> None:
        if name == "sync-log" and fails:
            raise fails.pop()

    mount.store._core.disk.step = step
    with fails_with(errno.EIO):
        await mount.flush(fh)
    await mount.finish(fh)
    assert not fails
