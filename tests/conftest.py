"""Fixtures for all tests: an open store that must be clean at the end. An unexpected warning fails a test."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from store import Store

# Reproducible, and without deadlines for busy machines. GROVEFS_TEST_RANDOM=1 tests random examples.
settings.register_profile("suite", deadline=None, derandomize=not os.environ.get("GROVEFS_TEST_RANDOM"))
settings.load_profile("suite")

# A background job ignores SIGINT, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    """A store without background housekeeping. The test fails if `check` is not clean at the end."""
    with Store.open(home, background=False) as opened:
        yield opened
        report = opened.check()
        assert report.is_clean, "\n".join(map(str, report.findings))


@pytest.fixture(autouse=True)
def no_unexpected_warnings(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if the store logs a warning, unless the test is marked `@pytest.mark.warns`."""
    yield
    if request.node.get_closest_marker("warns") is None:
        warnings = [r.getMessage() for r in caplog.get_records("call") if r.levelno >= logging.WARNING]
        assert not warnings, warnings
