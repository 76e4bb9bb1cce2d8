"""Hidden names: documents that were removed and are about to be replaced.

Many tools remove a document before they write its replacement. Unlinking or renaming session.json
only hides the name in this mount. The file stays on disk, so a crash needs no repair. The name is
shown again by the next commit, a rejection or the removal of its directory. After ten seconds
without any of these the session is deleted.

An unlink hides the name from everybody: `rm F; cp backup F` is two processes. A rename hides it
only from the process that renamed it. To all others the document stays what it is on disk, so
nobody fails to read a session because vim is saving it. Once a process creates the unlinked name
again, that too is the beginning of a save: from then on it is hidden from that process only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace

from fusefs.tree.processes import Process
from store.disk.file import Stamp
from store.path_kinds import PathInfo, classify_path

HIDDEN_S = 10.0
EVERYBODY = 0  # also the pid of processes in another pid namespace, which look all alike


@dataclass
class HiddenName:
    """A hidden name. After an unlink (`was_deleted`) any replacement is intended; after a rename it is not."""

    path_info: PathInfo
    was_deleted: bool
    stamp: Stamp | None  # of the version that was hidden: expiry deletes no other version
    since: float
    taker: Process  # that removed it
    hidden_from: int  # pid of a process, or EVERYBODY


class HiddenNames:
    def __init__(self, hidden_s: float = HIDDEN_S) -> None:
        self.hidden_s = hidden_s
        self._by_path: dict[str, dict[int, HiddenName]] = {}  # path → pid → name
        self._deleted: dict[str, float] = {}  # path → time: documents that unlink deletes without hiding

    def __bool__(self) -> bool:
        return bool(self._by_path)

    def __contains__(self, path: str) -> bool:
        """Whether the name is hidden from any process: the kernel must not cache it."""
        return path in self._by_path

    def hide(self, path_info: PathInfo, info: os.stat_result, taker: Process, *, was_deleted: bool) -> None:
        """Hide a name that the process `taker` removed."""
        name = HiddenName(path_info, was_deleted, Stamp.of(info), time.monotonic(), taker, taker.pid)
        self._add(name)
        if was_deleted:
            self._add(replace(name, hidden_from=EVERYBODY))

    def created(self, path: str, process: Process) -> None:
        """A process creates an unlinked name: all others see the document until the new one is committed."""
        hidden = self._by_path.get(path, {}).get(EVERYBODY)
        if hidden is not None and process.pid != EVERYBODY:
            self.remove(hidden)
            self._add(replace(hidden, hidden_from=process.pid))

    def _add(self, name: HiddenName) -> None:
        self._by_path.setdefault(name.path_info.path, {})[name.hidden_from] = name

    def find(self, path: str, viewer: int) -> HiddenName | None:
        """The hidden name, if it is hidden from this process."""
        names = self._by_path.get(path)
        return None if names is None else names.get(EVERYBODY) or names.get(viewer)

    def is_current(self, hidden: HiddenName) -> bool:
        return self._by_path.get(hidden.path_info.path, {}).get(hidden.hidden_from) is hidden

    def show(self, path: str, process: Process) -> None:
        """Stop hiding a name: this process replaced, restored or deleted it.

        Another process that removed it is about to replace it, and must not find a version it has
        not seen there, unless it runs the process that has replaced it.
        """
        self._deleted.pop(path, None)
        shown_to = {EVERYBODY, process.pid, *process.ancestors}
        names = self._by_path.get(path, {})
        self._set(path, {pid: name for pid, name in names.items() if pid not in shown_to})

    def _set(self, path: str, names: dict[int, HiddenName]) -> None:
        if names:
            self._by_path[path] = names
        else:
            self._by_path.pop(path, None)

    def remove(self, hidden: HiddenName) -> None:
        if self.is_current(hidden):
            path = hidden.path_info.path
            self._set(path, {pid: name for pid, name in self._by_path[path].items() if name is not hidden})

    # -- documents that unlink deletes at once -----------------------------------------------------

    def note_deleted(self, path: str) -> None:
        """Remember the unlink of a sidecar. It is not hidden, but its replacement is intended all the same."""
        now = time.monotonic()
        self._deleted = {p: since for p, since in self._deleted.items() if now - since <= self.hidden_s}
        self._deleted[path] = now

    def was_deleted(self, path: str, viewer: int) -> bool:
        """Whether the document was unlinked through this mount shortly before its replacement."""
        hidden = self.find(path, viewer)
        if hidden is not None:
            return hidden.was_deleted
        return time.monotonic() - self._deleted.get(path, -1e9) <= self.hidden_s

    def unlinked_version(self, path: str, viewer: int) -> Stamp | None:
        """The version that was unlinked, if it is hidden from this process."""
        hidden = self.find(path, viewer)
        return hidden.stamp if hidden is not None and hidden.was_deleted else None

    # -- directories -------------------------------------------------------------------------------

    def rename(self, old: str, new: str, stat: Callable[[str], os.stat_result | None]) -> None:
        """A directory was renamed: keep names hidden in it, and below it, hidden."""
        for path in [p for p in self._by_path if p.startswith(f"{old}/")]:
            path_info = classify_path(new + path.removeprefix(old))
            info = stat(path_info.path)
            for hidden in self._by_path.pop(path).values():
                # Renaming a session rewrites its id, which makes another version with the same
                # mtime: still the hidden one. A version saved since it was hidden has another
                # mtime, and is shown.
                if info is not None and hidden.stamp is not None and info.st_mtime_ns == hidden.stamp.mtime_ns:
                    self._add(replace(hidden, path_info=path_info, stamp=Stamp.of(info)))

    def directory_created(self, directory: str) -> None:
        """Forget names hidden in an earlier directory of this name: they hide nothing in the new one."""
        for path in [p for p in self._by_path if p.startswith(f"{directory}/")]:
            del self._by_path[path]

    def in_directory(self, directory: str, viewer: int) -> list[str]:
        """Names in a directory that are hidden from this process."""
        prefix = f"{directory}/"
        paths = list(self._by_path)  # a copy: a rename in a worker thread may hide another name meanwhile
        hidden = [p for p in paths if p.startswith(prefix) and self.find(p, viewer) is not None]
        return [p.removeprefix(prefix) for p in hidden if "/" not in p[len(prefix) :]]

    # -- expiry ------------------------------------------------------------------------------------

    def all(self) -> list[HiddenName]:
        return [name for names in list(self._by_path.values()) for name in list(names.values())]

    def overdue(self, being_written: Container[str]) -> Iterator[HiddenName]:
        """Names hidden for longer than `hidden_s` that no writer has open."""
        now = time.monotonic()
        yield from [
            name for name in self.all() if now - name.since > self.hidden_s and name.path_info.path not in being_written
        ]
