"""Power cuts of a disk: what was written and not flushed is lost in part, and nothing acknowledged with it.

Ten writers, six through a mount and four by API, write to a home on a disk that records every write
and flush. Each write that reported success is noted with the number of events that had reached the
disk by then. A cut after that number must leave it: documents, attachments, state, logs. The history
may lack the versions of the last seconds, but has no gaps before, and gets the present ones.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
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
_TITLES = {4: "s4", 9: "s9"}  # writers of documents, and their sessions: each title is a version


class Acknowledged(NamedTuple):
    writer: int
    number: str
    position: int  # events that had reached the disk when the write returned


def record(place: Path, seconds: float) -> tuple[Recording, list[Acknowledged], int]:
    """Let all writers write. Also returns the number of events before the first of them began."""
    disk = RecordedDisk(place, DISK_BYTES)
    done: list[Acknowledged] = []
    with disk.mounted():
        home = disk.path / "home"
        mount = Mounted(home, place / "mnt", place / "log.txt")
        mount.path.mkdir()
        _fill(home)
        mount.mount()
        try:
            start = disk.position
            with Store.open(home, background=False) as store:
                _write(disk, [*mount_writers(mount.path), *api_writers(store)], seconds, done)
        finally:
            mount.unmount()
            mount.ended()
    assert {item.writer for item in done} == {*range(BY_MOUNT + BY_API)}, "a writer was never acknowledged"
    return Recording.of(disk), done, start


def _fill(home: Path) -> None:
    with Store.open(home, background=False) as store:
        for number in range(10):
            store.save(make_session(f"s{number}"))
        store.state.save_markdown("notes", "shared", "")
        store.state.save_json("facts", "f7", "")


def _write(disk: RecordedDisk, works: list[Callable[[str], object]], seconds: float, done: list[Acknowledged]) -> None:
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
            done.append(Acknowledged(writer, name, disk.position))
            time.sleep(PAUSE_S)

    threads = [threading.Thread(target=live, args=(writer,)) for writer in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- after a cut -----------------------------------------------------------------------------------


def check_cut(recording: Recording, done: list[Acknowledged], position: int, chance: random.Random) -> None:
    """Mount what a cut leaves, open the home, and look for everything that was acknowledged before."""
    with scratch(in_memory=True) as place:
        image, path = place / "image", place / "disk"
        path.mkdir()
        recording.cut(image, position, chance)
        with mounted_image(image, path), Store.open(path / "home", background=False) as store:
            require_sound(store)
            for writer in range(BY_MOUNT + BY_API):
                known = [item.number for item in done if item.writer == writer and item.position <= position]
                _check_writer(store, path / "home", writer, known)


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
        _check_versions(store, _TITLES[writer], known)


def _check_versions(store: Store, session_id: str, known: list[str]) -> None:
    """The history has the versions up to one that reached the disk, and the present one."""
    versions = store.history.log(session_id, limit=len(known) + 100)
    titles = [store.history.load(version).title for version in reversed(versions)]
    session = store.load(session_id)
    assert session is not None
    assert titles[-1] == session.title, "the present version is not in the history"
    kept = [title for title in titles[:-1] if title in known]
    assert kept == known[: len(kept)], f"versions are lost: {sorted({*known[: len(kept)]} - {*kept})[:3]}"


def cuts(seed: int) -> Iterator[Case]:
    chance = random.Random(seed)
    with scratch() as place:
        recording, done, start = record(place, SECONDS)
        for number in range(CUTS):
            position = chance.randint(start, len(recording.events))
            own = random.Random(chance.random())
            yield Case(f"cut {number}", partial(check_cut, recording, done, position, own))
