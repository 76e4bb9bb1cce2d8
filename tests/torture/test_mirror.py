"""Some changes of `scripts/torture mirror`."""

from __future__ import annotations

import pytest

from tests.torture import mirror


@pytest.mark.parametrize("without", ["", "fast,loop,ahead,timeouts,pages,listings"])
def test_the_mount_shows_what_the_disk_has_after_each_change(without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROVEFS_WITHOUT", without)
    assert mirror.compare(150, 5) > 50
