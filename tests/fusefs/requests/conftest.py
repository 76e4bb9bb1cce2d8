"""A mount's handlers on a store with one session, and a recorder instead of the kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fusefs.requests import kernel_cache
from store import Store
from tests.builders import make_session
from tests.fusefs.requests.harness import FakeKernel, HandlerMount


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    fake = FakeKernel()
    monkeypatch.setattr(kernel_cache, "pyfuse3", fake)
    return fake


@pytest.fixture
def mount(store: Store, kernel: FakeKernel) -> Iterator[HandlerMount]:
    """Session `root` with the title "Before"."""
    store.save(make_session("root", title="Before"))
    opened = HandlerMount(store)
    yield opened
    opened.close()
