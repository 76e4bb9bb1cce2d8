"""Evidence: which versions of a document a process has had, so that its save can be merged.

A file does not say which version it was edited from. The mount sees every open, and which process
opens: an editor started from a version it has opened, or from its own last save. What a process
does after it opened the handle it writes does not count for that handle, so all events are
numbered and asked for up to a number.

Writes and closes carry no process, only open, create and rename do. Processes are identified by
pid and start time, because pids are reused; of unknown processes nothing is kept. What an ended
process had is kept for ten minutes: in `jq … F > /tmp/t; cp /tmp/t F`, jq has read and cp writes.
Such relatives, and the script that runs them, count for a process that has read nothing itself, the
nearest ones first: commands of one pipeline know more of its output than the program that runs it.
"""

from __future__ import annotations

import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fusefs.tree.processes import Process
from store.commit.write_request import Writer
from store.disk.file import Stamp, is_same_content

ENDED_S = 600.0
# A process that reads everything (grep, rsync) must not take all memory, nor displace what is known
# of an editor.
MAX_PROCESSES = 4096
MAX_DOCUMENTS = 256  # of a process; the least recently used is forgotten
MAX_FILES = 4096  # whose writer is known
MAX_EVENTS = 256  # of a process and document: its first version and its last ones
_CHECKED_AT_ONCE = 64  # processes looked up in /proc by one sweep


class _Event(NamedTuple):
    """A version opened for reading, or an accepted save: as a version, or as a draft if it was merged."""

    at: int
    stamp: Stamp | None
    is_save: bool = False
    draft: int | None = None
    ns: int = 0  # the time


@dataclass
class _History:
    """What one process did with one document."""

    events: list[_Event] = field(default_factory=list)
    used: set[int] = field(default_factory=set)  # events that went into a save by a relative
    is_refused: bool = False  # a save was refused because of the sidecar, and nothing was read since
    reread_ns: int = 0  # when it was read first after that refusal

    def until(self, before: int) -> list[_Event]:
        """The last save up to an event number, and what was opened between that save and the number."""
        found: list[_Event] = []
        for event in reversed(self.events):
            if event.at <= before:
                found.append(event)
                if event.is_save:
                    break
        return found[::-1]

    def for_relatives(self) -> list[_Event]:
        """What counts for a relative: what has not gone into the save of another one.

        At any time: a shell opens the output of `jq … F | sed … > n` before jq has read F.
        """
        return [event for event in self.until(sys.maxsize) if event.at not in self.used]


@dataclass
class _Known:
    """What is known of one process."""

    process: Process
    used_at: float = 0.0
    checked_at: float = 0.0  # by the last sweep that looked at it
    ended_at: float | None = None
    documents: OrderedDict[str, _History] = field(default_factory=OrderedDict)  # by path


