"""Follow sources: import what agents write while they write it.

Directories are watched with inotify; where that is not possible, sources are compared every few seconds. A change
imports the part of the source that it belongs to. What could not be saved (the disk is full, another program holds the
home) is tried again until it succeeds: a cursor moves only when its part was saved.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import inotify_simple
from inotify_simple import flags

from store.errors import StoreError
from store.transfer.formats.importer import ImportProblem
from store.transfer.formats.source import MAX_LEVELS
from store.transfer.import_places import FoundSource
from store.transfer.imports import Imports, Report

log = logging.getLogger("grovefs.store")

SETTLE_S = 0.2  # an agent writes several lines at once; they are imported together
RETRY_S = 5.0
POLL_S = 2.0
_TICK_S = 0.5  # how soon a stop is noticed
_EVENTS = flags.MODIFY | flags.CREATE | flags.MOVED_TO | flags.DELETE | flags.MOVED_FROM | flags.ONLYDIR


@dataclass
class ImportFollower:
    """Keep sessions up to date with their sources until `stop` is set."""

    imports: Imports
    sources: Sequence[FoundSource]
    report: Report
    stop: threading.Event = field(default_factory=threading.Event)
    on_ready: Callable[[], None] = lambda: None

    def run(self) -> None:
        """Import everything once, then follow. Returns when `stop` is set."""
        with _SourceWatch(self.sources) as watch:  # watching begins before the first import: no change is missed
            failed = {source: set[str]() for source in self.sources if not self._import(source, None)}
            self.on_ready()
            retry_at = time.monotonic() + RETRY_S
            while not self.stop.is_set():
                changed = watch.wait(_TICK_S)
                if time.monotonic() >= retry_at:
                    for source in failed:
                        changed.setdefault(source, set())
                    retry_at = time.monotonic() + RETRY_S
                for source, paths in changed.items():
                    is_whole = source in failed or not paths
                    if self._import(source, None if is_whole else paths):
                        failed.pop(source, None)
                    else:
                        failed[source] = set()

    def _import(self, source: FoundSource, paths: set[str] | None) -> bool:
        """Import a source, or only what belongs to some changed paths; False if it must be tried again."""
        temporary = False

        def report(item: object) -> None:
            nonlocal temporary
            temporary |= isinstance(item, ImportProblem) and item.is_temporary
            self.report(item)  # type: ignore[arg-type]

        try:
            self.imports.run(source.path, format=source.format, paths=paths, report=report)
        except (StoreError, OSError) as error:
            if not Path(source.path).exists():
                return True  # the agent's directory was deleted: the sessions stay
            log.warning("%s: %s; trying again in %.0f s", source.path, error, RETRY_S)
            return False
        return not temporary


class _SourceWatch:
    """Watches on all directories of the sources. Without inotify, each source counts as changed every POLL_S."""

    def __init__(self, sources: Sequence[FoundSource]) -> None:
        self._sources = sources
        self._directories: dict[int, tuple[FoundSource, Path]] = {}
        self._inotify: inotify_simple.INotify | None = None
        self._polled: set[FoundSource] = set()
        self._poll_at = time.monotonic() + POLL_S

    def __enter__(self) -> _SourceWatch:
        try:
            self._inotify = inotify_simple.INotify()
        except OSError as error:  # instance limit reached, or no inotify
            log.info("polling instead of inotify: %s", error)
            self._polled = set(self._sources)
            return self
        for source in self._sources:
            path = Path(source.path)
            self._add(source, path if path.is_dir() else path.parent, MAX_LEVELS if path.is_dir() else 1)
        return self

    def __exit__(self, *error: object) -> None:
        if self._inotify is not None:
            self._inotify.close()

    def _add(self, source: FoundSource, directory: Path, levels: int) -> None:
        assert self._inotify is not None
        try:
            self._directories[self._inotify.add_watch(directory, _EVENTS)] = (source, directory)
        except OSError as error:  # watch limit reached, or deleted in the meantime
            if directory.exists():
                log.info("%s: polling instead of inotify: %s", source.path, error)
                self._polled.add(source)
            return
        with suppress(OSError):  # deleted in the meantime
            for entry in directory.iterdir() if levels > 1 else ():
                if entry.is_dir() and not entry.is_symlink():
                    self._add(source, entry, levels - 1)

    def wait(self, timeout_s: float) -> dict[FoundSource, set[str]]:
        """The changed paths by source, relative to it; an empty set if any part may have changed."""
        changed: dict[FoundSource, set[str]] = {}
        if self._inotify is None:
            time.sleep(timeout_s)
        else:
            events = self._inotify.read(timeout=max(1, int(timeout_s * 1000)))
            if events:
                time.sleep(SETTLE_S)
                events += self._inotify.read(timeout=0)
            for event in events:
                self._note(event, changed)
        if self._polled and time.monotonic() >= self._poll_at:
            self._poll_at = time.monotonic() + POLL_S
            changed |= {source: set() for source in self._polled}
        return changed

    def _note(self, event: inotify_simple.Event, changed: dict[FoundSource, set[str]]) -> None:
        known = self._directories.get(event.wd)
        if known is None or event.mask & (flags.Q_OVERFLOW | flags.IGNORED):
            if event.mask & flags.Q_OVERFLOW:
                changed |= {source: set() for source in self._sources}
            return
        source, directory = known
        path = directory / event.name
        if event.mask & flags.ISDIR and event.mask & (flags.CREATE | flags.MOVED_TO):
            self._add(source, path, MAX_LEVELS)
            changed[source] = set()  # files may have been created before the watch
        elif changed.get(source) != set():
            changed.setdefault(source, set()).add(_relative(path, source))


def _relative(path: Path, source: FoundSource) -> str:
    base = Path(source.path)
    return path.name if base.is_file() else str(path.relative_to(base))
