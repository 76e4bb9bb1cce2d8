"""The interface of views: directories, links and files that exist only in the mount.

A view serves the paths below its own top directory; "" is the top directory itself. Every file
states its exact size without being rendered. Looking up one name does not list its directory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from store.errors import Generated


@dataclass(frozen=True, slots=True)
class VirtualDir:
    mtime_ns: int
    is_writable: bool = False  # links may be moved in and out; the kernel checks the mode before it asks us
    is_fixed: bool = False  # never changes while mounted
    mode: int | None = None  # permissions of a directory that has its own; None: those of all views
    owner: tuple[int, int] | None = None  # user and group id, if it has its own


@dataclass(frozen=True, slots=True)
class VirtualLink:
    target: str  # relative, to lead into sessions/ wherever the mount is
    mtime_ns: int
    is_public: bool = False  # shown to every user of a shared mount: it leads to a view, which hides what is private


@dataclass(frozen=True, slots=True)
class VirtualFile:
    """A file rendered on read. An equal `version` means equal bytes, exactly `size` of them."""

    size: int
    mtime_ns: int
    version: str
    render: Callable[[], bytes]  # may be slow; runs in a worker thread; another length means the source changed
    is_cacheable: bool = True  # False: rendered at every lookup, so the kernel must not cache it
    mode: int | None = None  # permissions of a file that has its own; None: those of all views
    owner: tuple[int, int] | None = None  # user and group id, if it has its own
    open: Callable[[], int] | None = None  # a descriptor of the file to read instead of rendering it
    source: str | None = None  # path of the session it shows; other users see it if they may read that


Item = VirtualDir | VirtualLink | VirtualFile


class View(ABC):
    """One directory at the top of the mount."""

    is_listed: bool = True  # False: it exists when it is named, and tools that walk the mount do not find it

    @abstractmethod
    def find(self, path: str) -> Item | None:
        """Look up a path with a short indexed read; None if it does not exist."""

    @abstractmethod
    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        """List a directory, each name once, without reading documents. Runs in a worker thread."""

    def is_slow(self, path: str) -> bool:
        """Whether `find` may take long for this path, and must run in a worker thread."""
        return False

    def is_always_shown(self, path: str) -> bool:
        """Whether a directory is shown to users of a shared mount who may see nothing in it."""
        return not path

    def forget(self) -> None:  # noqa: B027
        """Drop cached texts: past versions were purged. A view without such texts does nothing."""

    def move(self, source: str, target: str) -> None:
        """Apply `mv` of an item, in views where that has a meaning."""
        raise Generated(f"{source} is a generated view and cannot be changed")
