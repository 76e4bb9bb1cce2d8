"""The mount: check the mountpoint, serve until unmounted or signalled, clean up."""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from tempfile import TemporaryFile

import fusefs.fast  # noqa: F401 - before pyfuse3: it provides a function that pyfuse3 binds to

# isort: split
import pyfuse3
import trio

from fusefs.daemon import fuse_connection, mount_users
from fusefs.daemon.profile import profiled
from fusefs.daemon.watchdog import Watchdog
from fusefs.requests import request_loop
from fusefs.requests.operations import Operations
from fusefs.tree.hidden_names import HIDDEN_S
from fusefs.views.base import View
from fusefs.views.history import HistoryView
from fusefs.views.html.view import HtmlView
from fusefs.views.page_cache import PageCache
from fusefs.views.past import PastView
from fusefs.views.search import SearchView
from fusefs.views.session_views import ViewsOfSessions
from fusefs.views.snapshots import SnapshotsView
from fusefs.views.top_files import TopFiles
from fusefs.views.transcripts import TranscriptsView
from store import Store
from store.commit.write_request import OnConflict
from store.disk.disk import Durability
from store.errors import StoreError

log = logging.getLogger("grovefs.mount")

EXPIRE_EVERY_S = 1.0


class MountError(StoreError):
    """Mounting or unmounting failed. The text says why and what to do."""


@dataclass(frozen=True)
class MountOptions:
    home: Path
    mountpoint: Path
    read_only: bool = False
    allow_other: bool = False
    durability: Durability = "full"
    on_conflict: OnConflict = "merge"
    beside_bamboo: bool = False
    history: bool = True
    hidden_s: float = HIDDEN_S
    debug: bool = False
    profile: Path | None = None  # output file of --profile
    kernel_options: frozenset[str] = frozenset()  # such as nosuid


def check_mountpoint(options: MountOptions) -> None:
    """Raise MountError for every known reason not to mount, before any change."""
    mountpoint = options.mountpoint
    if not Path("/dev/fuse").exists():
        raise MountError(
            "/dev/fuse does not exist: load the kernel module fuse, or give the container access to the device"
        )
    _check_fusermount()
    clear_dead(mountpoint)
    check_apart(options)
    if not mountpoint.is_dir():
        raise MountError(f"{mountpoint} is not a directory")
    if os.path.ismount(mountpoint):
        raise MountError(f"{mountpoint} is already mounted; unmount it with `grovefs umount {mountpoint}`")
    if any(mountpoint.iterdir()):
        raise MountError(f"{mountpoint} is not empty")


@contextmanager
def make_mountpoint(options: MountOptions) -> Iterator[None]:
    """Create the mountpoint if it does not exist, and remove it again if mounting fails.

    Only the last directory of the path is created: a mistyped path is an error.
    """
    mountpoint = options.mountpoint
    clear_dead(mountpoint)  # first: any access to a mount whose daemon hangs would block
    check_apart(options)
    if os.path.lexists(mountpoint):
        yield
        return
    try:
        mountpoint.mkdir()
    except FileNotFoundError:
        raise MountError(f"{mountpoint} cannot be created: {mountpoint.parent} does not exist") from None
    try:
        yield
    except BaseException:
        with suppress(OSError):  # it is in use
            mountpoint.rmdir()
        raise


def check_apart(options: MountOptions) -> None:
    home, mountpoint = options.home.resolve(), options.mountpoint.resolve()
    if mountpoint == home or home in mountpoint.parents:
        raise MountError(f"{options.mountpoint} is inside the home {options.home}: that would deadlock")


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
    """Unmount a dead mount. Processes that use it or wait for an answer get errors."""
    number = fuse_connection.find_number(mountpoint)
    is_aborted = number is None or fuse_connection.abort(mountpoint, number)
    if not is_aborted and fuse_connection.daemon_is_dead(mountpoint):
        raise MountError(
            f"{mountpoint} has lost its daemon while processes wait for it. As root, run: umount -f {mountpoint}"
        )
    unmount(mountpoint, lazily=True)


