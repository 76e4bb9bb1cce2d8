"""A few power cuts; scripts/torture makes hundreds."""

from __future__ import annotations

import random
from pathlib import Path

from store import Store
from store.path_kinds import classify_path
from tests.builders import make_session
from tests.torture.block_layer import Event, RecordedDisk, Recording
from tests.torture.places import scratch
from tests.torture.power_cuts import DISK_BYTES, Acknowledged, TakenSnapshot, Written, check_cut, record

CUTS = 4


def test_a8_what_was_acknowledged_survives_power_cuts() -> None:
    """Documents, attachments, state, logs and history, while ten writers write."""
    chance = random.Random(1)
    with scratch() as place:
        recording, written = record(place, 2.0)
        positions = [chance.randint(written.start, len(recording.events)) for _ in range(CUTS - 1)]
        for position in (*positions, len(recording.events)):
            check_cut(recording, written, position, chance)


def test_an_acknowledged_snapshot_survives_a_cut_right_after_it() -> None:
    """With every version that it names, though saves themselves do not wait for the history to be synced."""
    with scratch() as place:
        disk, written = RecordedDisk(place, DISK_BYTES), Written()
        with disk.mounted(), Store.open(disk.path / "home", background=False) as store:
            store.save(make_session("s9"))
            for number in range(20):
                title = f"9-{number:09}"
                store.update("s9", lambda session, title=title: setattr(session, "title", title))  # type: ignore[misc]
                written.done.append(Acknowledged(9, title, disk.position))
            store.history.snapshot("taken")
            written.snapshots.append(TakenSnapshot("taken", len(written.done), disk.position))
            position = disk.position
        recording = Recording.of(disk)
        for seed in range(4):
            check_cut(recording, written, position, random.Random(seed))


def test_the_index_follows_a_power_cut_after_the_first_write() -> None:
    """The home was closed cleanly before: that it is open again is on disk before anything is written."""
    with scratch() as place:
        disk = RecordedDisk(place, DISK_BYTES)
        with disk.mounted():
            home = disk.path / "home"
            with Store.open(home, background=False) as store:
                store.save(make_session("s0"))
            with Store.open(home, background=False) as store:
                file = classify_path("sessions/s0/attachments/file")
                store.names.create_empty(file, 0o600)
                store.names.sync_created(file)
                position = disk.position
        recording = Recording.of(disk)
        for seed in range(8):
            check_cut(recording, Written(), position, random.Random(seed))


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
