"""Detection of changes that other programs make to the files, with inotify watches on the
directories in use.

A directory is watched once its session has been used, up to LIMIT directories. An event is only a
hint: the session is read again if its files differ from those it was indexed from, so the store's
own commits cost a stat and no more. An edit is indexed within a second. Edits beyond the limit,
without inotify, or made while no process has the home open are found by `sweep`, `check` or the
next write to that session; opening a home does not look for them. Two edits of the same size
within one tick of the filesystem's clock have equal stamps; a file read less than 50 ms after it
changed is therefore read again later.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable

import apsw
import inotify_simple
from inotify_simple import flags

from store import layout
from store.errors import Busy, StoreError
from store.layout import Location

log = logging.getLogger("grovefs.store")

LIMIT = 8192  # directories; fs.inotify.max_user_watches is shared by all programs of the user
QUIET_S = 0.1  # one save in an editor makes several events
_SESSION = flags.CLOSE_WRITE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE | flags.ONLYDIR | flags.DONT_FOLLOW
_PARENT = flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE | flags.ONLYDIR | flags.DONT_FOLLOW


class HomeWatcher:
    """One daemon thread. Calls `changed` with a location, and `lost` when the kernel dropped events."""

    def __init__(self, home: str, changed: Callable[[Location], object], lost: Callable[[], object]) -> None:
        self._home = home
        self._changed = changed
        self._lost = lost
        self._lock = threading.Lock()
        self._watched: dict[int, Location | str] = {}  # watch descriptor → session, or path of a directory of sessions
        self._known: set[Location | str] = set()
        self._inotify = inotify_simple.INotify()
        self._wake_r, self._wake_w = os.pipe()
        self._thread = threading.Thread(target=self._run, name="grovefs-watcher", daemon=True)
        self._watch(layout.SESSIONS, layout.SESSIONS, _PARENT)
        self._thread.start()

    def use(self, location: Location) -> None:
        """Watch the directory of a session, project or state category from now on."""
        siblings = Location(location.root).path(layout.CHILDREN)
        if len(self._known) >= LIMIT:
            return
        if location not in self._known:
            self._watch(location, location.dir, _SESSION)
        if location.is_session and siblings not in self._known:  # it may have been created since
            self._watch(siblings, siblings, _PARENT)

    def stop(self) -> None:
        os.close(self._wake_w)
        self._thread.join()
        os.close(self._wake_r)
        self._inotify.close()

    def _watch(self, target: Location | str, path: str, mask: int) -> None:
        with self._lock:
            try:
                number = self._inotify.add_watch(os.path.join(self._home, path), mask)
            except OSError as error:  # removed meanwhile, or the watch limit is reached
                log.debug("not watched: %s: %s", path, error)
                return
            self._watched[number] = target
            self._known.add(target)

    def _run(self) -> None:
        due_at: dict[Location, float] = {}
        poll = select.poll()
        poll.register(self._inotify, select.POLLIN)
        poll.register(self._wake_r)
        while self._wake_r not in dict(poll.poll(50 if due_at else None)):
            events = self._inotify.read(timeout=0)
            for event in events:
                due_at.update({location: time.monotonic() + QUIET_S for location in self._locations_of(event)})
            if events:
                time.sleep(QUIET_S / 2)  # a program that saves continuously must not wake us for every save
            now = time.monotonic()
            for location in [loc for loc, due in due_at.items() if due <= now]:
                del due_at[location]
                if not self._report(location):
                    due_at[location] = now + QUIET_S

    def _locations_of(self, event: inotify_simple.Event) -> list[Location]:
        """Return the sessions an event is about."""
        if event.mask & flags.Q_OVERFLOW:
            self._lost()
            return []
        target = self._watched.get(event.wd)
        if event.mask & flags.IGNORED:  # the directory was removed; if it is created again, it is watched again
            with self._lock:
                self._watched.pop(event.wd, None)
                self._known.discard(target) if target is not None else None
            return [target] if isinstance(target, Location) else []
        if isinstance(target, Location):
            return [target]
        found = layout.locate_path(f"{target}/{event.name}") if target is not None else None
        if found is None or found[1]:
            return []
        self.use(found[0])
        return [found[0]]

    def _report(self, location: Location) -> bool:
        """Report a change; False to try again later because the session is locked."""
        try:
            self._changed(location)
        except Busy:
            return False
        except (StoreError, OSError, apsw.Error) as error:
            log.warning("%s: change on disk not indexed yet: %s", location, error)
        return True
