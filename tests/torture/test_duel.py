"""Twenty seconds of the duel; `scripts/torture duel` runs five minutes."""

from __future__ import annotations

import pytest

from tests.torture.duel import duel, duel_across_hosts, ways


@pytest.mark.timeout(600)
def test_nothing_is_lost_and_nothing_refused_while_an_agent_and_people_write() -> None:
    """Every way of editing at once, through two mounts: each has saved, and the agent was not held up."""
    saves = duel(20.0)
    assert all(saves[name] for name in (*ways(), "agent")), saves


@pytest.mark.timeout(600)
def test_nothing_is_lost_and_nothing_refused_while_the_agent_is_on_another_host() -> None:
    """The same with the people on one host of a grove, with two mounts, and the agent on another."""
    saves = duel_across_hosts(20.0)
    assert all(saves[name] for name in (*ways(), "agent")), saves
