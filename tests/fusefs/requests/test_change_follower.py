"""Changes made elsewhere reach the kernel and the index, called without a mount."""

from __future__ import annotations

import os

import pytest
import trio

from fusefs.requests import change_follower, kernel_cache
from fusefs.requests.kernel_cache import invalidate
from fusefs.tree.directory_watches import Event
from fusefs.tree.nodes import Invalidation
from store import Location
from store.errors import Busy
from store.namespace.namespace import Namespace
from tests.fusefs.requests.harness import FakeKernel, HandlerMount, in_trio, wait_until

DOCUMENT = "sessions/root/session.json"
NOTE = "sessions/root/note.txt"


@pytest.fixture(autouse=True)
def without_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_follower, "BATCH_S", 0.0)
    monkeypatch.setattr(change_follower, "REPEAT_S", 0.01)


async def follow_until(mount: HandlerMount, kernel: FakeKernel, entry: tuple[int, bytes], times: int = 1) -> None:
    with trio.fail_after(20):
        while kernel.entries.count(entry) < times:
            await mount.operations.follow()
            await trio.sleep(0.01)


@in_trio
async def test_replaced_file_is_invalidated_twice(mount: HandlerMount, kernel: FakeKernel) -> None:
    """A reply to an earlier lookup may reach the kernel's cache after the first invalidation."""
    await mount.add(NOTE, b"old")
    directory = await mount.inode("sessions/root")
    await mount.inode(NOTE)
    path = mount.store.home / NOTE
    path.with_name("tmp").write_bytes(b"new")
    path.with_name("tmp").rename(path)
    await follow_until(mount, kernel, (directory, b"note.txt"), times=2)


@in_trio
async def test_a5_listing_does_not_bring_back_an_old_size(mount: HandlerMount) -> None:
    """The kernel may forget a file whose size is in a cached listing, and list its directory again."""
    await mount.add(NOTE, b"old")
    directory = mount.tree.nodes.get(await mount.inode("sessions/root"))
    await mount.operations.follow()  # the events of the creation
    listing = mount.tree.listing(directory)
    (mount.store.home / NOTE).write_bytes(b"new and longer")
    with trio.fail_after(20):
        while "note.txt" in listing.infos:
            await mount.operations.follow()
    if (node := directory.children.get("note.txt")) is not None:
        mount.tree.nodes.forget(node.inode, node.lookups)
    assert directory.listing is listing
    assert mount.tree.entry(directory, "note.txt", listing).info.st_size == 14  # type: ignore[union-attr]


@in_trio
async def test_created_file_is_invalidated_if_it_was_cached_as_absent(mount: HandlerMount, kernel: FakeKernel) -> None:
    directory = await mount.inode("sessions/root")
    assert (await mount.lookup(NOTE)).st_ino == 0
    (mount.store.home / NOTE).write_bytes(b"new")
    await follow_until(mount, kernel, (directory, b"note.txt"))
    assert await mount.exists(NOTE)


@in_trio
async def test_removed_directory_is_invalidated(mount: HandlerMount, kernel: FakeKernel) -> None:
    await mount.mkdir("sessions/root/folder")
    directory = await mount.inode("sessions/root")
    os.rmdir(mount.store.home / "sessions/root/folder")
    await follow_until(mount, kernel, (directory, b"folder"))


@in_trio
async def test_document_that_was_looked_up_before_its_event_is_indexed(mount: HandlerMount) -> None:
    """The tree knows the edited file already when the event is handled; the index does not."""
    await mount.inode(DOCUMENT)
    path = mount.store.home / DOCUMENT
    path.with_name("tmp").write_bytes(path.read_bytes().replace(b"msg-0", b"zebra"))
    path.with_name("tmp").rename(path)
    await mount.inode(DOCUMENT)
    await mount.operations.follow()
    await wait_until(lambda: list(mount.store.search("zebra")))


@in_trio
async def test_document_edited_in_the_home_is_indexed(mount: HandlerMount, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor may save directly in the home, bypassing the store. While the session is busy, indexing waits."""
    refresh, attempts, indexed = mount.store.names.refresh, [], []

    def busy_once(_: object, location: Location) -> None:
        attempts.append(location)
        if len(attempts) == 1:
            raise Busy("the session is locked")
        refresh(location)
        indexed.append(location)

    monkeypatch.setattr(Namespace, "refresh", busy_once)
    await mount.inode(DOCUMENT)
    path = mount.store.home / DOCUMENT
    path.with_name("tmp").write_bytes(path.read_bytes().replace(b"msg-0", b"zebra"))
    path.with_name("tmp").rename(path)

    async def follow() -> None:
        while True:
            await mount.operations.follow()  # waits for ever if the second attempt is not due yet

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await wait_until(lambda: indexed)
        nursery.cancel_scope.cancel()
    assert set(attempts) == {Location("root", None)}
    assert len(list(mount.store.search("zebra"))) == 1


@in_trio
async def test_lost_events_recheck_everything(mount: HandlerMount, kernel: FakeKernel) -> None:
    """After an inotify overflow any known name may have changed, and any absent name may exist."""
    directory = await mount.inode("sessions/root")
    await mount.inode(DOCUMENT)
    await mount.lookup("sessions/root/absent")
    path = mount.store.home / DOCUMENT
    path.with_name("tmp").write_bytes(path.read_bytes().replace(b"Before", b"Edited"))
    path.with_name("tmp").rename(path)
    mount.tree.watches.read()
    await mount.operations.follower._follow([Event(None, "", True)])
    expected = {(directory, b"session.json"), (directory, b"absent")}
    await wait_until(lambda: expected <= set(kernel.entries))
    mount.store.names.refresh(mount.tree.nodes.get(directory).disk_path.location)  # type: ignore[arg-type]


class FailingKernel:
    """A kernel that answers every invalidation with one errno."""

    def __init__(self, number: int) -> None:
        self.error = OSError(number, os.strerror(number))

    def invalidate_entry(self, inode: int, name: bytes) -> None:
        raise self.error


@in_trio
async def test_name_unknown_to_the_kernel_needs_no_invalidation(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernel_cache, "pyfuse3", FailingKernel(2))
    await invalidate([Invalidation(1, b"name")])
    assert not caplog.records


@pytest.mark.warns
@in_trio
async def test_failed_invalidation_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(kernel_cache, "pyfuse3", FailingKernel(5))
    await invalidate([Invalidation(1, b"name")])
    assert "kernel cache invalidation failed" in caplog.text


@in_trio
async def test_pages_are_invalidated_only_on_request(kernel: FakeKernel) -> None:
    await invalidate([Invalidation(7), Invalidation(8, pages=True)])
    assert kernel.inodes == [(7, True), (8, False)]


@in_trio
async def test_batches_are_longer_while_a_program_saves_continuously(mount: HandlerMount) -> None:
    """A single change is shown after BATCH_S."""
    await mount.inode("sessions/root")
    follower = mount.operations.follower
    for count, expected_s in ((1, change_follower.BATCH_S), (100, change_follower.BUSY_BATCH_S)) * 2:
        for number in range(count):
            (mount.store.home / f"sessions/root/note{number}").write_bytes(b"new")
        with trio.fail_after(20):
            await follower.run()
        assert follower._batch_s == expected_s