class Evidence:
    def __init__(self) -> None:
        self.now = 0  # number of the last event
        # By inode in the home, not by node: the kernel may drop a node between write and rename.
        self._files: OrderedDict[int, tuple[Process, int]] = OrderedDict()
        self._known: OrderedDict[tuple[int, int], _Known] = OrderedDict()  # by process, last used last

    # -- events ----------------------------------------------------------------------------------

    def note_opened(self, process: Process, path: str, stamp: Stamp | None, opened_ns: int | None = None) -> None:
        """A process opened a version to read it, now or some time ago."""
        if stamp is not None:
            ns = opened_ns if opened_ns is not None else time.time_ns()
            self._note(process, path, _Event(self.now + 1, stamp, ns=ns))

    def note_restamped(self, path: str, old: Stamp, new: Stamp) -> None:
        """The mode or times of a version changed: the history knows it by its new stamp from now on."""
        for known in self._known.values():
            if path in known.documents:
                events = known.documents[path].events
                events[:] = [e._replace(stamp=new) if e.stamp == old else e for e in events]

    def note_saved(
        self,
        process: Process,
        path: str,
        stamp: Stamp | None,
        draft: int | None,
        base: Stamp | None = None,
        at_ns: int | None = None,
    ) -> None:
        """A save was accepted. `draft` is the text as typed, if a merge stored another one. `at_ns` is now, or earlier.

        A process that has read nothing itself (mv, cp) saves what a relative (jq) has made of `base`.
        """
        known = self._known.get(process.key) if process.key is not None else None
        if base is not None and (known is None or path not in known.documents):
            self._use(process, path, base)
        seen_ns = time.time_ns() if at_ns is None else at_ns
        self._note(process, path, _Event(self.now + 1, stamp if draft is None else None, True, draft, seen_ns))

    def note_refused(self, process: Process, path: str) -> None:
        """A save was refused, with the values that others set. The process knows them when it reads again."""
        known = self._known.get(process.key) if process.key is not None else None
        history = known.documents.get(path) if known is not None else None
        if history is not None:
            history.is_refused = True

    def _use(self, process: Process, path: str, base: Stamp) -> None:
        """A version that relatives had went into a save: each save of it, and the last time the nearest one read it.

        Others may have read it too, and their texts may still be on their way.
        """
        relatives = self._relatives(process, path)
        found = [(far, event, history) for far, history in relatives for event in history.events if event.stamp == base]
        for _, event, history in found:
            if event.is_save:
                history.used.add(event.at)
        reads = [(far, event, history) for far, event, history in found if event.at not in history.used]
        if reads:
            _, event, history = min(reads, key=lambda read: (read[0], -read[1].at))
            history.used.add(event.at)

    def _note(self, process: Process, path: str, event: _Event) -> None:
        if process.key is None:
            return
        self.now = event.at
        known = self._known.setdefault(process.key, _Known(process))
        known.used_at = time.monotonic()
        self._known.move_to_end(process.key)
        history = known.documents.setdefault(path, _History())
        events = history.events
        known.documents.move_to_end(path)
        if history.is_refused:
            history.is_refused, history.reread_ns = False, event.ns
        if event.is_save or not events or events[-1].stamp != event.stamp:
            events.append(event)  # a version that is opened again counts from the first time on
        self._limit(known, events)

    def _limit(self, known: _Known, events: list[_Event]) -> None:
        if len(events) > MAX_EVENTS:
            del events[1]
        if len(known.documents) > MAX_DOCUMENTS:
            known.documents.popitem(last=False)
        if len(self._known) > MAX_PROCESSES:
            self._known.popitem(last=False)

    def note_written(self, process: Process, inode: int) -> None:
        """A process created, truncated or wrote a file that may be renamed onto a document later."""
        self._files[inode] = process, self.now
        self._files.move_to_end(inode)
        if len(self._files) > MAX_FILES:
            self._files.popitem(last=False)

    # -- questions -------------------------------------------------------------------------------

    def writer_of_file(self, info: os.stat_result | None, caller: Process) -> tuple[Process, int]:
        """The last writer of a file, and up to which event what it did counts; else the caller."""
        return self._files.get(info.st_ino, (caller, self.now)) if info is not None else (caller, self.now)

    def writer(self, process: Process, path: str, before: int, *, is_truncated: bool = True) -> Writer:
        """What a process had of a document up to an event number."""
        known = self._known.get(process.key) if process.key is not None else None
        history = known.documents.get(path) if known is not None else None
        events = history.until(before) if history is not None else []
        if not events:
            return self._writer_by_relatives(process, path, is_truncated=is_truncated)
        save = events[0] if events[0].is_save else None
        return Writer(
            process.author,
            process.key,
            _stamps(events),
            saved=save.stamp if save is not None else None,
            last_draft=save.draft if save is not None else None,
            is_truncated=is_truncated,
            opened_ns=min(event.ns for event in events),
            opened_times=_first_times(events),
            reread_ns=history.reread_ns if history is not None else 0,
        )

    def _writer_by_relatives(self, process: Process, path: str, *, is_truncated: bool) -> Writer:
        """What the relatives of a process had that has read nothing itself."""
        relatives = self._had_by_relatives(process, path)
        if not relatives:
            return Writer(process.author, process.key, is_truncated=is_truncated)
        read = [(far, event) for far, event in relatives if not event.is_save]
        nearest = [event for far, event in read if far == min(far for far, _ in read)]
        return Writer(
            process.author,
            process.key,
            is_truncated=is_truncated,
            relatives=_stamps(event for _, event in read),
            near_relatives=_stamps(nearest),
            saved_by_relatives=_stamps(event for _, event in relatives if event.is_save),
            opened_ns=_last_opened_ns(nearest or [event for _, event in relatives]),
        )

    def has_had(self, process: Process, path: str, stamp: Stamp) -> bool:
        """Whether a process saved this version last, or has opened it since its last save."""
        known = self._known.get(process.key) if process.key is not None else None
        history = known.documents.get(path) if known is not None else None
        return history is not None and any(is_same_content(e.stamp, stamp) for e in history.until(self.now))

    def _had_by_relatives(self, process: Process, path: str) -> list[tuple[int, _Event]]:
        return [(far, event) for far, history in self._relatives(process, path) for event in history.for_relatives()]

    def _relatives(self, process: Process, path: str) -> list[tuple[int, _History]]:
        """What relatives did with a document within the last ten minutes, and how many generations away they are."""
        since = time.monotonic() - ENDED_S
        found: list[tuple[int, _History]] = []
        for known in self._known.values():
            if path in known.documents and known.used_at >= since and known.process.key != process.key:
                far = process.generations_to(known.process)
                if far is not None:
                    found.append((far, known.documents[path]))
        return found

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


def _stamps(events: Iterable[_Event]) -> tuple[Stamp, ...]:
    """The versions of these events, each once."""
    return tuple(dict.fromkeys(event.stamp for event in events if event.stamp is not None))


def _first_times(events: Iterable[_Event]) -> tuple[int, ...]:
    """When each of these versions was first opened or saved, as `_stamps` orders them.

    Not when it was opened last: vim reads the present one again, to copy it as a backup.
    """
    times: dict[Stamp, int] = {}
    for event in events:
        if event.stamp is not None:
            times.setdefault(event.stamp, event.ns)
    return tuple(times.values())


def _last_opened_ns(events: Sequence[_Event]) -> int:
    """When relatives opened a version last; without any, the time of the save.

    Not first: that may have been another command of the same shell.
    """
    return max((event.ns for event in events if not event.is_save), default=events[0].ns if events else 0)
