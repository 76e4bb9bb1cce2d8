"""The difference between two versions of a session or of another kept file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from store import layout
from store.history.versions import VersionTexts
from store.undo.changes import DocumentChanges, compare, compare_sessions
from store.undo.changes_in_words import FOLLOWING, ChangeLine, as_json, describe, summarize, summarize_text, unified
from store.undo.word_diff import Piece

NOTHING = VersionTexts(None, None)
_IDENTITY = ("id", "root_session_id", "parent_session_id")  # change with the name of a session


@dataclass(frozen=True)
class Difference:
    """Two versions. `changes` is None if one of them is not JSON: then only their lines can be compared."""

    old: VersionTexts
    new: VersionTexts
    is_session: bool
    changes: DocumentChanges | None

    @property
    def is_empty(self) -> bool:
        return self.old == self.new

    def summary(self, created: str = "created") -> str:
        """One line for a list of versions. `created` is the word for a text that was not there before."""
        if self.is_empty:
            return "no change"
        if self.new.main is None:
            return self._without_main()
        if self.old.main is None:
            return f"{created}{self._size()}"
        if self.changes is None:
            return summarize_text(_text(self.old.main), _text(self.new.main)) or "white space"
        return summarize(self.changes) or self._side_only() or "layout only"

    def noted(self, note: str) -> str:
        """The same for a version of which more is known than its texts say: `cleared`, `restored`."""
        if self.changes is None or None in (self.old.main, self.new.main):
            return f"{note}: {self.summary()}"
        rest = summarize(self.changes.without(*FOLLOWING))
        return f"{note}: {rest}" if rest else note

    def renamed(self) -> str:
        """The same for a rename: the new id is known to everyone who asks, the old one is not."""
        changes = self.changes or DocumentChanges()
        old = next((str(member.old) for member in changes.members if member.path == ("id",)), None)
        if old is None:
            return self.noted("moved")
        rest = summarize(changes.without(*_IDENTITY, *FOLLOWING))
        return f"renamed from {old}" + (f": {rest}" if rest else "")

    def _side_only(self) -> str:
        """`rm -r` in a mount removes the sidecar before session.json."""
        if (self.old.side is None) == (self.new.side is None):
            return ""
        return f"{'removed' if self.new.side is None else 'added'} {layout.RUNTIME}"

    def _without_main(self) -> str:
        """`cp -r` and other programs may write the sidecar of a session before its session.json."""
        if self.old.main is not None or self.new.side is None:
            return "removed"
        return f"{'created' if self.old.side is None else 'changed'} {layout.RUNTIME}, without {layout.SESSION}"

    def _size(self) -> str:
        """How many messages a new session has."""
        messages = self.changes.messages if self.changes is not None else ()
        count = len(messages)
        return f", {count} message{'' if count == 1 else 's'}" if count else ""

    def lines(self) -> Iterator[ChangeLine]:
        """All differences, one line each."""
        if self.changes is not None:
            yield from describe(self.changes)
            if self.changes.is_empty and not self.is_empty:
                yield ChangeLine("changed", [Piece("same", "only the layout differs; --raw shows it")])
            return
        for line in self.raw("old", "new"):
            if not line.startswith(("---", "+++", "@@")):
                event = {"+": "added", "-": "removed"}.get(line[:1], "changed")
                yield ChangeLine(event, [Piece("same", line)])  # type: ignore[arg-type]

    def raw(self, old_name: str, new_name: str) -> Iterator[str]:
        """Unified diffs of the texts themselves."""
        names = layout.DOCUMENTS if self.is_session else ("",)
        for name, old, new in zip(names, self.old, self.new, strict=False):
            suffix = f" {name}" if name else ""
            if old != new:
                yield from unified(old or b"", new or b"", f"{old_name}{suffix}", f"{new_name}{suffix}")

    def as_json(self) -> dict[str, Any]:
        if self.changes is not None:
            return as_json(self.changes)
        return {"lines": [str(line) for line in self.lines()]}


def difference(old: VersionTexts, new: VersionTexts, *, is_session: bool) -> Difference:
    """Compare two versions. A file that a version does not have counts as empty."""
    return next(iter_differences([old, new], is_session=is_session))


def iter_differences(texts: Iterable[VersionTexts], *, is_session: bool) -> Iterator[Difference]:
    """Compare each of some versions with the next; every text is parsed once."""
    parsed = ((each, _parsed(each, is_session=is_session)) for each in texts)
    for (old, before), (new, after) in pairwise(parsed):
        changes: DocumentChanges | None = None
        if before is not None and after is not None:
            changes = compare_sessions(before, after) if is_session else compare(before[0], after[0])
        yield Difference(old, new, is_session, changes)


def _parsed(texts: VersionTexts, *, is_session: bool) -> tuple[Any, Any] | None:
    """Both documents; None if one is not JSON: a program outside the store may have written anything."""
    try:
        main = orjson.loads(texts.main) if texts.main is not None else {}
        side = orjson.loads(texts.side) if texts.side is not None else None
    except ValueError:
        return None
    is_usable = isinstance(main, dict) and isinstance(side, dict | None)
    if not is_session:
        return main, None
    return ({"messages": [], **main}, side) if is_usable else None


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
