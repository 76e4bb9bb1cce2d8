"""Set up, run, unmount: small steps, each a function."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from tempfile import TemporaryFile

import pyfuse3
import trio

from fusefs.daemon import fuse_connection
from fusefs.daemon.profile import profiled
from fusefs.daemon.watchdog import Watchdog
from fusefs.requests import request_loop
from fusefs.requests.operations import Operations
from fusefs.tree.writers import LIMBO_S
from fusefs.views.base import View
from fusefs.views.search import SearchView
from fusefs.views.session_views import ViewsOfSessions
from fusefs.views.top_files import TopFiles
from fusefs.views.transcripts import TranscriptsView
from store import Store
from store.disk.disk import Durability
from store.errors import StoreError

log = logging.getLogger("grovefs.mount")

LIMBO_LOOK_S = 1.0


class MountError(StoreError):
    """The mount could not be made; the text says why and what to do."""


@dataclass(frozen=True)
class MountOptions:
    home: Path
    mountpoint: Path
    read_only: bool = False
    allow_other: bool = False
    durability: Durability = "full"
    overwrite: bool = False
    beside_bamboo: bool = False
    hidden_s: float = LIMBO_S
    debug: bool = False
    profile: Path | None = None  # where to write what the time went into
    kernel_options: frozenset[str] = frozenset()  # nosuid and the like


def check_place(options: MountOptions) -> None:
    """Every reason not to mount, before anything is begun."""
    mountpoint = options.mountpoint
    if not Path("/dev/fuse").exists():
        raise MountError("there is no /dev/fuse: the kernel module is missing, or the container may not use it")
    _check_fusermount()
    clear_dead(mountpoint)
    check_apart(options)
    if not mountpoint.is_dir():
        raise MountError(f"{mountpoint} is not a directory")
    if os.path.ismount(mountpoint):
        raise MountError(f"{mountpoint} is mounted already; `grovefs umount {mountpoint}` ends it")
    if any(mountpoint.iterdir()):
        raise MountError(f"{mountpoint} is not empty")


@contextmanager
def make_mountpoint(options: MountOptions) -> Iterator[None]:
    """A directory to mount at: made where none is, and taken away again if nothing comes of the mount. Only the last
    name of it: who mistypes a path is told so, and has no directories to clean up."""
    place = options.mountpoint
    clear_dead(place)  # first: whatever looks at one whose daemon cannot even die would wait for it
    check_apart(options)
    if os.path.lexists(place):
        yield
        return
    try:
        place.mkdir()
    except FileNotFoundError:
        raise MountError(f"{place} cannot be made: {place.parent} is not there either") from None
    try:
        yield
    except BaseException:
        with suppress(OSError):  # it is in use after all
            place.rmdir()
        raise


def check_apart(options: MountOptions) -> None:
    home, place = options.home.resolve(), options.mountpoint.resolve()
    if place == home or home in place.parents:
        raise MountError(f"{options.mountpoint} lies inside the home {options.home}: that would deadlock")


def _check_fusermount() -> None:
    if which("fusermount3") is None:
        raise MountError("fusermount3 is missing: install the package fuse3")


def clear_dead(mountpoint: Path) -> None:
    if is_dead(mountpoint):
        log.info("clearing a dead mount at %s", mountpoint)
        unmount_dead(mountpoint)


def is_dead(mountpoint: Path) -> bool:
    return fuse_connection.state_of(mountpoint) == "dead"


def unmount_dead(mountpoint: Path) -> None:
    """Also where someone has a file of it open, or waits for an answer that no daemon will give: they get errors."""
    number = fuse_connection.find_number(mountpoint)
    is_cut = number is None or fuse_connection.abort(mountpoint, number)
    if not is_cut and fuse_connection.daemon_is_dead(mountpoint):
        raise MountError(
            f"{mountpoint} has lost its daemon, and someone waits for it in vain; only root can end that: "
            f"umount -f {mountpoint}"
        )
    unmount(mountpoint, lazily=True)


def unmount(mountpoint: Path, *, lazily: bool = False) -> None:
    """End a mount; `lazily` also if someone has a file of it open, who gets errors from then on."""
    flags = "-uz" if lazily else "-u"
    _check_fusermount()
    result = subprocess.run(["fusermount3", flags, str(mountpoint)], capture_output=True, text=True)
    if result.returncode:
        raise MountError(result.stderr.strip() or f"{mountpoint} could not be unmounted")


def serve(options: MountOptions, ready: Callable[[], None]) -> None:
    """Mount, serve until it is unmounted or a signal comes, and clean up."""
    check_place(options)
    gc.freeze()  # imported modules live as long as the daemon: exclude them from collections
    with Store.open(options.home, durability=options.durability, beside_bamboo=options.beside_bamboo) as store:
        if not options.read_only:
            store.maintenance.check_writable()
            store.names.create_top_dirs()
        operations = Operations(
            store,
            lambda stats: make_views(store, stats),
            overwrite=options.overwrite,
            read_only=options.read_only,
            limbo_s=options.hidden_s,
        )
        instruments = request_loop.install(operations.companion)
        mountpoint = options.mountpoint.resolve()
        _mount(operations, options)
        guard = Watchdog(mountpoint)
        try:
            with profiled(options.profile):
                trio.run(_main, operations, ready, instruments=instruments)
        finally:
            pyfuse3.close(unmount=True)
            operations.close()
            guard.stop()


def _mount(operations: Operations, options: MountOptions) -> None:
    """libfuse says on stderr why a mount is not granted, and to us only that it is not."""
    with TemporaryFile("w+", errors="replace") as said:
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)
        try:
            pyfuse3.init(operations, str(options.mountpoint), _fuse_options(options))
        except RuntimeError as error:
            said.seek(0)
            raise MountError(f"{options.mountpoint} could not be mounted: {said.read().strip() or error}") from error
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def make_views(store: Store, stats: Callable[[], dict[str, object]]) -> dict[str, View]:
    """What exists only in the mount: by the name of the directory at its top, "" for the files there."""
    return {
        "": TopFiles(store, stats),
        "search": SearchView(store),
        "transcripts": TranscriptsView(store),
        "views": ViewsOfSessions(store),
    }


def _fuse_options(options: MountOptions) -> set[str]:
    wanted = (
        set(pyfuse3.default_options)
        | {"fsname=grovefs", "subtype=grovefs", "default_permissions"}
        | options.kernel_options
    )
    if options.allow_other:
        wanted.add("allow_other")
    if options.read_only:
        wanted.add("ro")
    if options.debug:
        wanted.add("debug")
    return wanted


async def _main(operations: Operations, ready: Callable[[], None]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_on_signal)
        nursery.start_soon(_expire_hidden_names, operations)
        nursery.start_soon(_follow_changes, operations)
        ready()
        await pyfuse3.main()
        nursery.cancel_scope.cancel()


async def _stop_on_signal() -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            pyfuse3.terminate()
            return


async def _expire_hidden_names(operations: Operations) -> None:
    while True:
        await trio.sleep(min(LIMBO_LOOK_S, operations.writers.hidden_s / 4))
        with suppress(pyfuse3.FUSEError):  # logged already; a bug there is no reason to end the mount
            await operations.expire_hidden()


async def _follow_changes(operations: Operations) -> None:
    while True:
        try:
            await operations.follow()
        except pyfuse3.FUSEError:  # logged already; it must not come at full speed
            await trio.sleep(LIMBO_LOOK_S)