def unmount(mountpoint: Path, *, lazily: bool = False) -> None:
    """Unmount. With lazily=True also while files are open: their users get errors from then on."""
    flags = "-uz" if lazily else "-u"
    _check_fusermount()
    result = subprocess.run(["fusermount3", flags, str(mountpoint)], capture_output=True, text=True)
    if not result.returncode:
        return
    users = mount_users.find_users(mountpoint)
    if users:
        raise MountError(
            f"{mountpoint} is in use by {', '.join(map(str, users))}. End these programs or leave the directory, "
            "or pass --lazy to unmount now: they get errors from then on"
        )
    raise MountError(result.stderr.strip() or f"{mountpoint} could not be unmounted")


def serve(options: MountOptions, ready: Callable[[], None]) -> None:
    """Mount, serve until unmounted or signalled, and clean up."""
    check_mountpoint(options)
    gc.freeze()  # imported modules live as long as the daemon: exclude them from collections
    with (
        Watchdog(options.mountpoint.resolve()) as watchdog,
        Store.open(
            options.home,
            durability=options.durability,
            beside_bamboo=options.beside_bamboo,
            history=options.history,
        ) as store,
    ):
        if not options.read_only:
            store.maintenance.check_writable()
            store.names.create_top_dirs()
        operations = Operations(
            store,
            lambda stats: make_views(store, stats),
            on_conflict=options.on_conflict,
            read_only=options.read_only,
            hidden_s=options.hidden_s,
            is_shared=options.allow_other,
        )
        instruments = request_loop.install()
        watchdog.wait_ready()
        # Generated directories differ from user to user, and the kernel has one listing for all.
        operations.tree.fast.start(options.home, directories=not options.allow_other)
        _mount(operations, options)
        watchdog.mounted()
        try:
            with profiled(options.profile):
                trio.run(_main, operations, ready, instruments=instruments)
        finally:
            pyfuse3.close(unmount=True)
            operations.tree.fast.stop()
            operations.close()


def _mount(operations: Operations, options: MountOptions) -> None:
    """Mount with libfuse. Capture stderr: libfuse prints there why mounting failed."""
    with TemporaryFile("w+", errors="replace") as stderr:
        saved_fd = os.dup(2)
        os.dup2(stderr.fileno(), 2)
        try:
            pyfuse3.init(operations, str(options.mountpoint), _fuse_options(options))
        except RuntimeError as error:
            stderr.seek(0)
            raise MountError(f"{options.mountpoint} could not be mounted: {stderr.read().strip() or error}") from error
        finally:
            os.dup2(saved_fd, 2)
            os.close(saved_fd)


def make_views(store: Store, stats: Callable[[], dict[str, object]]) -> dict[str, View]:
    """Views by name of their top directory; "" for the files at the top."""
    past = PageCache()
    return {
        "": TopFiles(store, stats),
        "at": PastView(store, past),
        "history": HistoryView(store, past),
        "html": HtmlView(store),
        "search": SearchView(store),
        "snapshots": SnapshotsView(store),
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
        nursery.start_soon(_do_chores, operations)
        nursery.start_soon(_repeat, operations.follow)
        ready()
        await pyfuse3.main()
        nursery.cancel_scope.cancel()


async def _stop_on_signal() -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            pyfuse3.terminate()
            return


async def _do_chores(operations: Operations) -> None:
    """What has to be done every second, in one task: an idle mount wakes up for it once."""
    while True:
        await trio.sleep(min(EXPIRE_EVERY_S, operations.writers.hidden.hidden_s / 4))
        for chore in (operations.expire_hidden, operations.follow_purges):
            with suppress(pyfuse3.FUSEError):  # logged already; a bug there must not end the mount
                await chore()


async def _repeat(task: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await task()
        except pyfuse3.FUSEError:  # logged already; retry slowly
            await trio.sleep(EXPIRE_EVERY_S)
