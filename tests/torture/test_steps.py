"""The mount's daemon killed at each step of a few writers; scripts/torture runs all of them."""

from __future__ import annotations

import pytest

from tests.torture.steps import STEPS, check_hit, ground, kills_by
from tests.torture.writers import WRITERS

COMMITS = {"write-temp", "sync-temp", "journal", "move", "sync-dir", "index"}


def test_a_kill_at_any_step_leaves_the_old_or_the_new_version() -> None:
    with ground() as here:
        for writer in WRITERS:
            if writer.name == "edit in place":
                for case in kills_by(here, writer):
                    case.run()
        assert here.through == {"edit in place": True}
        assert set(here.hit) >= COMMITS
        assert set(here.hit) <= STEPS
        with pytest.raises(AssertionError, match="exchange"):  # this writer does not use it
            check_hit(here.hit)
