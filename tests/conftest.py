"""Lifetimes: an open store that must be clean when a test is done with it. An unexpected warning fails the test."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from store import Store

# The suite answers the same each time it is asked, on a busy machine too; GROVEFS_TEST_RANDOM=1 looks further.
settings.register_profile("suite", deadline=None, derandomize=not os.environ.get("GROVEFS_TEST_RANDOM"))
settings.load_profile("suite")

# A job in the background ignores Ctrl-C, and so would all that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    """A store whose housekeeping runs only when asked; `check` is clean at the end, or the test fails."""
    with Store.open(home, background=False) as opened:
        yield opened
        report = opened.check()
        assert report.is_clean, "\n".join(map(str, report.findings))


@pytest.fixture(autouse=True)
def no_unexpected_warnings(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Mark a test `@pytest.mark.warns` if it expects the store to warn."""
    yield
    if request.node.get_closest_marker("warns") is None:
        warnings = [r.getMessage() for r in caplog.get_records("call") if r.levelno >= logging.WARNING]
        assert not warnings, warnings
