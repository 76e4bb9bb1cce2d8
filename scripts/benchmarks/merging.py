"""A save that has to be merged, compared with one that is stored as typed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count

from store import Store, layout
from store.commit.write_request import Writer, WriteRequest
from store.disk.file import Stamp
from store.history.authors import Author
from store.path_kinds import classify_path


def putting(store: Store, session_id: str, *, stale: bool) -> Callable[[], float]:
    """Read a document, edit its title and save it; if `stale`, after another writer saved. Times the save."""
    place = classify_path(f"sessions/{session_id}/{layout.SESSION}")
    numbers = count()

    def put() -> float:
        number = next(numbers)
        with (store.home / place.path).open("rb") as file:
            stamp, raw = Stamp.of(os.fstat(file.fileno())), file.read()
        if stale:
            store.update(session_id, lambda session: session.metadata.update(step=str(number)))
        writer = Writer(Author("mount", "bench"), opened=(stamp,))
        head, _, rest = raw.partition(b'"title": "')
        edited = head + b'"title": "' + str(number).encode() + rest[rest.index(b'"') :]
        began = time.perf_counter()
        result = store.names.commit(WriteRequest(place, edited, on_conflict="merge", writer=writer))
        seconds = time.perf_counter() - began
        assert result.is_changed
        assert (result.draft is not None) == stale
        return seconds * 1000

    return put
