"""A small process that aborts the FUSE connection of a killed daemon.

When a daemon is killed its connection closes, and waiting processes get an error. The exception:
one of its threads cannot end, because it waits in the kernel for a process that waits for the
daemon (see `fuse_connection`). No thread of the daemon can resolve that. So the daemon has a
child process, which the kernel signals when the daemon's main thread ends. While any thread of
the daemon is left, its connection number cannot belong to another mount.
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
_STOP = b"."
_POLL_S = 0.02
_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from fusefs.daemon.watchdog import main; main()"


class Watchdog:
    """The daemon's side. Create it in the main thread, whose end the kernel signals to the child."""

    def __init__(self, mountpoint: Path) -> None:
        packages, number = Path(__file__).parents[2], fuse_connection.find_number(mountpoint)
        words = [sys.executable, "-I", "-S", "-c", _PROGRAM, packages, os.getpid(), mountpoint, number]
        self._process: subprocess.Popen[bytes] | None = None
        if number is None:
            return  # unmounted already
        try:
            self._process = subprocess.Popen(
                list(map(str, words)),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",  # do not keep the current directory's filesystem busy
                start_new_session=True,  # Ctrl-C must reach only the daemon
            )
        except OSError as error:
            log.warning("no watchdog: if the daemon is killed, processes may wait for it forever: %s", error)

    def stop(self) -> None:
        """End the child: the mount was unmounted normally."""
        if self._process is not None:
            self._process.communicate(_STOP)


class _Died(Exception):
    pass


def main() -> None:
    """The child's side."""
    daemon, mountpoint, number = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # end only after the daemon
    try:
        signal.signal(signal.SIGUSR1, _died)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
        is_over = os.getppid() == daemon and os.read(0, 1) == _STOP
    except _Died:
        is_over = False
    while not is_over and not fuse_connection.is_gone(daemon):
        if fuse_connection.is_zombie_with_threads(daemon):
            fuse_connection.abort(mountpoint, number)
        time.sleep(_POLL_S)


def _died(*_: object) -> None:
    raise _Died
