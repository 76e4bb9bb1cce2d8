"""Base of a save: which version a writer started from, and what is to be done with its text. Pure.

A file does not say which version it was edited from. It is worked out from what is known: the
versions whose `updated_at` is that of the typed text, and the versions the writer is known to have
read. A base that is too new would silently undo the work of others. One that is too old would
silently drop the typed change, where that sets something back to what it was. So where both the
present version and an older one are possible, and the results differ, the save is refused.

`decide` is a table; the comments number its rows, and the first that matches decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

from store.disk.file import Stamp
from store.documents import json_text
from store.documents.merge import UPDATED_AT, distance
from store.documents.merge_messages import MESSAGES, content_of, match
from store.documents.merge_plan import alike
from store.errors import InvalidContent
from store.model.timestamp import Timestamp

MAX_COMPARED = 256  # candidates whose texts are read and compared; more are a refusal

Action = Literal["nothing", "take", "merge", "restore", "refuse"]


@dataclass(frozen=True)
class Candidate:
    """A text that a writer may have started from: a stored version, or a draft."""

    key: tuple[str, int]  # identifies it: ("version", 3), ("draft", 7)
    at_ns: int
    load: Callable[[], bytes] = field(compare=False)
    number: int | None = None  # of a version
    is_exact: bool | None = None  # whether it is the typed text; None: compare the bytes
    known_said_ns: int | None = None  # its updated_at, if that is known without reading the text
    stamp: Stamp | None = None  # of the file that its writer opened, if it was found by that

    @cached_property
    def text(self) -> bytes:
        return self.load()

    @cached_property
    def said_ns(self) -> int:
        """The document's updated_at in nanoseconds; 0 if it has none."""
        if self.known_said_ns is not None:
            return self.known_said_ns
        try:
            return Timestamp(self.data[UPDATED_AT]).ns
        except (KeyError, TypeError, ValueError):
            return 0

    @cached_property
    def data(self) -> dict[str, Any]:
        """The members. A version that another program wrote may not be JSON: it is like no text."""
        try:
            return json_text.parse(self.text, "version")
        except InvalidContent:
            return {}


@dataclass(frozen=True)
class SaveEvidence:
    """What is known of a save."""

    typed: Candidate
    present: Candidate
    same_time: Sequence[Candidate] = ()  # versions and drafts with the updated_at of the typed text
    opened: Sequence[Candidate] = ()  # versions the writer is known to have had
    relatives: Sequence[Candidate] = ()  # used if nothing is known of the writer itself
    near_relatives: Sequence[Candidate] = ()  # those of them that the nearest relatives read
    is_present_theirs: bool = False  # a relative has saved the present version
    is_incomplete: bool = False  # the writer had versions that are no longer kept
    pinned: Candidate | None = None  # the version whose bytes the buffer started from
    own_last: Candidate | None = None  # the writer's own last accepted text
    unlinked_first: bool = False  # the writer unlinked the document before it wrote this


class Decision(NamedTuple):
    """`merge`: with each of `bases`, which must agree. `restore` and `refuse` name an old version, if it is one."""

    action: Action
    bases: tuple[Candidate, ...] = ()
    reason: str = ""
    number: int | None = None


NOTHING, TAKE = Decision("nothing"), Decision("take")


def refuse(reason: str, number: int | None = None) -> Decision:
    return Decision("refuse", reason=reason, number=number)


def decide(save: SaveEvidence) -> Decision:
    """What to do with a typed text."""
    if save.typed.text == save.present.text:  # row 1
        return NOTHING
    if save.pinned is not None:  # row 2
        return _with_bases(save, [save.pinned])
    known = save.opened or save.relatives
    if not save.same_time and not known:  # row 3
        return _unknown(save)
    if not save.same_time:  # row 4
        nearest = _nearest(save.typed, known)
        bases = [min(nearest, key=lambda c: c.at_ns)] if save.opened else _of_relatives(save, nearest)
        return _with_bases(save, _or_present(save, bases, known))
    exact = _exact(save)
    if exact is not None and not _common(save.same_time, save.opened):  # row 5
        return _old_version(save, exact)
    return _by_time(save, known)  # row 6


def _unknown(save: SaveEvidence) -> Decision:
    """Row 3. Nothing is known: take only what adds to the present version."""
    if save.is_incomplete:
        return refuse("the version its writer started from is not kept any more")
    if save.typed.said_ns > save.present.said_ns and holds_messages(save.typed.data, save.present.data):
        return TAKE
    return refuse("the version it was edited from is not known")


