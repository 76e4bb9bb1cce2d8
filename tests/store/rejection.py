"""Helpers for tests of rejected input: the error is exact, and no byte has changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from store import Location, Store, StoreError
from tests.builders import files_below, make_document

MAIN, SIDE = "session.json", "runtime.json"
S1 = Location("s1")
MAIN_PATH = "sessions/s1/session.json"
GOOD = make_document("s1")


def open_store(home: Path, **options: Any) -> Store:
    return Store.open(home, background=False, durability="normal", **options)


def is_tmp_empty(home: Path) -> bool:
    return not list((home / ".grovefs" / "tmp").iterdir())


@contextmanager
def rejected(home: Path, kind: type[StoreError], *texts: str) -> Iterator[None]:
    """Expect an error of exactly this kind, with all the texts in its message and no file changed (rule 3)."""
    before = files_below(home)
    with pytest.raises(kind) as caught:
        yield
    assert type(caught.value) is kind
    for text in texts:
        assert text in str(caught.value)
    assert files_below(home) == before
    assert is_tmp_empty(home)
