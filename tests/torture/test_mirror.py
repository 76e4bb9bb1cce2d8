"""Some changes of `scripts/torture mirror`."""

from __future__ import annotations

from tests.torture import mirror


def test_the_mount_shows_what_the_disk_has_after_each_change() -> None:
    assert mirror.compare(150, 5) > 50
