"""Evidence: which versions of a document a process has had, so that its save can be merged.

A file does not say which version it was edited from. The mount sees every open, and which process
opens: an editor started from a version it has opened, or from its own last save. What a process
does after it opened the handle it writes does not count for that handle, so all events are
numbered and asked for up to a number.

Writes and closes carry no process, only open, create and rename do. Processes are identified by
pid and start time, because pids are reused; of unknown processes nothing is kept. What an ended
process had is kept for ten minutes: in `jq … F > t && mv t F`, mv renames what jq has written.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fusefs.tree.processes import Process
from store.commit.write_request import Writer
from store.disk.file import Stamp

ENDED_S = 600.0
# A process that reads everything (grep, rsync) must not take all memory, nor displace what is known
# of an editor.
MAX_PROCESSES = 4096
MAX_DOCUMENTS = 256  # of a process; the least recently used is forgotten
MAX_EVENTS = 256  # of a process and document: its first version and its last ones
_CHECKED_AT_ONCE = 64  # processes looked up in /proc by one sweep


class _Event(NamedTuple):
    """A version opened for reading, or an accepted save: as a version, or as a draft if it was merged."""

    at: int
    stamp: Stamp | None
    is_save: bool = False
    draft: int | None = None


@dataclass
class _Known:
    """What is known of one process."""

    process: Process
    used_at: float = 0.0
    checked_at: float = 0.0  # by the last sweep that looked at it
    ended_at: float | None = None
    documents: OrderedDict[str, list[_Event]] = field(default_factory=OrderedDict)  # by path

    def events(self, path: str, before: int) -> list[_Event]:
        """The last save up to an event number, and what was opened between that save and the number."""
        events = [event for event in self.documents.get(path, ()) if event.at <= before]
        saves = [place for place, event in enumerate(events) if event.is_save]
        return events[saves[-1] :] if saves else events


class Evidence:
    def __init__(self) -> None:
        self.now = 0  # number of the last event
        self._known: OrderedDict[tuple[int, int], _Known] = OrderedDict()  # by process, last used last

    # -- events ----------------------------------------------------------------------------------

    def note_opened(self, process: Process, path: str, stamp: Stamp | None) -> None:
        """A process opened a version to read it."""
        if stamp is not None:
            self._note(process, path, _Event(self.now + 1, stamp))

    def note_saved(self, process: Process, path: str, stamp: Stamp | None, draft: int | None) -> None:
        """A save was accepted. `draft` is the text as typed, if a merge stored another one."""
        self._note(process, path, _Event(self.now + 1, stamp if draft is None else None, True, draft))

    def _note(self, process: Process, path: str, event: _Event) -> None:
        if process.key is None:
            return
        self.now = event.at
        known = self._known.setdefault(process.key, _Known(process))
        known.used_at = time.monotonic()
        self._known.move_to_end(process.key)
        events = known.documents.setdefault(path, [])
        known.documents.move_to_end(path)
        if event.is_save or not events or events[-1].stamp != event.stamp:  # once, if it is opened again
            events.append(event)
        self._limit(known, events)

    def _limit(self, known: _Known, events: list[_Event]) -> None:
        if len(events) > MAX_EVENTS:
            del events[1]
        if len(known.documents) > MAX_DOCUMENTS:
            known.documents.popitem(last=False)
        if len(self._known) > MAX_PROCESSES:
            self._known.popitem(last=False)

    # -- questions -------------------------------------------------------------------------------

    def writer(self, process: Process, path: str, before: int, *, is_truncated: bool = True) -> Writer:
        """What a process had of a document up to an event number."""
        known = self._known.get(process.key) if process.key is not None else None
        events = known.events(path, before) if known is not None else []
        save = events[0] if events and events[0].is_save else None
        opened = tuple(dict.fromkeys(event.stamp for event in events if event.stamp is not None))
        return Writer(
            process.author,
            process.key,
            opened,
            saved=save.stamp if save is not None else None,
            last_draft=save.draft if save is not None else None,
            is_truncated=is_truncated,
            relatives=() if events else tuple(dict.fromkeys(self._relatives(process, path))),
        )

    def _relatives(self, process: Process, path: str) -> Iterator[Stamp]:
        """Versions that other children of the same parent opened, as in a pipeline or a script."""
        if not process.session_id:
            return
        since = time.monotonic() - ENDED_S
        for known in self._known.values():
            other = known.process
            is_relative = (other.session_id, other.parent) == (process.session_id, process.parent)
            if is_relative and other.key != process.key and known.used_at >= since:
                yield from (e.stamp for e in known.events(path, self.now) if e.stamp is not None)

    # -- forgetting ------------------------------------------------------------------------------

    def sweep(self, is_running: Callable[[Process], bool]) -> None:
        """Forget processes that ended ten minutes ago. Looks at some of them, others next time."""
        now = time.monotonic()
        for key, known in list(self._known.items()):
            if known.ended_at is not None and now - known.ended_at > ENDED_S:
                del self._known[key]
        running = [known for known in self._known.values() if known.ended_at is None]
        running.sort(key=lambda known: known.checked_at)
        for known in running[:_CHECKED_AT_ONCE]:
            known.checked_at = now
            if not is_running(known.process):
                known.ended_at = now
