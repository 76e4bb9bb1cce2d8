"""The mount's daemon killed at each step of some writers; scripts/torture does it for all of them."""

from __future__ import annotations

import pytest

from tests.torture.steps import STEPS, check_hit, ground, kills_by
from tests.torture.writers import WRITERS

COMMITS = {"write-temp", "sync-temp", "mark", "move", "sync-dir", "index"}


def test_killed_at_any_step_the_mount_comes_back_with_the_old_or_the_new() -> None:
    with ground() as here:
        for writer in WRITERS:
            if writer.name == "edit in place":
                for case in kills_by(here, writer):
                    case.run()
        assert here.through == {"edit in place": True}
        assert set(here.hit) >= COMMITS
        assert set(here.hit) <= STEPS
        with pytest.raises(AssertionError, match="exchange"):  # which this writer does not come by
            check_hit(here.hit)
