"""Full and read-only disks, a few cases; scripts/torture runs all of them."""

from __future__ import annotations

from functools import partial

import pytest

from tests.crash.scenarios import SCENARIOS
from tests.torture.disks import Failing, Filling
from tests.torture.places import failing_disk, scratch, small_disk
from tests.torture.writers import WRITERS

CHANGES = {scenario.name: scenario for scenario in SCENARIOS}
WRITES = {writer.name: writer for writer in WRITERS}


def test_a_full_disk_loses_nothing() -> None:
    """Rule 3, with the free pages or inodes that the middle of a change needs, by API and through the mount."""
    with scratch() as place, small_disk(place) as small:
        here = Filling(place, small)
        for name in ("save", "token usage"):
            for pages in (0, 2, 6):
                here.change(CHANGES[name], partial(small.fill, pages))
            here.change(CHANGES[name], partial(small.fill_names, 1))
        here.write(WRITES["edit in place"], partial(small.fill, 4))
        here.write(WRITES["append to a log"], partial(small.fill, 0))


def test_a_read_only_disk_loses_nothing() -> None:
    with scratch() as place, failing_disk(place) as disk:
        here = Failing(place, disk)
        here.change(CHANGES["save"])
        here.write(WRITES["rename-replace"])


def test_the_small_disk_fills_up() -> None:
    with scratch() as place, small_disk(place, size="1m", names=50) as small:
        small.fill(1)
        (small.path / "one").write_bytes(bytes(4096))
        with pytest.raises(OSError, match="No space left"):
            (small.path / "one").write_bytes(bytes(4097))
        small.free()
        small.fill_names(0)
        with pytest.raises(OSError, match="No space left"):
            (small.path / "two").touch()
