"""Texts of the past that were purged are dropped from all caches of a mount."""

from __future__ import annotations

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
