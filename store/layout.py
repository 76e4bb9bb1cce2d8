"""The one place that knows path ↔ identity. Pure: no I/O, no clock.

Every path is relative to the home and uses "/". A tree is flat: all descendants of a root, at any
depth, lie in the root's `children/`, so root id and child id are the whole address of a session.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from store.errors import InvalidName

SESSION = "session.json"
RUNTIME = "runtime.json"
DOCUMENTS = (SESSION, RUNTIME)
TOKEN_USAGE = "token-usage.jsonl"
TRAJECTORY = "trajectory.jsonl"
LOGS = (TOKEN_USAGE, TRAJECTORY)
ATTACHMENTS = "attachments"
CHILDREN = "children"
MAILBOX = "mailbox"
RECORDS = ("artifacts.json", "traces.json", "verification.json")

SESSIONS = "sessions"
INDEX_EXPORT = "sessions.json"
BAMBOO_INDEX_LOCK = ".sessions-index.lock"
BAMBOO_LIFECYCLE_LOCK = ".session-lifecycle.lock"
SIDECAR_MARKER = ".runtime_sidecar_migrated"

PRIVATE = ".grovefs"
INDEX_DB = f"{PRIVATE}/index.db"
TMP = f"{PRIVATE}/tmp"
TRASH = f"{PRIVATE}/trash"
REJECTS = f"{PRIVATE}/rejects"
SESSION_LOCKS = f"{PRIVATE}/locks"
OPEN_LOCK = f"{PRIVATE}/open.lock"

# What newer Bamboo servers keep in a session's directory; not ours to touch, not foreign either.
BAMBOO_FILES = (".search-index-revision", ".actor-tree-revision.json")
RECEIPT = ".import.json"  # where an imported session came from, and what it was then

MAX_NAME_BYTES = 255  # what ext4, XFS and btrfs take for one name

_SURROGATE = re.compile("[\ud800-\udfff]")  # what os gives for bytes that are not UTF-8
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Bamboo's own temporaries: `<file>.tmp.<uuid>`, left behind by a crash and never cleaned by it.
_LEFTOVER = re.compile(r"\.tmp\.[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")

Kind = Literal["root", "child"]


class Location(NamedTuple):
    """Where a session lies: the key of everything."""

    root: str
    child: str | None = None

    @property
    def id(self) -> str:
        return self.root if self.child is None else self.child

    @property
    def kind(self) -> Kind:
        return "root" if self.child is None else "child"

    @property
    def dir(self) -> str:
        """The session's directory, relative to the home."""
        root = f"{SESSIONS}/{self.root}"
        return root if self.child is None else f"{root}/{CHILDREN}/{self.child}"

    def path(self, name: str) -> str:
        return f"{self.dir}/{name}"

    def __str__(self) -> str:
        """The exact name a user may type: `root` or `root/child`."""
        return self.root if self.child is None else f"{self.root}/{self.child}"


def is_session_id(text: str) -> bool:
    """Bamboo's rule, which decides what already lies on disk; and what no document could name is none."""
    bamboo = bool(text) and "/" not in text and "\\" not in text and ".." not in text
    return bamboo and text != "." and "\0" not in text and not _SURROGATE.search(text)


def check_id(text: str) -> str:
    """Refuse what can be no session id at all; odd ids that lie on disk pass."""
    if not is_session_id(text):
        raise InvalidName(
            f"{text!r} cannot be a session id: it is empty, '.', not Unicode, or has '/', '\\', '..' or NUL"
        )
    if len(text.encode()) > MAX_NAME_BYTES:
        raise InvalidName(f"{text[:40]!r}… cannot be a session id: over {MAX_NAME_BYTES} bytes")
    return text


def check_new_id(text: str) -> str:
    """Refuse what should not become a new id: stricter than what is read, for shells and humans."""
    check_id(text)
    if text.startswith("."):
        raise InvalidName(f"{text!r} cannot be a new session id: it starts with a dot")
    if _CONTROL.search(text):
        raise InvalidName(f"{text!r} cannot be a new session id: it has control characters")
    return text


def check_new(location: Location) -> None:
    """Refuse a location whose names should not come into being."""
    check_new_id(location.root)
    if location.child is not None:
        check_new_id(location.child)


def check_location(location: Location) -> Location:
    """Refuse a Location that names no place among the sessions, however it was come by."""
    for name in location:
        if name is not None:
            check_id(name)
    return location


def parse_location(text: str) -> Location | None:
    """`root/child` as a Location; None for a plain id, which has to be looked up."""
    root, slash, child = text.partition("/")
    if not slash:
        return None
    return Location(check_id(root), check_id(child))


def locate_path(path: str) -> tuple[Location, str] | None:
    """The session a path under the home belongs to, and the rest of the path inside it ("" for itself)."""
    parts = path.split("/")
    if len(parts) < 2 or parts[0] != SESSIONS or not is_session_id(parts[1]):
        return None
    if len(parts) >= 4 and parts[2] == CHILDREN and is_session_id(parts[3]):
        return Location(parts[1], parts[3]), "/".join(parts[4:])
    return Location(parts[1]), "/".join(parts[2:])


def is_leftover(name: str) -> bool:
    """A temporary that a crashed Bamboo left behind."""
    return _LEFTOVER.search(name) is not None


def is_known_name(location: Location, name: str) -> bool:
    """Whether a name directly in a session's directory means something to us (else it is foreign)."""
    if name == CHILDREN:
        return location.child is None
    return (
        name in DOCUMENTS or name in LOGS or name in RECORDS or name in (ATTACHMENTS, MAILBOX, RECEIPT, *BAMBOO_FILES)
    )
