"""What a path below `sessions/` means, and so which rules hold for it. Pure.

    sessions/                       SESSIONS
    sessions/<root>/                SESSION        also children/<child>/
    sessions/<root>/children/       CHILDREN       only of a root
    …/session.json, runtime.json    DOCUMENT       checked, committed as a whole
    …/*.jsonl                       LOG            appended to in place
    …/attachments/                  ATTACHMENTS
    …/attachments/<name>            ATTACHMENT     any bytes, committed as a whole
    anything else                   PLAIN          a foreign file or directory: not ours, left alone

A file where a session's directory could be is foreign too; whether it is one, only the disk knows.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from store import layout
from store.layout import Location


class Kind(Enum):
    SESSIONS = auto()
    SESSION = auto()
    CHILDREN = auto()
    DOCUMENT = auto()
    LOG = auto()
    ATTACHMENTS = auto()
    ATTACHMENT = auto()
    PLAIN = auto()


# Committed as a whole: each version is a file of its own, and who reads one reads it to the end (rule 4).
VERSIONED = frozenset({Kind.DOCUMENT, Kind.ATTACHMENT})


class Place(NamedTuple):
    path: str
    kind: Kind
    location: Location | None  # of the session it is, or is in
    name: str  # the last part of the path


def place_of(path: str) -> Place:
    """The place of a path that is relative to the home and begins with `sessions`."""
    name = path.rpartition("/")[2]
    if path == layout.SESSIONS:
        return Place(path, Kind.SESSIONS, None, name)
    found = layout.locate_path(path)
    if found is None or path.split("/")[1].startswith("."):  # `.~tmp~` and the like; no new id begins so
        return Place(path, Kind.PLAIN, None, name)
    location, rest = found
    return Place(path, _kind(location, rest), location, name)


def _kind(location: Location, rest: str) -> Kind:
    if not rest:
        return Kind.SESSION
    if rest == layout.CHILDREN and location.child is None:
        return Kind.CHILDREN
    if rest in layout.DOCUMENTS:
        return Kind.DOCUMENT
    if rest.endswith(".jsonl") and "/" not in rest:
        return Kind.LOG
    if rest == layout.ATTACHMENTS:
        return Kind.ATTACHMENTS
    if rest.startswith(f"{layout.ATTACHMENTS}/") and rest.count("/") == 1:
        return Kind.ATTACHMENT
    return Kind.PLAIN
