"""Pages and images that are rendered at lookup, and kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from hashlib import blake2b

from fusefs.views.audience import current_reader
from fusefs.views.base import VirtualFile
from store import Cursor, Location, Store
from store.search.page_facts import embedded_images, image_extension


class RenderedPage:
    """A page that is kept until the next commit, or for some seconds at least."""

    def __init__(self, store: Store, render: Callable[[], bytes], kept_s: float) -> None:
        self._store = store
        self._render = render
        self._kept_s = kept_s
        self._lock = threading.Lock()
        self._known: tuple[Cursor, float, VirtualFile] | None = None  # for the owner

    def get(self) -> VirtualFile:
        """The page for the current reader; that of another user than the owner is not kept."""
        if current_reader() is not None:
            return as_file(self._render())
        with self._lock:
            cursor, now_s = self._store.feed.since().cursor, time.monotonic()
            if self._known is None or (self._known[0] != cursor and now_s > self._known[1]):
                data = self._render()
                took_s = time.monotonic() - now_s
                until_s = now_s + max(self._kept_s, 10 * took_s) if self._kept_s else 0.0
                self._known = cursor, until_s, self._unless_equal(as_file(data))
            return self._known[2]

    def _unless_equal(self, file: VirtualFile) -> VirtualFile:
        """A page that did not change keeps its time."""
        return self._known[2] if self._known is not None and self._known[2].version == file.version else file


def as_file(data: bytes, mtime_ns: int | None = None, source: str | None = None) -> VirtualFile:
    version = blake2b(data, digest_size=12).hexdigest()
    at_ns = time.time_ns() if mtime_ns is None else mtime_ns
    return VirtualFile(len(data), at_ns, version, lambda: data, is_cacheable=False, source=source)


class ImageCache:
    """The images inside the messages of the session that was asked for last: a page asks for all of them in turn."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._key: tuple[Location, str] | None = None
        self._images: dict[str, bytes] = {}

    def find(self, location: Location, stamp: str, name: str) -> bytes | None:
        with self._lock:
            if self._key != (location, stamp):
                self._key, self._images = (location, stamp), images_of(self._store, location)
            return self._images.get(name)


def images_of(store: Store, location: Location) -> dict[str, bytes]:
    """The images inside the messages of a session, by file name."""
    session = store.load(str(location))
    found: dict[str, bytes] = {}
    for index, message in enumerate(session.messages if session else ()):
        if message.content_parts:
            for number, (mime, data) in enumerate(embedded_images(message.model_dump())):
                found[f"{index}-{number}.{image_extension(mime)}"] = data
    return found
