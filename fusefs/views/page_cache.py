"""Cache of rendered texts, shared by views that render slowly."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

CACHE_BYTES = 32 << 20  # of rendered text; a page is often read twice, by grep and then by the user


class PageCache:
    """The most recently rendered pages, up to a number of bytes. Thread-safe."""

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit = limit_bytes
        self._size = 0
        self._pages: OrderedDict[Hashable, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def rendered(self, key: Hashable, render: Callable[[], bytes]) -> bytes:
        """The page of a key, rendered unless it is cached. An equal key means equal bytes."""
        data = self.get(key)
        if data is None:
            data = render()
            self.put(key, data)
        return data

    def get(self, key: Hashable) -> bytes | None:
        with self._lock:
            data = self._pages.get(key)
            if data is not None:
                self._pages.move_to_end(key)
            return data

    def put(self, key: Hashable, data: bytes) -> None:
        with self._lock:
            self._size += len(data) - len(self._pages.pop(key, b""))
            self._pages[key] = data
            while self._size > self._limit:
                self._size -= len(self._pages.popitem(last=False)[1])

    def clear(self) -> None:
        with self._lock:
            self._pages.clear()
            self._size = 0

    @property
    def size_bytes(self) -> int:
        return self._size