def _old_version(save: SaveEvidence, version: Candidate) -> Decision:
    """Row 5. Of a writer that has not read it: a restore if it has unlinked the document before."""
    if save.unlinked_first:
        return Decision("restore", number=version.number)
    return refuse("an old version, byte for byte", version.number)


def _by_time(save: SaveEvidence, known: Sequence[Candidate]) -> Decision:
    """Row 6. The nearest of the versions that say the same time, best one the writer had."""
    pool = _common(save.same_time, known)
    if not pool and save.is_incomplete:
        return refuse("the version its writer started from is not kept any more")
    pool = pool or list(save.same_time)
    if len(pool) > MAX_COMPARED:
        return refuse(f"{len(pool)} versions say the same updated_at, too many to find the one it was edited from")
    nearest = _nearest(save.typed, pool)
    own = [c for c in nearest if save.own_last is not None and c.key == save.own_last.key]
    if not own and save.relatives:
        nearest = _of_relatives(save, nearest)
    return _with_bases(save, _or_present(save, own or nearest, pool))


def _of_relatives(save: SaveEvidence, nearest: Sequence[Candidate]) -> list[Candidate]:
    """Of versions that the text is equally like, those that the nearest relatives read.

    Of these, the present one if a relative has saved that: their difference is then what this text
    changes too. It sets a member that a relative has set before, as one command of a script after another.
    """
    nearest = _common(nearest, save.near_relatives) or nearest
    present = _common(nearest, [save.present]) if save.is_present_theirs else []
    return present or list(nearest)


def _or_present(save: SaveEvidence, bases: Sequence[Candidate], pool: Sequence[Candidate]) -> Sequence[Candidate]:
    """The bases, and the present version too if the text may be an edit of that which sets something back.

    Not for a writer with evidence of its own: vim reads the present version to copy it as a backup, and saves
    a buffer of an older one. Nor if only other scripts have read the present version, and the text is like one
    that a command of the same script read.
    """
    if save.opened or _common(bases, [save.present]) or save.present.said_ns > save.typed.said_ns:
        return bases
    read = _common(pool, save.near_relatives) if _common(bases, save.near_relatives) else pool
    return [*bases, *_common(read, [save.present])]


def _with_bases(save: SaveEvidence, bases: Sequence[Candidate]) -> Decision:
    """Row 7. The base is known, or one of a few."""
    bases = [_undone(save, base) for base in bases]
    if any(save.typed.said_ns < base.said_ns for base in bases):
        exact = _exact(save)
        reason = "an old version, byte for byte" if exact else "older than the version its writer had"
        return refuse(reason, exact.number if exact else None)
    if all(base.text == save.present.text for base in bases):
        return TAKE
    if all(base.text == save.typed.text for base in bases):
        return NOTHING if save.opened or save.pinned is not None else _old_version(save, bases[0])
    return Decision("merge", tuple(bases))


def _undone(save: SaveEvidence, base: Candidate) -> Candidate:
    """The base, or the writer's own last save if the text is older than that: undo in an editor."""
    own = save.own_last
    is_undo = own is not None and own.key != base.key and own.at_ns > base.at_ns and base.text == save.typed.text
    return own if own is not None and is_undo else base


# -- comparing -------------------------------------------------------------------------------------


def _common(some: Sequence[Candidate], others: Sequence[Candidate]) -> list[Candidate]:
    keys = {candidate.key for candidate in others}
    return [candidate for candidate in some if candidate.key in keys]


def _exact(save: SaveEvidence) -> Candidate | None:
    """The newest version, not a draft, whose bytes were typed."""
    versions = [c for c in save.same_time if c.number is not None]
    return next((c for c in reversed(versions) if _is_typed(c, save.typed)), None)


def _is_typed(candidate: Candidate, typed: Candidate) -> bool:
    return candidate.text == typed.text if candidate.is_exact is None else candidate.is_exact


def _nearest(typed: Candidate, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates that differ least from the typed text."""
    if len(candidates) == 1:
        return list(candidates)
    distances = [0 if c.text == typed.text else distance(typed.data, c.data) for c in candidates]
    least = min(distances)
    return [c for c, far in zip(candidates, distances, strict=True) if far == least]


def holds_messages(document: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether a document has every message of another one, unchanged."""
    ours, theirs = document.get(MESSAGES) or [], other.get(MESSAGES) or []
    matched = match(theirs, ours)
    return all(
        index is not None and alike(content_of(ours[index]), content_of(message))
        for message, index in zip(theirs, matched, strict=True)
    )
