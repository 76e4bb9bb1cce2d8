"""File names in a home, and the mapping between paths and sessions. Pure: no I/O, no clock.

Every path is relative to the home and uses "/". A tree is flat: all descendants of a root, at any
depth, are stored in the root's `children/`, so root id and child id are the full address of a
session.

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
    .grovefs/                               the store's own: index.db, history.db, trigrams/, trash/, rejects/, tmp/,
                                            locks

Locks, journal entries and the change feed use locations only. Everything else stored in a home has
a location too, in a form that no session has: a root that starts with "/" is another area of the
home, and "//" in a child separates a directory inside the session.

    Location("r", "c")                           sessions/r/children/c
    Location("r", "c//mailbox")                  sessions/r/children/c/mailbox
    Location("/projects/k", "sessions/p")        projects/k/sessions/p
    Location("/state", "memory/facts")           state/memory/facts
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import takewhile
from typing import Literal, NamedTuple

from store.errors import InvalidName

SESSION = "session.json"  # of a session; in a project, the payload
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
STORED = (SESSIONS, PROJECTS, STATE)  # directories that a mount shows as on disk
INDEX_EXPORT = "sessions.json"
BAMBOO_INDEX_LOCK = ".sessions-index.lock"
BAMBOO_LIFECYCLE_LOCK = ".session-lifecycle.lock"
SIDECAR_MARKER = ".runtime_sidecar_migrated"

# In a project; both are derived from the payloads of its sessions.
PROJECT_INDEX = "index.json"
CHILDREN_INDEX = "children.json"
ENTRY = ".entry.json"  # index entry that a program set, next to a payload that says otherwise
REMOVED = ".removed"  # marker next to the payload of a child that was removed from both

PRIVATE = ".grovefs"
INDEX_DB = f"{PRIVATE}/index.db"
HISTORY_DB = f"{PRIVATE}/history.db"
GROVE_DB = f"{PRIVATE}/grove.db"  # of a home that has joined a grove
IMPORT_LEDGER = f"{PRIVATE}/imported.jsonl"  # sessions that were ever imported
TMP = f"{PRIVATE}/tmp"
PROBE = ".grovefs-probe"  # in sessions/, for a moment while a home is opened
TRASH = f"{PRIVATE}/trash"
REJECTS = f"{PRIVATE}/rejects"
SESSION_LOCKS = f"{PRIVATE}/locks"
OPEN_LOCK = f"{PRIVATE}/open.lock"
RESERVE = f"{PRIVATE}/reserve"  # space for the time when the disk is full

# Files that only Bamboo creates, at the top of its home.
BAMBOO_SEARCH = "session_search.db"  # Bamboo's own full-text index
BAMBOO_HOME_FILES = (BAMBOO_SEARCH, BAMBOO_LIFECYCLE_LOCK, ".bamboo_encryption_key")
# Files of newer Bamboo servers in a session's directory: never touched, but not foreign.
BAMBOO_FILES = (".search-index-revision", ".actor-tree-revision.json")
RECEIPT = ".import.json"  # source of an imported session, and its state at the import

MAX_NAME_BYTES = 255  # limit of ext4, XFS and btrfs

_SURROGATE = re.compile("[\ud800-\udfff]")  # os.fsdecode of bytes that are not UTF-8
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# Temp files of Bamboo: `<file>.tmp.<uuid>`. A crash leaves them in place and Bamboo never deletes
# them.
_LEFTOVER = re.compile(r"\.tmp\.[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")

Kind = Literal["root", "child"]


@lru_cache(maxsize=4096)  # a commit asks for the same directory a dozen times
def _directory(root: str, child: str | None) -> str:
    own, _, part = (child or "").partition("//")
    if root[:1] == "/":
        path = f"{root[1:]}/{own}" if own else root[1:]
    else:
        path = f"{SESSIONS}/{root}/{CHILDREN}/{own}" if own else f"{SESSIONS}/{root}"
    return f"{path}/{part}" if part else path


class Location(NamedTuple):
    """The address of a session or of another area of the home."""

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
        """Whether it is a session below `sessions/`."""
        return self.root[:1] != "/" and (self.child is None or "/" not in self.child)

    @property
    def owner(self) -> Location:
        """The session that contains this directory; any other location itself."""
        own, slashes, _ = (self.child or "").partition("//")
        return Location(self.root, own or None) if slashes else self

    def part(self, name: str) -> Location:
        """A directory in the session with its own lock."""
        return Location(self.root, f"{self.child or ''}//{name}")

    @property
    def dir(self) -> str:
        """The directory, relative to the home."""
        return _directory(self.root, self.child)

    def path(self, name: str) -> str:
        return f"{_directory(self.root, self.child)}/{name}"

    def __str__(self) -> str:
        """The exact name, as typed by a user: `root` or `root/child`."""
        return self.root if self.child is None else f"{self.root}/{self.child}"


def is_text(text: str) -> bool:
    """Whether it is valid Unicode. A name from the disk may not be: it can have any bytes."""
    return not _SURROGATE.search(text)


def is_session_id(text: str) -> bool:
    """Bamboo's rule, which existing homes follow, minus names that a document cannot contain."""
    bamboo = bool(text) and "/" not in text and "\\" not in text and ".." not in text
    return bamboo and text != "." and "\0" not in text and is_text(text)


