"""The fast path: opens of unchanged versions, answered by the C extension while a mount is served.

Without the extension every method here does nothing, and Python answers all requests.

An open is answered in C only if Python has granted the version and admitted the calling thread.
Python admits a thread when it answers an open of it itself. So the process is known before it has
read anything, although it may have ended by the time its opens are reported.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from fusefs.fast import EXTENSION, PROBLEM
from fusefs.switches import enabled
from fusefs.tree.processes import UNKNOWN, Process
from store.disk.file import Stamp

log = logging.getLogger("grovefs.mount")

# The id of a thread that has ended is not used again within this time.
ADMITTED_S = 0.5
_MAX_PROCESSES = 4096


class FastOpen(NamedTuple):
    """A version that the extension has open."""

    thread: int
    node: int
    fd: int
    size: int


class FastPath:
    """All methods but `mode` and `counters` belong to the thread that serves the mount."""

    def __init__(self) -> None:
        self._problem = PROBLEM
        self._serving: ModuleType | None = None
        self._processes: dict[int, Process] = {}  # by thread: admitted, or with a version open
        # Called with process, path, version and time of an open.
        self.on_opened: Callable[[Process, str, Stamp, int], None] = lambda process, path, stamp, opened_ns: None

    def start(self, home: Path, *, directories: bool) -> None:
        """Serve the session that this thread is about to receive from.

        With `directories` the kernel caches listings, one for all users.
        """
        if EXTENSION is None:
            self._report_slow()
            return
        fd = os.open(home, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            EXTENSION.start(fd, directories and enabled("listings"))
        except OSError as error:
            self._problem = f"the C extension cannot be used ({error})"
            self._report_slow()
            return
        finally:
            os.close(fd)
        self._serving = EXTENSION

    def _report_slow(self) -> None:
        log.warning("reading is slower than it could be, because Python answers every open: %s", self._problem)

    def stop(self) -> None:
        if self._serving is not None:
            self._serving.stop()
            self._serving = None

    # -- versions and callers --------------------------------------------------------------------

    def grant(self, node: int, path: str, info: os.stat_result, *, is_document: bool) -> None:
        """Let the extension open this version of a node, as long as it is the file at `path`."""
        if self._serving is None:
            return
        self.report_opens()
        self._serving.grant(node, os.fsencode(path), *Stamp.of(info), is_document)

    def grant_directory(self, node: int, path: str) -> bool:
        """Let the extension answer lookups of PROBED_NAMES in this directory. False: it is not in use.

        The kernel must be notified of each of these names that appears.
        """
        if self._serving is None:
            return False
        self._serving.grant_directory(node, os.fsencode(path))
        return True

    def revoke(self, node: int) -> None:
        """Leave opens of a node, or lookups in it, to Python until it is granted again."""
        if self._serving is not None:
            self.report_opens()
            self._serving.revoke(node)

    def admit(self, thread: int, process: Process) -> None:
        """Answer the opens of a thread for a while: they are opens of this process."""
        if self._serving is None:
            return
        self.report_opens()
        if len(self._processes) >= _MAX_PROCESSES:
            self._forget_processes()
        self._processes[thread] = process
        self._serving.admit(thread, int(ADMITTED_S * 1e9))

    def _forget_processes(self) -> None:
        assert self._serving is not None
        self._serving.dismiss()
        in_use = {opened.thread for opened in self.open_files()}
        self._processes = {thread: self._processes[thread] for thread in in_use}

    def report_opens(self) -> None:
        """Call `on_opened` for each document that was opened since the last call, in order."""
        for thread, path, stamp, opened_ns in self._serving.drain() if self._serving is not None else []:
            self.on_opened(self._processes[thread], os.fsdecode(path), Stamp(*stamp), opened_ns)

    # -- open files ------------------------------------------------------------------------------

    def find(self, handle: int) -> FastOpen | None:
        """The open version of a handle that the extension gave out."""
        found = self._serving.opened(handle) if self._serving is not None else None
        return FastOpen(*found) if found is not None else None

    def open_files(self) -> list[FastOpen]:
        """All versions that the extension has open."""
        return [FastOpen(*one) for one in self._serving.open_files()] if self._serving is not None else []

    def process_of(self, opened: FastOpen) -> Process:
        return self._processes.get(opened.thread, UNKNOWN)

    # -- the rest --------------------------------------------------------------------------------

    def lister(self) -> tuple[int, int]:
        """Thread and user that list a directory without a handle, at the start of `readdir`."""
        thread, user = self._serving.lister() if self._serving is not None else (0, 0)
        return thread, user

    def scan(self, path: str) -> list[tuple[str, os.stat_result]] | None:
        """The names in a small directory, with their stat results; None if the store has to list it."""
        return self._serving.scan(os.fsencode(path)) if self._serving is not None else None

    def pause_after_end(self) -> bool:
        """Let Python run as soon as the end of a listing is answered. False: the extension is not in use."""
        if self._serving is None:
            return False
        self._serving.pause_after_end()
        return True

    @property
    def mode(self) -> str:
        """What answers opens of unchanged versions, for the status of the mount."""
        serving = self._serving
        if serving is None:
            return f"Python: {self._problem}"
        return "the C extension" if serving.state()["bound"] else "Python: pyfuse3 did not bind to the extension"

    def counters(self) -> dict[str, int]:
        """Grants and answered requests, for statistics."""
        serving = self._serving
        return dict(serving.state()) if serving is not None else {}
