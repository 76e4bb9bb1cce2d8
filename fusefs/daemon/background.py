"""Run the mount in the background: fork, report readiness or the error to the waiting command, and log."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
from collections.abc import Callable
from io import FileIO, RawIOBase, TextIOWrapper
from pathlib import Path

from store.errors import StoreError, describe


class OwnLog(logging.FileHandler):
    """The log in the home, readable by its owner only. Does not follow a symlink or block on a FIFO in its place."""

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return TextIOWrapper(FileIO(os.open(self.baseFilename, flags, 0o600), "a"), write_through=True)


def log_to(path: Path | None, *, debug: bool, is_ours: bool = False) -> None:
    """Set up logging. If the home does not exist yet, its log is opened at the first line."""
    kind = OwnLog if is_ours else logging.FileHandler
    handler = kind(path, delay=is_ours and not path.parent.exists()) if path else logging.StreamHandler()
    logging.basicConfig(
        handlers=[handler],
        level=logging.DEBUG if debug else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def log_stacks_on_sigquit() -> None:
    """Write the stack of each thread to the log at each SIGQUIT: it shows where a daemon hangs, and ends nothing."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.FileHandler) and handler.stream is None:
            handler.stream = handler._open()  # delayed until the home exists, which it does now
        if isinstance(handler, logging.StreamHandler):
            faulthandler.register(signal.SIGQUIT, handler.stream)


def run_in_background(work: Callable[[Callable[[], None]], None]) -> str | None:
    """Run `work` in a daemon. Returns None once it has called its argument; otherwise why it failed."""
    reads, writes = os.pipe()
    daemon = os.fork()
    if daemon:
        os.close(writes)
        try:
            with os.fdopen(reads, "rb") as answers:
                answer = answers.read().decode(errors="replace")
        except KeyboardInterrupt:  # the daemon is in another session and gets no signal from the terminal
            os.kill(daemon, signal.SIGTERM)
            raise
        return None if answer == "ready" else answer or "the daemon exited before the mount was ready"
    os.setsid()
    os.close(reads)
    with os.fdopen(writes, "wb", buffering=0) as pipe:

        def ready() -> None:
            pipe.write(b"ready")
            pipe.close()
            _detach_from_terminal()

        try:
            work(ready)
        except Exception as error:
            _report(error, pipe)
            os._exit(1)
    os._exit(0)


def _report(error: Exception, pipe: RawIOBase) -> None:
    """Send the error to the waiting parent. Bugs, and errors after the mount was ready, go to the log."""
    is_refusal = isinstance(error, (StoreError, OSError))
    if not is_refusal or pipe.closed:
        logging.getLogger("grovefs.mount").error("the mount failed", exc_info=error)
    if not pipe.closed:
        text = describe(error) if is_refusal else f"{type(error).__name__}: {error} (see the log)"
        pipe.write(" ".join(text.split()).encode())


def _detach_from_terminal() -> None:
    os.chdir("/")  # do not keep the starting directory busy
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)
