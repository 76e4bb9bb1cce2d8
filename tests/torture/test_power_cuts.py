"""A few power cuts; scripts/torture makes hundreds."""

from __future__ import annotations

import random
from pathlib import Path

from tests.torture.block_layer import Event, Recording
from tests.torture.places import scratch
from tests.torture.power_cuts import check_cut, record

CUTS = 4


def test_a8_what_was_acknowledged_survives_power_cuts() -> None:
    """Documents, attachments, state, logs and history, while ten writers write."""
    chance = random.Random(1)
    with scratch() as place:
        recording, done, start = record(place, 2.0)
        positions = [chance.randint(start, len(recording.events)) for _ in range(CUTS - 1)]
        for position in (*positions, len(recording.events)):
            check_cut(recording, done, position, chance)


def test_a_cut_keeps_what_was_flushed_and_any_part_of_the_rest(tmp_path: Path) -> None:
    image, log, target = tmp_path / "image", tmp_path / "log", tmp_path / "target"
    image.write_bytes(bytes(4096))
    log.write_bytes(b"a" * 1024 + b"b" * 1024)
    events = [Event(0, 1024, 0), Event(-1, 0, 0), Event(1024, 1024, 1024), Event(-1, 0, 0)]
    recording = Recording(image, log, events)
    seen = set()
    for seed in range(60):
        recording.cut(target, 3, random.Random(seed))
        data = target.read_bytes()
        assert data[:1024] == b"a" * 1024
        seen.add((data[1024], data[1536]))
    assert seen == {(0, 0), (0, 98), (98, 0), (98, 98)}
    recording.cut(target, 4, random.Random(0))
    assert target.read_bytes() == b"a" * 1024 + b"b" * 1024 + bytes(2048)
    recording.cut(target, 0, random.Random(0))
    assert target.read_bytes() == bytes(4096)