@lru_cache(maxsize=1024)  # every path in a session contains its id
def is_session_dir(name: str) -> bool:
    """Whether a directory of this name is a session's.

    Bamboo's rule allows ids that start with a dot, but no agent uses them: `.git` or `.~tmp~` are
    foreign.
    """
    return is_session_id(name) and not name.startswith(".")


def check_id(text: str) -> str:
    """Raise InvalidName if it cannot be a session id. Unusual ids that may exist on disk pass."""
    if not is_session_id(text):
        raise InvalidName(f"{text!r} cannot be a session id: {_broken_rule(text)}")
    if len(text.encode()) > MAX_NAME_BYTES:
        raise InvalidName(f"{text[:40]!r}… cannot be a session id: over {MAX_NAME_BYTES} bytes")
    return text


def _broken_rule(text: str) -> str:
    """The rule of `is_session_id` that this text breaks."""
    if not text:
        return "it is empty"
    if text == ".":
        return "it is the name of the directory itself"
    if not is_text(text):
        return "it is not valid Unicode"
    forbidden = {"/": "'/'", "\\": "a backslash", "..": "'..'", "\0": "a NUL byte"}
    return "it contains " + next(shown for part, shown in forbidden.items() if part in text)


def check_new_id(text: str) -> str:
    """Raise InvalidName if it must not become a new id.

    Stricter than `check_id`, for shells and people.
    """
    check_id(text)
    if text.startswith("."):
        raise InvalidName(f"{text!r} cannot be a new session id: it starts with a dot")
    if _CONTROL.search(text):
        raise InvalidName(f"{text!r} cannot be a new session id: it has control characters")
    return text


def check_new(location: Location) -> None:
    """Raise InvalidName if a session must not be created at this location."""
    check_new_id(location.root)
    if location.child is not None:
        check_new_id(location.child)


def check_location(location: Location) -> Location:
    """Raise InvalidName if it cannot be the location of a session."""
    for name in location:
        if name is not None:
            check_id(name)
    return location


def parse_location(text: str) -> Location | None:
    """Parse `root/child`; None for a plain id, which must be looked up."""
    if not isinstance(text, str):
        raise TypeError(f"session id: expected a string, got {type(text).__name__}")
    root, slash, child = text.partition("/")
    if not slash:
        return None
    return Location(check_id(root), check_id(child))


def locate_path(path: str) -> tuple[Location, str] | None:
    """The session that contains a path, and the rest of the path ("" for its directory)."""
    parts = path.split("/")
    if len(parts) < 2 or parts[0] != SESSIONS or not is_session_dir(parts[1]):
        return None
    if len(parts) >= 4 and parts[2] == CHILDREN and is_session_dir(parts[3]):
        return Location(parts[1], parts[3]), "/".join(parts[4:])
    return Location(parts[1]), "/".join(parts[2:])


def children_among(root: str, names: Iterable[str]) -> list[Location]:
    """The children of a root, from the names in its `children/`.

    Names that cannot be ids are foreign and left out: a location is stored in the index and must be
    Unicode.
    """
    return [Location(root, name) for name in names if is_session_dir(name)]


def project_location(key: str, parent: str | None = None, child: str | None = None) -> Location:
    """The location of a project, of a session in it, or of a child of that session."""
    rest = None if parent is None else f"{SESSIONS}/{parent}" + (f"/{CHILDREN}/{child}" if child is not None else "")
    return Location(f"/{PROJECTS}/{key}", rest)


def locate_project(path: str) -> tuple[Location, str] | None:
    """The project, or session in a project, that contains a path, and the rest of the path."""
    parts = path.split("/")
    if len(parts) < 2 or parts[0] != PROJECTS or not is_session_id(parts[1]):
        return None
    if len(parts) < 4 or parts[2] != SESSIONS or not is_session_id(parts[3]):
        return project_location(parts[1]), "/".join(parts[2:])
    if len(parts) >= 6 and parts[4] == CHILDREN and is_session_id(parts[5]):
        return project_location(parts[1], parts[3], parts[5]), "/".join(parts[6:])
    return project_location(parts[1], parts[3]), "/".join(parts[4:])


def state_location(category: str = "") -> Location:
    """The location of a category of state documents.

    A category ends before the first name that is not valid Unicode.
    """
    return Location(f"/{STATE}", "/".join(takewhile(is_text, category.split("/"))) or None)


def is_leftover(name: str) -> bool:
    """Whether it is a temp file that a crashed Bamboo left."""
    return _LEFTOVER.search(name) is not None


def is_known_name(location: Location, name: str) -> bool:
    """Whether a name directly in a session's directory has a meaning; else it is foreign."""
    if name == CHILDREN:
        return location.child is None
    return (
        name in DOCUMENTS or name in LOGS or name in RECORDS or name in (ATTACHMENTS, MAILBOX, RECEIPT, *BAMBOO_FILES)
    )
