"""Power cuts of a disk: what was written and not flushed is lost in part, and nothing acknowledged with it.

Ten writers, six through a mount and four by API, write to a home on a disk that records every write
and flush. Each write that reported success is noted with the number of events that had reached the
disk by then. A cut after that number must leave it: documents, attachments, state, logs. The history
may lack the versions of the last seconds, but has no gaps before, and gets the present ones. Somebody
takes snapshots: one that was acknowledged must be there, with every version that was there before it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from store import Busy, Store
from tests.builders import make_session
from tests.torture.attack import Case
from tests.torture.block_layer import RecordedDisk, Recording, mounted_image
from tests.torture.kill_storm import BY_API, BY_MOUNT, REPLACING, api_writers, found_by, mount_writers
from tests.torture.mounts import Mounted
from tests.torture.places import require_sound, scratch

CUTS = 200
SECONDS = 20.0  # of writing
DISK_BYTES = 96 << 20
PAUSE_S = 0.01
SNAPSHOT_EVERY_S = 0.3
_TITLES = {4: "s4", 9: "s9"}  # writers of documents, and their sessions: each title is a version


class Acknowledged(NamedTuple):
    writer: int
    number: str
    position: int  # events that had reached the disk when the write returned


class TakenSnapshot(NamedTuple):
    name: str
    versions: int  # writes that had been acknowledged when it was begun
    position: int


@dataclass
class Written:
    """What was acknowledged, in order. `start` is the number of events before the first write began."""

    done: list[Acknowledged] = field(default_factory=list)
    snapshots: list[TakenSnapshot] = field(default_factory=list)
    start: int = 0

    def before(self, position: int, writer: int) -> list[str]:
        """The acknowledged writes of a writer that a cut after `position` events must leave."""
        return [item.number for item in self.done if item.writer == writer and item.position <= position]

    def in_snapshots(self, position: int, writer: int) -> list[str]:
        """Those whose versions a cut must leave: of the snapshots acknowledged before it."""
        count = max((taken.versions for taken in self.snapshots if taken.position <= position), default=0)
        return [item.number for item in self.done[:count] if item.writer == writer]


def record(place: Path, seconds: float) -> tuple[Recording, Written]:
    """Let all writers write."""
    disk = RecordedDisk(place, DISK_BYTES)
    written = Written()
    with disk.mounted():
        home = disk.path / "home"
        mount = Mounted(home, place / "mnt", place / "log.txt")
        mount.path.mkdir()
        _fill(home)
        mount.mount()
        try:
            written.start = disk.position
            with Store.open(home, background=False) as store:
                _write(disk, store, [*mount_writers(mount.path), *api_writers(store)], seconds, written)
        finally:
            mount.unmount()
            mount.ended()
    writers = {item.writer for item in written.done}
    assert writers == {*range(BY_MOUNT + BY_API)}, "a writer was never acknowledged"
    assert any(taken.versions for taken in written.snapshots), "no snapshot was acknowledged"
    return Recording.of(disk), written


def _fill(home: Path) -> None:
    with Store.open(home, background=False) as store:
        for number in range(10):
            store.save(make_session(f"s{number}"))
        store.state.save_markdown("notes", "shared", "")
        store.state.save_json("facts", "f7", "")


def _write(
    disk: RecordedDisk, store: Store, works: list[Callable[[str], object]], seconds: float, written: Written
) -> None:
    ends = time.monotonic() + seconds

    def live(writer: int) -> None:
        number = 0
        while time.monotonic() < ends:
            number += 1
            name = f"{writer}-{number:09}"
            try:
                works[writer](name)
            except (OSError, Busy):
                continue  # not acknowledged
            written.done.append(Acknowledged(writer, name, disk.position))
            time.sleep(PAUSE_S)

    def take_snapshots() -> None:
        number = 0
        while time.monotonic() < ends:
            time.sleep(SNAPSHOT_EVERY_S)
            number, versions = number + 1, len(written.done)
            with suppress(Busy):
                store.history.snapshot(f"snapshot-{number}")
                written.snapshots.append(TakenSnapshot(f"snapshot-{number}", versions, disk.position))

    threads = [threading.Thread(target=live, args=(writer,)) for writer in range(len(works))]
    threads.append(threading.Thread(target=take_snapshots))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- after a cut -----------------------------------------------------------------------------------


def check_cut(recording: Recording, written: Written, position: int, chance: random.Random) -> None:
    """Mount what a cut leaves, open the home, and look for everything that was acknowledged before."""
    with scratch(in_memory=True) as place:
        image, path = place / "image", place / "disk"
        path.mkdir()
        recording.cut(image, position, chance)
        with mounted_image(image, path), Store.open(path / "home", background=False) as store:
            _check_history(store, written, position)  # as it is: a repair would add the present versions
            require_sound(store)
            for writer in range(BY_MOUNT + BY_API):
                _check_writer(store, path / "home", writer, written.before(position, writer))


def _check_writer(store: Store, home: Path, writer: int, known: list[str]) -> None:
    if not known:
        return
    found = found_by(store, home, writer)
    if writer in REPLACING:
        assert max(found) >= known[-1], f"writer {writer}: {known[-1]} is lost, found {max(found)}"
    else:
        missing = [number for number in known if number not in found]
        assert not missing, f"{len(missing)} acknowledged writes of writer {writer} are lost: {missing[:3]}"
    if writer in _TITLES:
        newest = store.history.newest(_TITLES[writer])
        assert newest is not None, "the whole history is lost"
        assert {store.history.load(newest).title} == found, "the present version is not in the history"


def _check_history(store: Store, written: Written, position: int) -> None:
    """Every acknowledged snapshot is there, with the versions before it, and no version before another is lost."""
    taken = {snapshot.name for snapshot in written.snapshots if snapshot.position <= position}
    lost = taken - {snapshot.name for snapshot in store.history.snapshots()}
    assert not lost, f"acknowledged snapshots are lost: {sorted(lost)[:3]}"
    for writer, session_id in _TITLES.items():
        known = written.before(position, writer)
        if not known:
            continue
        titles = _titles_in_history(store, session_id, len(written.done) + 100)
        missing = [number for number in written.in_snapshots(position, writer) if number not in titles]
        assert not missing, f"{len(missing)} versions of {session_id} in a snapshot are lost: {missing[:3]}"
        # The newest may have been found on disk when the home was opened, after a gap.
        kept = [title for title in titles[:-1] if title in known]
        assert kept == known[: len(kept)], f"versions are lost: {sorted({*known[: len(kept)]} - {*kept})[:3]}"


def _titles_in_history(store: Store, session_id: str, limit: int) -> list[str]:
    versions = store.history.log(session_id, limit=limit)
    return [store.history.load(version).title for version in reversed(versions)]


def cuts(seed: int) -> Iterator[Case]:
    chance = random.Random(seed)
    with scratch() as place:
        recording, written = record(place, SECONDS)
        for number in range(CUTS):
            position = chance.randint(written.start, len(recording.events))
            own = random.Random(chance.random())
            yield Case(f"cut {number}", partial(check_cut, recording, written, position, own))
