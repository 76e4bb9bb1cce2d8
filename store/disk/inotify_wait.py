"""Sleep until something changes in a directory: inotify, or a slow look now and then where there is none."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import inotify_simple
from inotify_simple import flags

log = logging.getLogger("grovefs.store")

SLOW_LOOK_S = 0.5
_ARRIVALS = flags.MOVED_TO | flags.CLOSE_WRITE | flags.CREATE | flags.DELETE_SELF | flags.MOVE_SELF | flags.ONLYDIR


def wait_for_change(directory: Path, timeout_s: float, *, unless: Callable[[], bool]) -> None:
    """Return once something arrived in `directory`, or after `timeout_s`; at once if `unless` holds.

    `unless` is asked after the watch was set, so nothing that arrives in between is slept through.
    """
    try:
        watch = inotify_simple.INotify()
    except OSError as error:  # no instances left, or no inotify at all
        log.info("looking now and then instead of being told: %s", error)
        if not unless():
            time.sleep(min(timeout_s, SLOW_LOOK_S))
        return
    with watch:
        try:
            watch.add_watch(directory, _ARRIVALS)
        except OSError as error:  # no watches left, or the directory is gone: the caller will see
            log.info("looking now and then instead of being told: %s", error)
            if not unless():
                time.sleep(min(timeout_s, SLOW_LOOK_S))
            return
        if not unless():
            watch.read(timeout=max(1, int(timeout_s * 1000)))
