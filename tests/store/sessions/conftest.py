"""Fixtures of the session tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from store import Store
from tests.builders import make_grove


@pytest.fixture
def fast_store(home: Path) -> Iterator[Store]:
    """A store that skips fsync, for tests that are not about power loss."""
    with Store.open(home, background=False, durability="normal") as opened:
        yield opened
        report = opened.check()
        assert report.is_clean, "\n".join(map(str, report.findings))


@pytest.fixture
def grove(fast_store: Store) -> Store:
    """Root r with children a, b; a1 below a, a2 below a1; and another root q with a child k."""
    return make_grove(fast_store)
