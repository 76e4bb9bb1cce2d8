"""What was refused and why, kept until it is mended.

The bytes someone typed are never thrown away (rule 3): they lie under `.grovefs/rejects/`, with the
reason in plain words beside them, and go when the same document is committed next, or by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import orjson

from store import layout
from store.atomic import Disk
from store.errors import Conflict, InvalidContent, StoreError
from store.layout import Location
from store.timestamps import Timestamp

REJECTED = ".rejected"
REASON = ".error"
RECENT = "recent.jsonl"
KEPT_LINES = 500
_CONTEXT_LINES = 2


@dataclass(frozen=True)
class Rejects:
    disk: Disk

    def keep(self, location: Location, name: str, raw: bytes, error: StoreError | OSError) -> None:
        """Keep refused bytes and the reason; a later refusal of the same document replaces it."""
        slot = self._slot(location, name)
        self.disk.make_dirs(slot)
        reason = explain(location, name, raw, error)
        for part, data in ((REJECTED, raw), (REASON, reason.encode())):
            self.disk.move(self.disk.write_temp([data]), f"{slot}/{name}{part}")
        self._note(location, name, error)

    def _note(self, location: Location, name: str, error: StoreError | OSError) -> None:
        path = f"{layout.REJECTS}/{RECENT}"
        line = {"at": Timestamp.now(), "path": location.path(name), "reason": str(error)}
        present = self.disk.read(path)
        lines = present.data.splitlines(keepends=True) if present else []
        lines = [*lines[-KEPT_LINES + 1 :], orjson.dumps(line) + b"\n"]
        self.disk.move(self.disk.write_temp([b"".join(lines)]), path)

    def recent(self) -> bytes:
        """One JSON object a line: the latest refusals, the newest last."""
        file = self.disk.read(f"{layout.REJECTS}/{RECENT}")
        return file.data if file else b""

    def names(self, location: Location) -> dict[str, str]:
        """What is kept for a session's documents: the name to show it under, and where it lies."""
        found: dict[str, str] = {}
        for name in layout.DOCUMENTS:
            slot = self._slot(location, name)
            for entry in self.disk.entries(slot):
                found[entry.name] = f"{slot}/{entry.name}"
        return found

    def path(self, location: Location, shown: str) -> str | None:
        """Where `session.json.rejected` or `session.json.error` lies; None if there is none."""
        name = shown.removesuffix(REJECTED).removesuffix(REASON)
        if name == shown or name not in layout.DOCUMENTS:
            return None
        path = f"{self._slot(location, name)}/{shown}"
        return path if self.disk.stat(path) is not None else None

    def remove(self, location: Location, shown: str) -> None:
        """Take one of the two away, by hand."""
        path = self.path(location, shown)
        if path is not None:
            self.disk.remove(path)

    def drop(self, location: Location, name: str) -> None:
        """The document was mended, or is gone: nothing is kept of it any more."""
        slot = self._slot(location, name)
        if self.disk.stat(slot) is not None:
            self.disk.remove_tree(slot)

    def drop_all(self, location: Location) -> None:
        """The session is gone, and with it all that was kept for it."""
        for name in layout.DOCUMENTS:
            self.drop(location, name)

    def rename(self, location: Location, target: Location) -> None:
        """The session has another name: what was typed for it is to be found there."""
        self.drop_all(target)
        for name in layout.DOCUMENTS:
            if self.disk.stat(self._slot(location, name)) is not None:
                self.disk.move(self._slot(location, name), self._slot(target, name))

    def _slot(self, location: Location, name: str) -> str:
        digest = blake2b(location.path(name).encode(), digest_size=12).hexdigest()
        return f"{layout.REJECTS}/{digest}"


def explain(location: Location, name: str, raw: bytes, error: StoreError | OSError) -> str:
    """The reason as a person wants to read it: what, where, the lines in question, and what to do."""
    lines = [f"{location.path(name)} was not saved; the version before it stands.", "", f"  {error}", ""]
    if isinstance(error, InvalidContent) and error.flaw.line is not None:
        lines += [*_excerpt(raw, error.flaw.line, error.flaw.column or 1), ""]
    if isinstance(error, Conflict):
        lines += ["Someone else saved a newer version meanwhile. Read it again, and make your change there.", ""]
    lines += [f"What was to be saved is in {name}{REJECTED}; both files go with the next successful save.", ""]
    return "\n".join(lines)


def _excerpt(raw: bytes, line: int, column: int) -> list[str]:
    text = raw.decode(errors="replace").split("\n")
    first = max(1, line - _CONTEXT_LINES)
    shown: list[str] = []
    for number in range(first, min(len(text), line + _CONTEXT_LINES) + 1):
        content = text[number - 1]
        start = max(0, column - 60) if number == line else 0
        shown.append(f"  {number:>6} | {content[start : start + 100]}")
        if number == line:
            shown.append(" " * (11 + column - 1 - start) + "^")
    return shown
