"""Wait for a change in a directory with inotify, or by polling where inotify is not available."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import inotify_simple
from inotify_simple import flags

log = logging.getLogger("grovefs.store")

POLL_S = 0.5
_EVENTS = flags.MOVED_TO | flags.CLOSE_WRITE | flags.CREATE | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR


def wait_for_change(directory: Path, timeout_s: float, *, unless: Callable[[], bool]) -> None:
    """Return when a file arrives in `directory`, or after `timeout_s`; at once if `unless()` is true.

    `unless` is called after the watch has been added, so no arrival is missed in between.
    """
    try:
        watch = inotify_simple.INotify()
    except OSError as error:  # instance limit reached, or no inotify
        log.info("polling instead of inotify: %s", error)
        if not unless():
            time.sleep(min(timeout_s, POLL_S))
        return
    with watch:
        try:
            watch.add_watch(directory, _EVENTS)
        except OSError as error:  # watch limit reached, or no such directory: the caller will notice
            log.info("polling instead of inotify: %s", error)
            if not unless():
                time.sleep(min(timeout_s, POLL_S))
            return
        if not unless():
            watch.read(timeout=max(1, int(timeout_s * 1000)))
