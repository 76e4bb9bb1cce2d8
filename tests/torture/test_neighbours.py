"""Some of what `scripts/torture plants` tries."""

from __future__ import annotations

import pytest

from tests.torture import neighbours

pytestmark = pytest.mark.warns  # whatever is planted is told of


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
def test_what_is_planted_is_not_followed_and_is_told_once(spot: str, kind: str, while_open: bool) -> None:
    neighbours.planted(spot, kind, while_open=while_open)
