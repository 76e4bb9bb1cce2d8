"""A few kills of a daemon under ten writers and a reader; scripts/torture makes hundreds."""

from __future__ import annotations

import random

from tests.torture.kill_storm import Storm
from tests.torture.places import scratch

KILLS = 5
PATIENCE_S = 60.0  # on a busy machine


def test_a9_a_killed_daemon_harms_nobody() -> None:
    """Every writer and the reader get an answer, the next mount works, and nothing acknowledged is lost."""
    with scratch() as place:
        storm = Storm(place, PATIENCE_S)
        try:
            storm.rage(KILLS, random.Random(1))
        finally:
            storm.end()
