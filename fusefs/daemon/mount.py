"""The mount: serve until unmounted or signalled, clean up."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from tempfile import TemporaryFile

import fusefs.fast  # noqa: F401 - before pyfuse3: it provides a function that pyfuse3 binds to

# isort: split
import pyfuse3
import trio

from fusefs.daemon.background import log_stacks_on_sigquit
from fusefs.daemon.mountpoint import MountError, MountOptions, check_mountpoint
from fusefs.daemon.profile import profiled
from fusefs.daemon.watchdog import Watchdog
from fusefs.requests import request_loop
from fusefs.requests.operations import Operations
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

EXPIRE_EVERY_S = 1.0


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
        log_stacks_on_sigquit()
        instruments = request_loop.install(operations.read_ahead.between_requests)
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
