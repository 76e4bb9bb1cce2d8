"""A plain pass-through filesystem with pyfuse3: a baseline for `bench mount`.

Correct, and deliberately naive: the kernel may cache nothing, because another process may change the directory at
any time; every request is a system call on a path; and pyfuse3's own loop waits for the next request.
Usage: passthrough.py SOURCE MOUNTPOINT; runs in the foreground until unmounted.
"""

from __future__ import annotations

import errno
import functools
import inspect
import itertools
import os
import stat
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pyfuse3
import trio

FORBIDDEN = os.O_CREAT | os.O_EXCL


def answering_errno(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Turn OSError into the same errno; any other exception would make pyfuse3 end the mount."""

    @functools.wraps(handler)
    async def answer(*arguments: Any) -> Any:
        try:
            return await handler(*arguments)
        except OSError as error:
            raise pyfuse3.FUSEError(error.errno or errno.EIO) from None

    return answer


class Passthrough(pyfuse3.Operations):
    """Inode numbers are assigned on first use; `paths` maps inode to current path, `nodes` path to inode."""

    enable_writeback_cache = False

    def __init__(self, source: str) -> None:
        super().__init__()
        self.paths: dict[int, str] = {pyfuse3.ROOT_INODE: source}
        self.nodes: dict[str, int] = {source: pyfuse3.ROOT_INODE}
        self.lookups: Counter[int] = Counter()
        self.listings: dict[int, tuple[str, list[str]]] = {}
        self._numbers = itertools.count(pyfuse3.ROOT_INODE + 1)
        for name, handler in inspect.getmembers(self, inspect.iscoroutinefunction):
            setattr(self, name, answering_errno(handler))

    def below(self, parent: int, name: bytes) -> str:
        return f"{self.paths[parent]}/{os.fsdecode(name)}"

    def entry(self, path: str) -> pyfuse3.EntryAttributes:
        """Attributes of a path; assigns an inode number if it has none."""
        info = os.lstat(path)
        if path not in self.nodes:
            self.nodes[path] = next(self._numbers)
            self.paths[self.nodes[path]] = path
        return attributes(info, self.nodes[path])

    def looked_up(self, path: str) -> pyfuse3.EntryAttributes:
        entry = self.entry(path)
        self.lookups[entry.st_ino] += 1
        return entry

    def gone(self, path: str) -> None:
        """Release a path; its inode stays until the kernel forgets it."""
        self.nodes.pop(path, None)

    # -- names

    async def lookup(self, parent: int, name: bytes, ctx: Any) -> pyfuse3.EntryAttributes:
        return self.looked_up(self.below(parent, name))

    async def forget(self, inode_list: Any) -> None:
        for inode, count in inode_list:
            self.lookups[inode] -= count
            if self.lookups[inode] <= 0 and inode != pyfuse3.ROOT_INODE:
                del self.lookups[inode]
                path = self.paths.pop(inode)
                if self.nodes.get(path) == inode:
                    del self.nodes[path]

    async def getattr(self, inode: int, ctx: Any) -> pyfuse3.EntryAttributes:
        return attributes(os.lstat(self.paths[inode]), inode)

    async def readlink(self, inode: int, ctx: Any) -> bytes:
        return os.fsencode(os.readlink(self.paths[inode]))

    async def mkdir(self, parent: int, name: bytes, mode: int, ctx: Any) -> pyfuse3.EntryAttributes:
        path = self.below(parent, name)
        os.mkdir(path, mode & ~ctx.umask)
        return self.looked_up(path)

    async def rmdir(self, parent: int, name: bytes, ctx: Any) -> None:
        os.rmdir(self.below(parent, name))
        self.gone(self.below(parent, name))

    async def unlink(self, parent: int, name: bytes, ctx: Any) -> None:
        os.unlink(self.below(parent, name))
        self.gone(self.below(parent, name))

    async def symlink(self, parent: int, name: bytes, target: bytes, ctx: Any) -> pyfuse3.EntryAttributes:
        path = self.below(parent, name)
        os.symlink(os.fsdecode(target), path)
        return self.looked_up(path)

    async def rename(self, parent: int, name: bytes, to: int, new_name: bytes, flags: int, ctx: Any) -> None:
        if flags:
            raise pyfuse3.FUSEError(errno.EINVAL)
        old, new = self.below(parent, name), self.below(to, new_name)
        os.rename(old, new)
        self.gone(new)
        for path in [p for p in self.nodes if p == old or p.startswith(f"{old}/")]:
            node = self.nodes.pop(path)
            self.paths[node] = new + path[len(old) :]
            self.nodes[self.paths[node]] = node

    # -- directories

    async def opendir(self, inode: int, ctx: Any) -> int:
        fh = next(self._numbers)
        self.listings[fh] = (self.paths[inode], os.listdir(self.paths[inode]))
        return fh

    async def readdir(self, fh: int, start: int, token: Any) -> None:
        directory, names = self.listings[fh]
        for number in range(start, len(names)):
            try:
                entry = self.entry(f"{directory}/{names[number]}")
            except FileNotFoundError:
                continue
            if not pyfuse3.readdir_reply(token, os.fsencode(names[number]), entry, number + 1):
                return
            self.lookups[entry.st_ino] += 1

    async def releasedir(self, fh: int) -> None:
        del self.listings[fh]

    # -- files

    async def open(self, inode: int, flags: int, ctx: Any) -> pyfuse3.FileInfo:
        return pyfuse3.FileInfo(fh=os.open(self.paths[inode], flags & ~FORBIDDEN))

    async def create(self, parent: int, name: bytes, mode: int, flags: int, ctx: Any) -> Any:
        path = self.below(parent, name)
        fd = os.open(path, flags | os.O_CREAT, mode & ~ctx.umask)
        return pyfuse3.FileInfo(fh=fd), self.looked_up(path)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        return os.pread(fh, size, off)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        return os.pwrite(fh, buf, off)

    async def fsync(self, fh: int, datasync: bool) -> None:
        os.fsync(fh)

    async def release(self, fh: int) -> None:
        os.close(fh)

    async def setattr(self, inode: int, attr: Any, fields: Any, fh: int | None, ctx: Any) -> pyfuse3.EntryAttributes:
        path = self.paths[inode]
        if fields.update_size:
            os.truncate(path if fh is None else fh, attr.st_size)
        if fields.update_mode:
            os.chmod(path, stat.S_IMODE(attr.st_mode))
        if fields.update_uid or fields.update_gid:
            owner = (attr.st_uid if fields.update_uid else -1, attr.st_gid if fields.update_gid else -1)
            os.chown(path, *owner, follow_symlinks=False)
        if fields.update_atime or fields.update_mtime:
            now = os.lstat(path)
            atime_ns = attr.st_atime_ns if fields.update_atime else now.st_atime_ns
            mtime_ns = attr.st_mtime_ns if fields.update_mtime else now.st_mtime_ns
            os.utime(path, ns=(atime_ns, mtime_ns), follow_symlinks=False)
        return await self.getattr(inode, ctx)

    async def statfs(self, ctx: Any) -> pyfuse3.StatvfsData:
        disk, answer = os.statvfs(self.paths[pyfuse3.ROOT_INODE]), pyfuse3.StatvfsData()
        for name in ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail"):
            setattr(answer, name, getattr(disk, name))
        return answer


COPIED = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_rdev", "st_size", "st_atime_ns", "st_mtime_ns", "st_ctime_ns")


def attributes(info: os.stat_result, inode: int) -> pyfuse3.EntryAttributes:
    entry = pyfuse3.EntryAttributes()
    for name in COPIED:
        setattr(entry, name, getattr(info, name))
    entry.st_ino, entry.st_blksize, entry.st_blocks = inode, info.st_blksize, info.st_blocks
    entry.entry_timeout = entry.attr_timeout = 0
    return entry


def main(source: str, mountpoint: str) -> None:
    options = {*pyfuse3.default_options, "fsname=passthrough"}
    pyfuse3.init(Passthrough(os.path.abspath(source)), mountpoint, options)
    try:
        trio.run(pyfuse3.main)
    finally:
        pyfuse3.close(unmount=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
