"""A few kills of a daemon under ten writers and a reader; scripts/torture makes hundreds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

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


def test_a9_a_slow_mount_fails_the_attack_after_the_check_for_lost_writes(tmp_path: Path) -> None:
    """Both faults are found: no mount is in time here, and an acknowledged write is missing."""
    storm = Storm(tmp_path, answer_s=0.0)
    try:
        with pytest.raises(AssertionError, match=r"nothing was lost, but .*mounting took"):
            storm.rage(1, random.Random(1))
        storm.acknowledged(6).write_text("6-000000000\n")
        with pytest.raises(AssertionError, match="1 acknowledged writes of writer 6 are lost"):
            storm.rage(1, random.Random(1))
    finally:
        storm.end()
