"""A small process that aborts the FUSE connection of a killed daemon.

When a daemon is killed its connection closes, and waiting processes get an error. The exception:
one of its threads cannot end, because it waits in the kernel for a process that waits for the
daemon (see `fuse_connection`). No thread of the daemon can resolve that. So the daemon has a
child process, which looks at it once a second, and at once when the kernel signals the end of its
main thread. The signal alone is not enough: it comes again for each thread that the child is
handed to, and never for a main thread that ended before the child asked for it.

The child is ready before the daemon mounts, so no moment is unwatched. While any thread of the
daemon is left, its connection number cannot belong to another mount.
"""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from fusefs.daemon import fuse_connection

log = logging.getLogger("grovefs.mount")

_PR_SET_PDEATHSIG = 1  # prctl(2)
_READY, _MOUNTED, _STOP = b"r", b"m", b"."
START_S = 30.0  # a loaded machine may take long to start a process
CHECK_EVERY_S = 1.0
_POLL_S = 0.02  # when the daemon seems to end
_HURRY_S = 10.0  # how long to poll after a signal
_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from fusefs.daemon.watchdog import main; main()"


class Watchdog:
    """The daemon's side. Create it in the main thread, whose end the kernel signals to the child."""

    def __init__(self, mountpoint: Path) -> None:
        words = [sys.executable, "-I", "-S", "-c", _PROGRAM, Path(__file__).parents[2], os.getpid(), mountpoint]
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                list(map(str, words)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",  # do not keep the current directory's filesystem busy
                start_new_session=True,  # Ctrl-C must reach only the daemon
            )
        except OSError as error:
            _warn(error)

    def __enter__(self) -> Watchdog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the child: the mount was unmounted normally, or never made."""
        if self._process is not None:
            self._process.communicate(_STOP)

    def wait_ready(self) -> None:
        """Wait until the child watches this process. Call it before mounting."""
        if self._process is None:
            return
        assert self._process.stdout is not None
        readable, _, _ = select.select([self._process.stdout], [], [], START_S)
        if not readable or os.read(self._process.stdout.fileno(), 1) != _READY:
            _warn("it did not start")

    def mounted(self) -> None:
        """Tell the child that the mountpoint is mounted, so that it learns the connection number."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), _MOUNTED)
        except BrokenPipeError as error:
            _warn(error)


def _warn(why: object) -> None:
    log.warning("no watchdog: if the daemon is killed, processes may wait for it forever: %s", why)


# -- the child -------------------------------------------------------------------------------------


def main() -> None:
    daemon, mountpoint = int(sys.argv[1]), Path(sys.argv[2])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # end only after the daemon
    wakeup = _wake_on(signal.SIGUSR1)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    with suppress(BrokenPipeError):  # the daemon is gone already
        os.write(1, _READY)
    _watch(daemon, mountpoint, wakeup)


def _wake_on(number: int) -> int:
    """A descriptor that becomes readable with each such signal. Handlers that raise may raise anywhere."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    signal.signal(number, lambda *_: None)
    return reads


def _watch(daemon: int, mountpoint: Path, wakeup: int) -> None:
    """Until the daemon says stop or has no threads left, abort its connection if it was killed."""
    number: int | None = None
    inputs = [0, wakeup]
    hurry_until = 0.0
    while not fuse_connection.is_gone(daemon):
        if fuse_connection.was_killed(daemon):
            hurry_until = time.monotonic() + _HURRY_S
            _abort(mountpoint, number)
        pause_s = _POLL_S if time.monotonic() < hurry_until else CHECK_EVERY_S
        readable, _, _ = select.select(inputs, [], [], pause_s)
        if wakeup in readable:
            os.read(wakeup, 4096)
            hurry_until = time.monotonic() + _HURRY_S
        if 0 in readable:
            said = os.read(0, 1)
            if said == _STOP:
                return
            if said == _MOUNTED:
                number = fuse_connection.find_number(mountpoint)
            elif not said:  # all threads have closed their files
                inputs.remove(0)
                hurry_until = time.monotonic() + _HURRY_S


def _abort(mountpoint: Path, number: int | None) -> None:
    """Abort the connection. Its number is unknown if the daemon was killed while it mounted."""
    if number is None and fuse_connection.daemon_is_dead(mountpoint):
        number = fuse_connection.find_number(mountpoint)
    if number is not None:
        fuse_connection.abort(mountpoint, number)
