"""Plans of an undo: for each session or document, which versions to take back, or why not. Pure.

A version is bad if it was made in the window by a matching author. Without other versions since, the
document goes back to the version before the first bad one. With others, it is refused, or each bad
version is taken back by a merge, newest first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from store import layout
from store.history.authors import Author
from store.history.versions import SavedVersion

# Versions that only change where a session is; undoing never moves it.
MOVED = "moved"
_SHOWN_AUTHORS = 3


@dataclass(frozen=True)
class UndoRequest:
    """What to take back."""

    since_ns: int
    until_ns: int
    by: str | None = None  # a pattern as in a shell; None: all authors
    paths: frozenset[str] | None = None  # lineages; None: all
    merge: bool = False  # take bad versions out from between others
    host: str = ""  # the name of this host in its grove


class UndoItem(NamedTuple):
    """A session or document to be changed."""

    path: str
    bad: tuple[SavedVersion, ...]  # oldest first
    target: SavedVersion  # the version before the first bad one
    newest: int  # number of the newest version when this was decided
    is_merge: bool  # others changed it too


class UndoRefusal(NamedTuple):
    """A session or document left as it is. `target` is set if only changes by others prevent undoing it."""

    path: str
    reason: str
    target: SavedVersion | None = None


@dataclass(frozen=True)
class UndoPlan:
    """What `apply` would do."""

    request: UndoRequest
    to_undo: tuple[UndoItem, ...] = ()
    refused: tuple[UndoRefusal, ...] = ()
    unchanged: tuple[str, ...] = ()  # already as before


@dataclass
class UndoResult:
    """What `apply` did."""

    began_ns: int
    undone: list[UndoItem] = field(default_factory=list)
    refused: list[UndoRefusal] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)


def matches_author(author: Author, pattern: str | None, host: str = "") -> bool:
    """Whether the pattern is that of the program, the way, or both: sed, mount, "mount: sed", "mount: sed (4711)".

    On a host of a grove, named `host`, a program is also known by its name and host: sed@laptop, as the log shows it.
    Authors on other hosts are recorded so, those of this one without the host.
    """
    if pattern is None:
        return True
    programs = [author.program]
    if host and author.program:
        plain, _, there = author.program.rpartition("@")
        programs.append(plain if plain and there else f"{author.program}@{host}")
    shown = [str(replace(author, program=program)) for program in programs]
    ways = [f"{author.via}: {program}" for program in programs if program]
    return any(fnmatchcase(text, pattern) for text in (*programs, author.via, *ways, *shown))


def is_bad(version: SavedVersion, request: UndoRequest) -> bool:
    in_window = request.since_ns <= version.made_at_ns <= request.until_ns
    return in_window and version.what != MOVED and matches_author(version.author, request.by, request.host)


def decide(versions: Sequence[SavedVersion], request: UndoRequest) -> UndoItem | UndoRefusal | None:
    """What to do with one lineage. `versions` are its newest ones in order, from before the window on.

    None: nothing in it is bad.
    """
    bad = [version for version in versions if is_bad(version, request)]
    if not bad:
        return None
    path, first = bad[0].path, bad[0]
    if path.startswith(f"{layout.TRASH}/"):
        return UndoRefusal(path, "it is in the trash now; `grovefs undelete` restores it")
    if first.number == 1:
        return UndoRefusal(path, "it was made in that time; `grovefs rm` deletes it")
    target = next((version for version in versions if version.number == first.number - 1), None)
    if target is None:
        return UndoRefusal(path, f"version {first.number - 1}, the one before, is not kept any more")
    if target.main_bytes is None:
        return UndoRefusal(path, "it was made again in that time; `grovefs rm` deletes it")
    others = [v for v in versions if v.number > first.number and v.what != MOVED and v not in bad]
    if others and not request.merge:
        return UndoRefusal(path, _reason(others, bad[-1]), target)
    return UndoItem(path, tuple(bad), target, versions[-1].number, is_merge=bool(others))


def _reason(others: Sequence[SavedVersion], last_bad: SavedVersion) -> str:
    since = [version for version in others if version.number > last_bad.number]
    when = "changed since" if since else "changed in between"
    authors = list(dict.fromkeys(_named(version.author) for version in since or others))
    more = f" and {len(authors) - _SHOWN_AUTHORS} more" if len(authors) > _SHOWN_AUTHORS else ""
    return f"{when} by {', '.join(authors[:_SHOWN_AUTHORS])}{more}; --merge keeps those changes"


def _named(author: Author) -> str:
    return author.program or author.via
