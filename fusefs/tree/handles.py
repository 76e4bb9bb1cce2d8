"""Open files: a version to read, a write buffer, or the file itself."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from typing import Protocol

from fusefs.fast import FAST_HANDLE
from fusefs.tree.fast_path import FastOpen, FastPath
from fusefs.tree.nodes import Listing, Node, Nodes
from fusefs.tree.processes import UNKNOWN, Process
from store.errors import Conflict
from store.path_kinds import PathInfo, PathKind


class Handle(Protocol):
    node: Node

    def read(self, offset: int, size: int) -> bytes: ...
    def write(self, offset: int, data: bytes) -> int: ...
    def close(self) -> None: ...


@dataclass
class FileHandle:
    """A descriptor of the file itself: a version, a log or a foreign file."""

    node: Node
    fd: int
    appends: bool = False
    has_written: bool = False
    is_new: bool = False  # created through this descriptor; its name is not synced yet
    is_unsynced: bool = False  # written since the last sync
    process: Process = UNKNOWN  # that opened it
    path: str = ""  # of a version, when it was opened
    end: int | None = None  # of a version: others may append to the same file
    is_closing: bool = False  # close(2) was called. It does not wait for the release
    log: PathInfo | None = None  # the log that it was opened as
    saved_as: str = ""  # the document that the file was renamed onto, with the bytes it had then

    @property
    def place(self) -> PathInfo:
        """The path of the file; of a log that an editor has renamed to `NAME~`, the one it was opened as."""
        current = self.node.disk_path
        return self.log if self.log is not None and current.kind is not PathKind.LOG else current

    def read(self, offset: int, size: int) -> bytes:
        self.is_closing = False  # only a copy of the descriptor was closed
        return os.pread(self.fd, size if self.end is None else max(0, min(size, self.end - offset)), offset)

    def write(self, offset: int, data: bytes) -> int:
        self.require_unsaved()
        self.has_written = self.is_unsynced = True
        self.node.note_written()
        # The kernel computes the offset of an append from its cached size, which may be outdated.
        return os.write(self.fd, data) if self.appends else os.pwrite(self.fd, data, offset)

    def require_unsaved(self) -> None:
        """Raise Conflict if nothing that is written here could reach the document that the file was renamed onto."""
        if self.saved_as:
            raise Conflict(f"{self.saved_as} has the bytes that the file had when it was renamed; open it again")

    def close(self) -> None:
        os.close(self.fd)


@dataclass
class DataHandle:
    """A generated file, rendered when it was opened."""

    node: Node
    data: bytes

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def write(self, offset: int, data: bytes) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def close(self) -> None:
        pass


@dataclass
class ReadOnlyHandle:
    """A descriptor of a live file that a view shows, up to the size it had at the lookup."""

    node: Node
    fd: int
    end: int

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.fd, max(0, min(size, self.end - offset)), offset)

    def write(self, offset: int, data: bytes) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def close(self) -> None:
        os.close(self.fd)


@dataclass
class BufferHandle:
    """An open descriptor of a write buffer."""

    node: Node
    appends: bool = False
    is_reader: bool = False  # opened read-only: closing it commits nothing

    def read(self, offset: int, size: int) -> bytes:
        assert self.node.buffer is not None
        return self.node.buffer.read(offset, size)

    def write(self, offset: int, data: bytes) -> int:
        assert self.node.buffer is not None
        return self.node.buffer.append(data) if self.appends else self.node.buffer.write(offset, data)

    def close(self) -> None:
        pass


class Handles:
    """File handle numbers of open files and directories."""

    def __init__(self, nodes: Nodes, fast: FastPath) -> None:
        self._nodes = nodes
        self._fast = fast
        self._next = 1
        self._open: dict[int, Handle] = {}
        self._listings: dict[int, tuple[Node, Listing]] = {}
        self._viewers: dict[int, int] = {}  # handle of a listing → the process that opened it

    def add(self, handle: Handle) -> int:
        self._next += 1
        self._open[self._next] = handle
        return self._next

    def get(self, number: int) -> Handle:
        if not number & FAST_HANDLE:
            return self._open[number]
        opened = self._fast.find(number)
        if opened is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._fast_handle(opened)

    def _fast_handle(self, opened: FastOpen) -> FileHandle:
        """A version that the C extension opened. The extension closes it."""
        node, process = self._nodes.get(opened.node), self._fast.process_of(opened)
        return FileHandle(node, opened.fd, process=process, path=node.path, end=opened.size)

    def refuse_writes(self, node: Node, path: str) -> None:
        """A file was renamed onto this document: what its open descriptors write from now on would be lost."""
        for handle in self._open.values():
            if isinstance(handle, FileHandle) and handle.node is node:
                handle.saved_as = path

    def find_file(self, node: Node) -> FileHandle | None:
        """An open descriptor of the node: the only access to a file whose name was removed."""
        own = next((h for h in self._open.values() if isinstance(h, FileHandle) and h.node is node), None)
        if own is not None:
            return own
        opened = next((o for o in self._fast.open_files() if o.node == node.inode), None)
        return self._fast_handle(opened) if opened is not None else None

    def older_readers(self, node: Node) -> list[Process]:
        """Processes that have another version of the node's document open."""
        handles = [h for h in self._open.values() if isinstance(h, FileHandle) and h.path == node.path]
        readers = [h.process for h in handles if h.node is not node and not h.is_closing]
        # Those have no FLUSH, but their RELEASE is counted when it is received: before most later requests.
        # The kernel holds it back while twelve others wait in its background queue.
        for opened in self._fast.open_files():
            other = self._nodes.find(opened.node)
            if other is not None and other is not node and other.path == node.path:
                readers.append(self._fast.process_of(opened))
        return readers

    def buffered(self, path: str) -> list[Node]:
        """Private nodes with an open handle for this path."""
        nodes = {h.node.inode: h.node for h in self._open.values() if isinstance(h, BufferHandle)}
        return [node for node in nodes.values() if node.buffer is not None and node.buffer.path_info.path == path]

    def buffered_below(self, directory: str) -> list[Node]:
        """Private nodes with an open handle for a path below this directory."""
        nodes = {h.node.inode: h.node for h in self._open.values() if isinstance(h, BufferHandle)}
        below = f"{directory}/"
        return [n for n in nodes.values() if n.buffer is not None and n.buffer.path_info.path.startswith(below)]

    def pop(self, number: int) -> Handle:
        return self._open.pop(number)

    def add_listing(self, node: Node, listing: Listing, viewer: int) -> int:
        self._next += 1
        self._listings[self._next] = node, listing
        self._viewers[self._next] = viewer
        return self._next

    def relist(self, number: int, listing: Listing) -> None:
        self._listings[number] = self._listings[number][0], listing

    def listing(self, number: int) -> tuple[Node, Listing]:
        return self._listings[number]

    def viewer(self, number: int) -> int:
        return self._viewers[number]

    def drop_listing(self, number: int) -> None:
        del self._listings[number], self._viewers[number]

    def close_all(self) -> None:
        for handle in self._open.values():
            handle.close()
        self._open.clear()
