"""Edits made straight on the home, behind our back, are noticed by a watch on the directories in use.

A directory is in use once something of its session was asked for. What the kernel tells of it is only a
hint: the session is read again if its files are not those its row was made from, so our own commits cost
a look and no more. Beyond the limit, and where there is no inotify, `sweep` and `check` remain.
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

LIMIT = 8192  # directories; the system's own limit is shared with everyone
QUIET_S = 0.1  # an editor's save is several events
_SESSION = flags.CLOSE_WRITE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE | flags.ONLYDIR | flags.DONT_FOLLOW
_PARENT = flags.CREATE | flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE | flags.ONLYDIR | flags.DONT_FOLLOW


class HomeWatcher:
    """One daemon thread. `changed` is called with a location; `lost` when the kernel could not keep up."""

    def __init__(self, home: str, changed: Callable[[Location], object], lost: Callable[[], object]) -> None:
        self._home = home
        self._changed = changed
        self._lost = lost
        self._guard = threading.Lock()
        self._places: dict[int, Location | str] = {}  # watch → session, or the path of a directory of sessions
        self._known: set[Location | str] = set()
        self._inotify = inotify_simple.INotify()
        self._wake_r, self._wake_w = os.pipe()
        self._thread = threading.Thread(target=self._run, name="grovefs-watcher", daemon=True)
        self._watch(layout.SESSIONS, layout.SESSIONS, _PARENT)
        self._thread.start()

    def use(self, location: Location) -> None:
        """Something of this session, project or category was asked for: from now on it is watched."""
        siblings = Location(location.root).path(layout.CHILDREN)
        if len(self._known) >= LIMIT:
            return
        if location not in self._known:
            self._watch(location, location.dir, _SESSION)
        if location.is_session and siblings not in self._known:  # it may have come into being since
            self._watch(siblings, siblings, _PARENT)

    def stop(self) -> None:
        os.close(self._wake_w)
        self._thread.join()
        os.close(self._wake_r)
        self._inotify.close()

    def _watch(self, place: Location | str, path: str, mask: int) -> None:
        with self._guard:
            try:
                number = self._inotify.add_watch(os.path.join(self._home, path), mask)
            except OSError as error:  # gone meanwhile, or no watches left
                log.debug("not watched: %s: %s", path, error)
                return
            self._places[number] = place
            self._known.add(place)

    def _run(self) -> None:
        waiting: dict[Location, float] = {}
        happens = select.poll()
        happens.register(self._inotify, select.POLLIN)
        happens.register(self._wake_r)
        while self._wake_r not in dict(happens.poll(50 if waiting else None)):
            events = self._inotify.read(timeout=0)
            for event in events:
                waiting.update({location: time.monotonic() + QUIET_S for location in self._meant(event)})
            if events:
                time.sleep(QUIET_S / 2)  # whoever saves without end must not wake us for every save
            now = time.monotonic()
            for location in [loc for loc, due in waiting.items() if due <= now]:
                del waiting[location]
                if not self._tell(location):
                    waiting[location] = now + QUIET_S

    def _meant(self, event: inotify_simple.Event) -> list[Location]:
        """The sessions that an event is about."""
        if event.mask & flags.Q_OVERFLOW:
            self._lost()
            return []
        place = self._places.get(event.wd)
        if event.mask & flags.IGNORED:  # the directory is gone; if it comes again, so does the watch
            with self._guard:
                self._places.pop(event.wd, None)
                self._known.discard(place) if place is not None else None
            return [place] if isinstance(place, Location) else []
        if isinstance(place, Location):
            return [place]
        found = layout.locate_path(f"{place}/{event.name}") if place is not None else None
        if found is None or found[1]:
            return []
        self.use(found[0])
        return [found[0]]

    def _tell(self, location: Location) -> bool:
        """False to try again: somebody is at work on it."""
        try:
            self._changed(location)
        except Busy:
            return False
        except (StoreError, OSError, apsw.Error) as error:
            log.warning("a change of %s on disk is not indexed yet: %s", location, error)
        return True
