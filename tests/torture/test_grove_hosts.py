"""A small battle of the attack `grove-hosts`, within seconds."""

from __future__ import annotations

import pytest

from tests.torture.hosts.battles import fight_on_one_machine
from tests.torture.hosts.three_hosts import Amounts


@pytest.mark.timeout(600)
def test_three_hosts_lose_nothing_and_do_nothing_twice() -> None:
    """Counters, appends, saves, merged saves, mail with six consumers, deletions: all at the same time."""
    found = fight_on_one_machine(Amounts(counted=50, appended=10, merged=4, saved=4, sent=5, deleted=2))
    assert sum(report["sure"] for report in found["count"]) == 150
    assert sum(map(len, found["drain"])) == 15
