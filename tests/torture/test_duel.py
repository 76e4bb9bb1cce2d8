"""Twenty seconds of the duel; `scripts/torture duel` runs five minutes.

The duel across hosts runs there only: a save is refused now and then (`grovefs help grove`, known faults).
"""

from __future__ import annotations

import pytest

from tests.torture.duel import duel, ways


@pytest.mark.timeout(600)
def test_nothing_is_lost_and_nothing_refused_while_an_agent_and_people_write() -> None:
    """Every way of editing at once, through two mounts: each has saved, and the agent was not held up."""
    saves = duel(20.0)
    assert all(saves[name] for name in (*ways(), "agent")), saves
