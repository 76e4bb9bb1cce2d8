"""What a view is made of: the one shape of everything that exists only in the mount.

A view answers for the paths below its own top; "" is the top itself. Whatever it shows states its exact size
without being rendered, and one name can be looked at without making up the whole listing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from store.errors import Generated


@dataclass(frozen=True, slots=True)
class VirtualDir:
    mtime_ns: int
    is_open: bool = False  # whether items may be moved in and out: the kernel asks the mode before it asks us
    is_fixed: bool = False  # it stays as it is for as long as the mount does


@dataclass(frozen=True, slots=True)
class VirtualLink:
    target: str  # relative, so that it leads into sessions/ wherever the mount is
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class VirtualFile:
    """A file that is made when it is read. Equal `version`, equal bytes: exactly `size` of them."""

    size: int
    mtime_ns: int
    version: str
    render: Callable[[], bytes]  # may be slow, and is called in a thread; other than `size` bytes: it changed since
    is_cacheable: bool = True  # False: made anew at every look, so the kernel is not to remember it


Item = VirtualDir | VirtualLink | VirtualFile


class View(ABC):
    """One directory at the top of the mount."""

    @abstractmethod
    def find(self, path: str) -> Item | None:
        """What a path leads to: a short indexed read. None if there is nothing."""

    @abstractmethod
    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        """What a directory lists, each name once; never documents read for it. Called in a thread."""

    def is_slow(self, path: str) -> bool:
        """Whether to find this may take more than a moment: then it is done in a thread."""
        return False

    def move(self, source: str, target: str) -> None:
        """What `mv` of an item means, where it means anything."""
        raise Generated(f"{source} is a view and cannot be changed")
