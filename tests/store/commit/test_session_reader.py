"""Reading the two documents of a session as one version."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from store import Busy, Store
from store.commit import session_reader
from store.disk.disk import Disk
from store.disk.file import File
from store.layout import Location
from tests.builders import make_session


class RewrittenOnEachRead(Disk):
    """A disk where another program replaces session.json after each read, up to `times` times."""

    def __init__(self, home: Path, times: int) -> None:
        super().__init__(home)
        self.path = home / "sessions/s1/session.json"
        self.times = times

    def read(self, path: str, limit: int | None = None, *, start: int = 0) -> File | None:
        file = super().read(path, limit, start=start)
        if path.endswith("session.json") and self.times > 0:
            self.times -= 1
            copy = self.path.with_name("copy")
            copy.write_bytes(self.path.read_bytes())
            os.replace(copy, self.path)
        return file


def read(store: Store, times: int) -> session_reader.DocumentPair:
    disk = RewrittenOnEachRead(store.home, times)
    try:
        return session_reader.read(disk, Location("s1"), 1 << 20)
    finally:
        disk.close()


def test_a_document_replaced_during_the_read_is_read_again(store: Store) -> None:
    store.save(make_session())
    pair = read(store, session_reader.READ_ATTEMPTS - 1)
    assert pair.main is not None
    assert pair.main.data == (store.home / "sessions/s1/session.json").read_bytes()


def test_a_document_modified_continuously_is_busy_and_not_corrupt(store: Store) -> None:
    """Retrying later helps, which Corrupt would deny."""
    store.save(make_session())
    with pytest.raises(Busy, match=r"s1/session\.json: file is being modified continuously"):
        read(store, session_reader.READ_ATTEMPTS)
