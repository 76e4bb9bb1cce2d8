"""A small process that outlives a killed daemon by a moment, and cuts the connection it leaves behind.

When a process is killed its connections close, and who waits for an answer gets an error; unless one of its threads
cannot end, because it waits in the kernel for one who waits for that very answer (see `connection`). No thread of the
daemon can help then. So it has a child, which the kernel signals when the daemon's first thread dies. While a thread is
left, the connection is the daemon's and nobody else's: another mount cannot be meant by its number.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from fusefs.daemon import fuse_connection

log = logging.getLogger("grovefs.mount")

_PR_SET_PDEATHSIG = 1  # prctl(2)
_FAREWELL = b"."
_LOOK_S = 0.02
_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from fusefs.daemon.watchdog import main; main()"


class Watchdog:
    """The daemon's side. To be made by the thread whose death counts: the first."""

    def __init__(self, mountpoint: Path) -> None:
        packages, number = Path(__file__).parents[2], fuse_connection.find_number(mountpoint)
        words = [sys.executable, "-I", "-S", "-c", _PROGRAM, packages, os.getpid(), mountpoint, number]
        self._process: subprocess.Popen[bytes] | None = None
        if number is None:
            return  # it was unmounted again at once
        try:
            self._process = subprocess.Popen(
                list(map(str, words)),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",  # wherever we are may be unmounted one day
                start_new_session=True,  # Ctrl-C is meant for the daemon
            )
        except OSError as error:
            log.warning("nobody watches over this mount: if it is killed, some may wait for it for ever: %s", error)

    def stop(self) -> None:
        """Nobody waits any more."""
        if self._process is not None:
            self._process.communicate(_FAREWELL)


class _Died(Exception):
    pass


def main() -> None:
    """The guard's side."""
    daemon, mountpoint, number = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # we end when the daemon has
    try:
        signal.signal(signal.SIGUSR1, _died)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
        is_over = os.getppid() == daemon and os.read(0, 1) == _FAREWELL
    except _Died:
        is_over = False
    while not is_over and not fuse_connection.is_gone(daemon):
        if fuse_connection.is_zombie_with_threads(daemon):
            fuse_connection.abort(mountpoint, number)
        time.sleep(_LOOK_S)


def _died(*_: object) -> None:
    raise _Died
