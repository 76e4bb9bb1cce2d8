"""A few cases of `scripts/torture plants`."""

from __future__ import annotations

import pytest

from tests.torture import hostile_files

pytestmark = pytest.mark.warns  # every hostile file is logged


@pytest.mark.parametrize(
    ("spot", "kind", "while_open"),
    [
        ("sessions/root", "link", True),
        ("sessions/root/session.json", "device", False),
        ("sessions/root/runtime.json", "hard-link", False),
        ("sessions/root/attachments/*", "fifo", True),
        ("sessions/root/mailbox/new", "link", False),
        ("state/facts", "link", False),
        ("projects", "link-to-nothing", False),
        ("projects/k/sessions/p/session.json", "fifo", False),
        (".sessions-index.lock", "fifo", False),
        (".grovefs/index.db", "link", False),
        (".grovefs/rejects", "link", True),
    ],
)
def test_hostile_files_are_not_followed_and_reported_once(spot: str, kind: str, while_open: bool) -> None:
    hostile_files.planted(spot, kind, while_open=while_open)
