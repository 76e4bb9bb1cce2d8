"""Texts of the past that were purged are dropped from all caches of a mount."""

from __future__ import annotations

import pytest

from store.index.change_feed import Changes, Cursor
from tests.fusefs.requests.harness import FakeKernel, HandlerMount, in_trio, wait_until
from tests.store.undo.test_version_lookup import retitle


@in_trio
async def test_a_purge_drops_rendered_texts(mount: HandlerMount, kernel: FakeKernel) -> None:
    """Those of the daemon, and the kernel's pages; other changes drop nothing."""
    retitle(mount.store, "root", "first title")
    retitle(mount.store, "root", "second title")
    names = [name for name in await mount.names("history/root") if name != "children"]
    path = f"history/root/{names[-2]}"
    inode = await mount.inode(path)
    assert b"first title" in await mount.content(path)
    await mount.operations.purges.look()
    assert kernel.inodes == []
    assert mount.store.history.purge("root", matching="first title").versions == 1
    await mount.operations.purges.look()
    await wait_until(lambda: (inode, False) in kernel.inodes)
    assert not await mount.exists(path)


@in_trio
async def test_an_idle_mount_wakes_no_thread(mount: HandlerMount, monkeypatch: pytest.MonkeyPatch) -> None:
    """The feed is read in a thread only after a commit."""
    read: list[object] = []
    since = mount.store.feed.since

    def counted(cursor: Cursor | None) -> Changes:
        read.append(cursor)
        return since(cursor)

    monkeypatch.setattr(mount.store.feed, "since", counted)
    await mount.operations.purges.look()
    assert read == []
    retitle(mount.store, "root", "another title")
    for _ in range(3):
        await mount.operations.purges.look()
    assert len(read) == 1
