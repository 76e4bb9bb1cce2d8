"""Request handlers called as the kernel calls them, without a mount."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ParamSpec

import pyfuse3
import pytest
import trio

from fusefs.daemon.mount import make_views
from fusefs.requests.operations import Operations
from store import Store

P = ParamSpec("P")

# Larger than any real pid: the caller must not be taken for an unrelated process.
WRITER, READER = 5_000_001, 5_000_002
DEADLINE_S = 60.0


def caller(pid: int) -> Any:
    return SimpleNamespace(pid=pid, uid=os.geteuid(), gid=os.getegid(), umask=0o022)


def in_trio(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run an async test in trio."""

    @functools.wraps(test)
    def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        trio.run(functools.partial(test, *arguments, **keywords))

    return run


@contextmanager
def fails_with(number: int) -> Iterator[None]:
    """The request is answered with this errno."""
    with pytest.raises(pyfuse3.FUSEError) as raised:
        yield
    assert raised.value.errno == number, os.strerror(raised.value.errno)


async def wait_until(is_true: Callable[[], object]) -> None:
    ends = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < ends, "timeout"
        await trio.sleep(0.005)


@dataclass
class FakeKernel:
    """Records the invalidations that the kernel gets."""

    entries: list[tuple[int, bytes]] = field(default_factory=list)
    inodes: list[tuple[int, bool]] = field(default_factory=list)  # inode, attr_only

    def invalidate_entry(self, inode: int, name: bytes) -> None:
        self.entries.append((inode, name))

    def invalidate_inode(self, inode: int, attr_only: bool = False) -> None:
        self.inodes.append((inode, attr_only))


class HandlerMount:
    """The handlers of one mount, with shorthands for common system calls."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.store = store
        self.operations = Operations(store, lambda stats: make_views(store, stats), **options)
        self.tree = self.operations.tree
        self.files = self.operations.files
        self.writers = self.operations.writers
        self.read = self.operations.read
        self.write = self.operations.write
        self.flush = self.operations.flush
        self.release = self.operations.release

    def close(self) -> None:
        self.operations.close()

    def title(self, session_id: str) -> str:
        """The title of a session, by the store."""
        session = self.store.load(session_id)
        assert session is not None
        return session.title

    # -- names -----------------------------------------------------------------------------------

    async def lookup(self, path: str, pid: int = WRITER) -> Any:
        """Look up a path from the root. Returns the attributes of the last name."""
        inode, attrs = pyfuse3.ROOT_INODE, None
        for name in path.split("/"):
            attrs = await self.operations.lookup(inode, name.encode(), caller(pid))
            inode = attrs.st_ino
        return attrs

    async def inode(self, path: str, pid: int = WRITER) -> int:
        return int((await self.lookup(path, pid)).st_ino) if path else pyfuse3.ROOT_INODE

    async def split(self, path: str) -> tuple[int, bytes]:
        directory, _, name = path.rpartition("/")
        return await self.inode(directory), name.encode()

    async def unlink(self, path: str) -> None:
        await self.operations.unlink(*await self.split(path), caller(WRITER))

    async def mkdir(self, path: str) -> Any:
        return await self.operations.mkdir(*await self.split(path), 0o700, caller(WRITER))

    async def rmdir(self, path: str) -> None:
        await self.operations.rmdir(*await self.split(path), caller(WRITER))

    async def rename(self, old: str, new: str, flags: int = 0, pid: int = WRITER) -> None:
        await self.operations.rename(*await self.split(old), *await self.split(new), flags, caller(pid))

    async def names(self, path: str) -> list[str]:
        fh = await self.operations.opendir(await self.inode(path), caller(READER))
        _, listing = self.files.handles.listing(fh)
        await self.operations.releasedir(fh)
        return list(listing.names)

    async def exists(self, path: str) -> bool:
        try:
            return bool((await self.lookup(path, READER)).st_ino)
        except pyfuse3.FUSEError:
            return False

    # -- files -----------------------------------------------------------------------------------

    async def open(self, path: str, flags: int = os.O_RDONLY, pid: int = WRITER) -> int:
        """Open a file. As the kernel does, repeat lookup and open once after ESTALE."""
        try:
            return await self.open_once(path, flags, pid)
        except pyfuse3.FUSEError:
            return await self.open_once(path, flags, pid)

    async def open_once(self, path: str, flags: int, pid: int = WRITER) -> int:
        return await self.open_inode(await self.inode(path, pid), flags, pid)

    async def open_inode(self, inode: int, flags: int, pid: int = WRITER) -> int:
        return int((await self.operations.open(inode, flags, caller(pid))).fh)

    async def create(self, path: str, flags: int = os.O_WRONLY, mode: int = 0o644) -> int:
        opened, _ = await self.operations.create(*await self.split(path), mode, flags, caller(WRITER))
        return int(opened.fh)

    async def finish(self, fh: int) -> None:
        """close(2)."""
        try:
            await self.flush(fh)
        finally:
            await self.release(fh)

    async def save(self, path: str, data: bytes) -> None:
        """Replace the content of an existing file in place."""
        fh = await self.open(path, os.O_WRONLY | os.O_TRUNC)
        await self.write(fh, 0, data)
        await self.finish(fh)

    async def add(self, path: str, data: bytes) -> None:
        """Create a file with this content."""
        fh = await self.create(path)
        await self.write(fh, 0, data)
        await self.finish(fh)

    async def content(self, path: str, pid: int = READER) -> bytes:
        fh = await self.open(path, pid=pid)
        data = await self.read(fh, 0, 1 << 20)
        await self.release(fh)
        return data

    async def set(self, inode: int, fh: int | None = None, pid: int = WRITER, **values: int) -> Any:
        """setattr of the given members of struct stat, such as st_size=0."""
        fields = ("mode", "uid", "gid", "size", "atime", "mtime", "ctime")
        wanted = {f"update_{name}": f"st_{name}" in values or f"st_{name}_ns" in values for name in fields}
        attrs = pyfuse3.EntryAttributes()
        for name, value in values.items():
            setattr(attrs, name, value)
        setattr_fields: Any = SimpleNamespace(**wanted)
        return await self.operations.setattr(inode, attrs, setattr_fields, fh, caller(pid))
