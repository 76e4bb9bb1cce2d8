"""The one place that knows path ↔ identity. Pure: no I/O, no clock.

Every path is relative to the home and uses "/". A tree is flat: all descendants of a root, at any
depth, lie in the root's `children/`, so root id and child id are the whole address of a session.

    sessions/<root>/session.json            the conversation, complete
    sessions/<root>/runtime.json            the sidecar: the same record without its messages
    sessions/<root>/token-usage.jsonl       one line per model call
    sessions/<root>/trajectory.jsonl        one line per tool call
    sessions/<root>/attachments/<id>.<ext>
    sessions/<root>/artifacts.json traces.json verification.json
    sessions/<root>/mailbox/{new,cur,corrupt}/
    sessions/<root>/children/<child>/…      sub-agents at any depth, flat below their root
    projects/<key>/sessions/<parent>/…      sessions by workspace, any JSON object; index.json, children.json derived
    state/<category>/<name>.{md,json}       plain documents
    sessions.json                           the index in Bamboo's format: an export
    .grovefs/                               the store's own: index.db, trigrams/, trash/, rejects/, tmp/, locks

Locks, marks and the change feed know locations only, so what else is kept has one too, spelled as no session
can be: a root that begins with "/" is another part of the home, and "//" in a child leads into a session.

    Location("r", "c")                           sessions/r/children/c
    Location("r", "c//mailbox")                  sessions/r/children/c/mailbox
    Location("/projects/k", "sessions/p")        projects/k/sessions/p
    Location("/state", "memory/facts")           state/memory/facts
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile
from typing import Literal, NamedTuple

from store.errors import InvalidName

SESSION = "session.json"  # of a session; of a project's session, its payload
RUNTIME = "runtime.json"
DOCUMENTS = (SESSION, RUNTIME)
TOKEN_USAGE = "token-usage.jsonl"
TRAJECTORY = "trajectory.jsonl"
LOGS = (TOKEN_USAGE, TRAJECTORY)
ATTACHMENTS = "attachments"
CHILDREN = "children"
MAILBOX = "mailbox"
MAIL_NEW, MAIL_CUR, MAIL_CORRUPT = "new", "cur", "corrupt"
MAIL_DIRS = (MAIL_NEW, MAIL_CUR, MAIL_CORRUPT)
ARTIFACTS, TRACES, VERIFICATION = "artifacts.json", "traces.json", "verification.json"
RECORDS = (ARTIFACTS, TRACES, VERIFICATION)

SESSIONS = "sessions"
PROJECTS = "projects"
STATE = "state"
STORED = (SESSIONS, PROJECTS, STATE)  # what of the home a mount shows as it is
INDEX_EXPORT = "sessions.json"
BAMBOO_INDEX_LOCK = ".sessions-index.lock"
BAMBOO_LIFECYCLE_LOCK = ".session-lifecycle.lock"
SIDECAR_MARKER = ".runtime_sidecar_migrated"

# In a project: both derived from the payloads of its sessions.
PROJECT_INDEX = "index.json"
CHILDREN_INDEX = "children.json"
REMOVED = ".removed"  # beside the payload of a child that was taken out of both

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
    """Where a session, or another part of the home, lies: the key of everything."""

    root: str
    child: str | None = None

    @property
    def id(self) -> str:
        return self.root if self.child is None else self.child

    @property
    def kind(self) -> Kind:
        return "root" if self.child is None else "child"

    @property
    def is_session(self) -> bool:
        """Whether it is one below `sessions/`, and not something else that is kept."""
        return self.root[:1] != "/" and (self.child is None or "/" not in self.child)

    @property
    def owner(self) -> Location:
        """The session that a part of a session belongs to; anything else is its own."""
        own, slashes, _ = (self.child or "").partition("//")
        return Location(self.root, own or None) if slashes else self

    def part(self, name: str) -> Location:
        """A directory in a session, with a lock of its own."""
        return Location(self.root, f"{self.child or ''}//{name}")

    @property
    def dir(self) -> str:
        """The directory, relative to the home."""
        own, _, part = (self.child or "").partition("//")
        if self.root[:1] == "/":
            path = f"{self.root[1:]}/{own}" if own else self.root[1:]
        else:
            path = f"{SESSIONS}/{self.root}/{CHILDREN}/{own}" if own else f"{SESSIONS}/{self.root}"
        return f"{path}/{part}" if part else path

    def path(self, name: str) -> str:
        return f"{self.dir}/{name}"

    def __str__(self) -> str:
        """The exact name a user may type: `root` or `root/child`."""
        return self.root if self.child is None else f"{self.root}/{self.child}"


def is_text(text: str) -> bool:
    """Whether it can be stored: a name on disk may be any bytes, and then is no Unicode."""
    return not _SURROGATE.search(text)


def is_session_id(text: str) -> bool:
    """Bamboo's rule, which decides what already lies on disk; and what no document could name is none."""
    bamboo = bool(text) and "/" not in text and "\\" not in text and ".." not in text
    return bamboo and text != "." and "\0" not in text and is_text(text)


def is_session_dir(name: str) -> bool:
    """Whether a directory of this name is a session's. `.git`, `.~tmp~` and the like lie among them and are foreign,
    though Bamboo's rule would let an id begin so: nobody's does."""
    return is_session_id(name) and not name.startswith(".")


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
    if not isinstance(text, str):
        raise TypeError(f"session id: expected a string, got {type(text).__name__}")
    root, slash, child = text.partition("/")
    if not slash:
        return None
    return Location(check_id(root), check_id(child))


def locate_path(path: str) -> tuple[Location, str] | None:
    """The session a path under the home belongs to, and the rest of the path inside it ("" for itself)."""
    parts = path.split("/")
    if len(parts) < 2 or parts[0] != SESSIONS or not is_session_dir(parts[1]):
        return None
    if len(parts) >= 4 and parts[2] == CHILDREN and is_session_dir(parts[3]):
        return Location(parts[1], parts[3]), "/".join(parts[4:])
    return Location(parts[1]), "/".join(parts[2:])


def children_among(root: str, names: Iterable[str]) -> list[Location]:
    """The children of a root, by the names in its `children/`. What can be no id there is foreign, whatever its bytes:
    a location is text always, for it is kept in the index."""
    return [Location(root, name) for name in names if is_session_dir(name)]


def project_location(key: str, parent: str | None = None, child: str | None = None) -> Location:
    """A project, a session of it, or a child of that session."""
    rest = None if parent is None else f"{SESSIONS}/{parent}" + (f"/{CHILDREN}/{child}" if child is not None else "")
    return Location(f"/{PROJECTS}/{key}", rest)


def locate_project(path: str) -> tuple[Location, str] | None:
    """The project, or the session of one, that a path belongs to, and the rest of the path inside it."""
    parts = path.split("/")
    if len(parts) < 2 or parts[0] != PROJECTS or not is_session_id(parts[1]):
        return None
    if len(parts) < 4 or parts[2] != SESSIONS or not is_session_id(parts[3]):
        return project_location(parts[1]), "/".join(parts[2:])
    if len(parts) >= 6 and parts[4] == CHILDREN and is_session_id(parts[5]):
        return project_location(parts[1], parts[3], parts[5]), "/".join(parts[6:])
    return project_location(parts[1], parts[3]), "/".join(parts[4:])


def state_location(category: str = "") -> Location:
    """The directory of a category of state documents. What lies below a name that is no text is in none, and counts
    to the directory above it."""
    return Location(f"/{STATE}", "/".join(takewhile(is_text, category.split("/"))) or None)


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
