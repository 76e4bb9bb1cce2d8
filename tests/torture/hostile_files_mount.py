"""Hostile files below a mount, and names that are swapped while it is in use.

As for the store alone: nothing is followed, and nothing outside is read or written.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.torture.attack import Case
from tests.torture.hostile_files import (
    PLANTS,
    SECRET,
    SPOTS,
    away,
    fail_if_blocked,
    leaked,
    opened,
    outside_state,
    prepare,
    spot_in,
    use_all,
)
from tests.torture.mounts import Mounted, mounted

# -- through a mount -------------------------------------------------------------------------------------------


def walk(mount: Mounted, *, may_read: bool = False) -> None:
    """Read everything, as a backup does; files that cannot be read give an error."""
    for directory, folders, files in os.walk(mount.path):
        for name in [*folders, *files]:
            path = Path(directory, name)
            with suppress(OSError):
                if stat.S_ISREG(path.lstat().st_mode):
                    text = path.read_text(errors="replace")
                    assert may_read or SECRET not in text, f"{path} was read from outside"


def write_all(mount: Mounted) -> None:
    """Write, append to, chmod, touch, rename and remove everything."""
    for directory, folders, files in os.walk(mount.sessions, topdown=False):
        for name in [*files, *folders]:
            path = Path(directory, name)
            deeds: list[Callable[[], object]] = [
                lambda p=path: os.utime(p, follow_symlinks=False),  # type: ignore[misc]
                lambda p=path: os.chmod(p, 0o600, follow_symlinks=False),  # type: ignore[misc]
                lambda p=path: _append(p),  # type: ignore[misc]
                lambda p=path: p.rename(p.with_name("renamed")),  # type: ignore[misc]
                lambda p=path: p.with_name("renamed").rename(p),  # type: ignore[misc]
                lambda p=path: p.unlink(),  # type: ignore[misc]
                lambda p=path: p.rmdir(),  # type: ignore[misc]
            ]
            for deed in deeds:
                with suppress(OSError, NotImplementedError):
                    deed()


def _append(path: Path) -> None:
    """Append, but not through a link: the kernel would follow it, which is the caller's responsibility."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        os.write(fd, b"{}\n")
    finally:
        os.close(fd)


def planted_below_a_mount(kind: str, *, while_mounted: bool) -> None:
    """Place a file at all paths of one session each, before or after mounting."""

    def fill(home: Path) -> None:
        prepare(home.parent)
        if not while_mounted:
            _plant_all(home, kind)

    with fail_if_blocked(300), mounted(fill, in_memory=True) as mount:
        walk(mount) if while_mounted else None
        outside = mount.home.parent / "outside"
        before = outside_state(outside)
        if while_mounted:
            _plant_all(mount.home, kind)
            before = outside_state(outside)
        may_read = kind == "hard-link"  # a hard-linked file belongs to the home too
        walk(mount, may_read=may_read)
        write_all(mount)
        walk(mount, may_read=may_read)
        assert mount.daemon
        assert kind == "hard-link" or outside_state(outside) == before, "written outside"


def _plant_all(home: Path, kind: str) -> None:
    """Place each file in a separate copy of the session."""
    for number, spot in enumerate(s for s in SPOTS if s.startswith("sessions/")):
        target = home / f"sessions/v{number}"
        shutil.copytree(home / "sessions/root", target, symlinks=True)
        counterpart = home.parent / "outside" / spot_in(home, spot)
        if kind == "hard-link" and counterpart.is_dir():
            continue
        place = target / spot_in(home, spot).removeprefix("sessions/root").strip("/")
        away(place)
        PLANTS[kind](place, counterpart)


def below_a_mount(seed: int) -> Iterator[Case]:
    for kind in PLANTS:
        for late in (False, True):
            name = f"{kind}{' while mounted' if late else ''}"
            yield Case(name, lambda k=kind, w=late: planted_below_a_mount(k, while_mounted=w))  # type: ignore[misc]


# -- swapped while in use ------------------------------------------------------------------------------------------

SWAPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
one, other = (os.fsencode(name) for name in sys.argv[1:3])
while os.getppid() == int(sys.argv[3]):
    libc.renameat2(-100, one, -100, other, 2)
"""


@contextmanager
def swapped(home: Path, spot: str) -> Iterator[None]:
    """A process that swaps two names as fast as it can.

    The link only leads out of the home itself, through a directory that no mount shows: in a mount it is a plain
    link, and the kernel resolves it for the caller.
    """
    path, inside = home / spot, ".grovefs/trash" if spot == ".grovefs/tmp" else ".grovefs/tmp"
    decoy = path.parent / f".decoy-{path.name}"
    decoy.symlink_to(f"{os.path.relpath(home, path.parent)}/{inside}/../../../outside/{spot}")
    process = subprocess.Popen([sys.executable, "-c", SWAPPER, path, decoy, str(os.getpid())])
    try:
        yield
    finally:
        process.kill()
        process.wait()
        if path.is_symlink():
            ctypes.CDLL(None).renameat2(-100, os.fsencode(path), -100, os.fsencode(decoy), 2)
        decoy.unlink(missing_ok=True)


SWAPPED = [
    *("sessions/root", "sessions/root/session.json", "sessions/root/attachments", "sessions/root/children"),
    *("sessions/root/children/child", "sessions/root/mailbox", "state/facts", "projects/k", ".grovefs/tmp"),
    *(".grovefs/trash", ".grovefs/rejects", "sessions"),
]


def swap(spot: str, rounds: int = 6) -> None:
    """Use the store, and a mount where possible, while a name is swapped."""

    def fill(home: Path) -> None:
        prepare(home.parent)

    with fail_if_blocked(240), mounted(fill, in_memory=True) as mount:
        outside = mount.home.parent / "outside"
        before = outside_state(outside)
        stop = threading.Event()
        faults: list[BaseException] = []
        walker = threading.Thread(target=_walk_until, args=(mount, stop, faults))
        with opened(mount.home) as store:
            with swapped(mount.home, spot):
                walker.start()
                try:
                    for _ in range(rounds):
                        _restore(mount.home)
                        use_all(store)
                finally:
                    stop.set()
                    walker.join()
            assert not faults, faults
            assert outside_state(outside) == before, _difference(before, outside_state(outside))
        away(mount.home.parent / "exported")
        assert not leaked(mount.home), leaked(mount.home)


def _restore(home: Path) -> None:
    """Restore what the previous round deleted."""
    (home / "sessions/root").mkdir(exist_ok=True)


def _walk_until(mount: Mounted, stop: threading.Event, faults: list[BaseException]) -> None:
    try:
        while not stop.is_set():
            walk(mount)
            write_all(mount)
    except BaseException as error:
        faults.append(error)


def _difference(before: dict[str, object], after: dict[str, object]) -> str:
    gone, new = sorted(before.keys() - after), sorted(after.keys() - before)
    changed = [path for path in before.keys() & after if before[path] != after[path]]
    return f"written outside: removed {gone}, new {new}, changed {changed}"


def swaps(seed: int) -> Iterator[Case]:
    for spot in SWAPPED:
        yield Case(f"swap {spot}", lambda s=spot: swap(s))  # type: ignore[misc]
