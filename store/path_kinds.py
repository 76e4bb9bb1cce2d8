"""Kinds of paths in a home: which rules apply to a path. Pure.

    sessions/                       SESSIONS
    sessions/<root>/                SESSION           also children/<child>/
    sessions/<root>/children/       CHILDREN          only in a root session
    …/session.json, runtime.json    DOCUMENT          checked, replaced as a whole
    …/artifacts.json, traces.json, verification.json   RECORD   checked, replaced as a whole
    …/*.jsonl                       LOG               appended in place
    …/attachments/                  ATTACHMENTS
    …/attachments/<name>            ATTACHMENT        any bytes, replaced as a whole
    …/mailbox/                      MAILBOX           also new/, cur/, corrupt/ in it
    …/mailbox/{new,cur}/<name>.json MESSAGE           checked, replaced as a whole

    projects/<key>/                 PROJECT
    …/sessions/                     PROJECT_SESSIONS  also sessions/<parent>/children/
    …/sessions/<parent>/            PROJECT_SESSION   also children/<child>/
    …/session.json                  PAYLOAD           any JSON object, replaced as a whole
    …/index.json, children.json     DERIVED           generated from the payloads, read-only

    state/<category>/<name>.json    STATE_JSON        checked, replaced as a whole; categories may be nested
    state/<category>/<name>.md      STATE_TEXT        any bytes, replaced as a whole

    projects/, state/               AREA
    anything else                   FOREIGN           a file or directory of another program, left alone

Classification looks at the path only. A SESSION path that is a file on disk is foreign too: callers
check.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from store import layout
from store.layout import Location


class PathKind(Enum):
    SESSIONS = auto()
    SESSION = auto()
    CHILDREN = auto()
    DOCUMENT = auto()
    RECORD = auto()
    LOG = auto()
    ATTACHMENTS = auto()
    ATTACHMENT = auto()
    MAILBOX = auto()
    MESSAGE = auto()
    AREA = auto()
    PROJECT = auto()
    PROJECT_SESSIONS = auto()
    PROJECT_SESSION = auto()
    PAYLOAD = auto()
    DERIVED = auto()
    STATE_JSON = auto()
    STATE_TEXT = auto()
    FOREIGN = auto()


# Replaced as a whole: each version is a separate file, which an open reader keeps (rule 4).
VERSIONED = frozenset(
    {
        PathKind.DOCUMENT,
        PathKind.RECORD,
        PathKind.ATTACHMENT,
        PathKind.MESSAGE,
        PathKind.PAYLOAD,
        PathKind.STATE_JSON,
        PathKind.STATE_TEXT,
    }
)
# Versioned files whose content is validated; a rename onto one is a commit.
CHECKED = frozenset({PathKind.DOCUMENT, PathKind.RECORD, PathKind.MESSAGE, PathKind.PAYLOAD, PathKind.STATE_JSON})
# Versioned files that may be empty. An empty file of another kind means that its writer has not
# written yet.
MAY_BE_EMPTY = frozenset({PathKind.ATTACHMENT, PathKind.STATE_TEXT})
# Files described by an index, which must be updated after an outside edit.
INDEXED = frozenset({PathKind.DOCUMENT, PathKind.PAYLOAD, PathKind.STATE_JSON, PathKind.STATE_TEXT})
# Directories that cannot be renamed.
FIXED_DIRS = frozenset(
    {
        PathKind.SESSIONS,
        PathKind.CHILDREN,
        PathKind.ATTACHMENTS,
        PathKind.MAILBOX,
        PathKind.AREA,
        PathKind.PROJECT_SESSIONS,
    }
)


class PathInfo(NamedTuple):
    path: str
    kind: PathKind
    location: Location | None  # of the session, project or category at or above the path
    name: str  # last component of the path

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def is_session_log(self) -> bool:
        """Whether it is a log of a session: what is replaced or truncated of it goes to the trash."""
        return self.kind is PathKind.LOG and self.location is not None and self.location.is_session

    @property
    def is_log_backup(self) -> bool:
        """Whether an editor has made it of a log, by a rename or a copy."""
        return self.name.endswith(".jsonl~") and self.location is not None and self.directory == self.location.dir

    @property
    def is_nested_attachment(self) -> bool:
        """Whether it is in a directory below attachments/: foreign, but deleted like an attachment."""
        if self.kind is not PathKind.FOREIGN or self.location is None or not self.location.is_session:
            return False
        return self.path.startswith(self.location.path(f"{layout.ATTACHMENTS}/"))

    @property
    def can_be_hidden(self) -> bool:
        """Whether a mount hides the name for a while instead of unlinking it at once.

        Unlinking session.json deletes the session, but editors unlink and recreate it to save.
        """
        return self.kind is PathKind.DOCUMENT and self.name == layout.SESSION


@lru_cache(maxsize=4096)  # the mount asks for the same few paths in every request
def classify_path(path: str) -> PathInfo:
    """Classify a path that is relative to the home and starts with one of `layout.STORED`."""
    name = path.rpartition("/")[2]
    if path == layout.SESSIONS:
        return PathInfo(path, PathKind.SESSIONS, None, name)
    if path in layout.STORED:
        return PathInfo(path, PathKind.AREA, None, name)
    if path.startswith(f"{layout.STATE}/"):
        return _state_path(path, name)
    if path.startswith(f"{layout.PROJECTS}/"):
        return _project_path(path, name)
    found = layout.locate_path(path)
    if found is None:
        return PathInfo(path, PathKind.FOREIGN, None, name)
    location, rest = found
    return PathInfo(path, _kind(location, rest), location, name)


def classify_in(directory: PathInfo | None, path: str) -> PathInfo:
    """Classify a path in a directory that is classified already: as classify_path does, but faster for documents."""
    if directory is not None and directory.kind is PathKind.SESSION:
        name = path[len(directory.path) + 1 :]
        if name in layout.DOCUMENTS:
            return PathInfo(path, PathKind.DOCUMENT, directory.location, name)
    return classify_path(path)


def _kind(location: Location, rest: str) -> PathKind:
    if not rest:
        return PathKind.SESSION
    if rest == layout.CHILDREN and location.child is None:
        return PathKind.CHILDREN
    if rest in layout.DOCUMENTS:
        return PathKind.DOCUMENT
    if rest in layout.RECORDS:
        return PathKind.RECORD
    if rest == layout.ATTACHMENTS:
        return PathKind.ATTACHMENTS
    if rest.startswith(f"{layout.ATTACHMENTS}/") and rest.count("/") == 1:
        return PathKind.ATTACHMENT
    return _shared_kind(rest)


def _shared_kind(rest: str) -> PathKind:
    """Files that sessions below sessions/ and below projects/ have in common."""
    if rest.endswith(".jsonl") and "/" not in rest:
        return PathKind.LOG
    if rest != layout.MAILBOX and not rest.startswith(f"{layout.MAILBOX}/"):
        return PathKind.FOREIGN
    _, _, inside = rest.partition("/")
    box, _, name = inside.partition("/")
    if not name and (not box or box in layout.MAIL_DIRS):
        return PathKind.MAILBOX
    is_message = box in (layout.MAIL_NEW, layout.MAIL_CUR) and "/" not in name and is_message_name(name)
    return PathKind.MESSAGE if is_message else PathKind.FOREIGN


def is_message_name(name: str) -> bool:
    """Whether a mailbox reader treats the file as a message.

    Temp files of editors and rsync start with a dot.
    """
    return name.endswith(".json") and not name.startswith(".")


def _project_path(path: str, name: str) -> PathInfo:
    found = layout.locate_project(path)
    if found is None or any(part.startswith(".") for part in (path.split("/")[1], *path.split("/")[3:4])):
        return PathInfo(path, PathKind.FOREIGN, None, name)
    location, rest = found
    return PathInfo(path, _project_kind(location, rest), location, name)


def _project_kind(location: Location, rest: str) -> PathKind:
    if location.child is None:
        known = {
            "": PathKind.PROJECT,
            layout.SESSIONS: PathKind.PROJECT_SESSIONS,
            layout.PROJECT_INDEX: PathKind.DERIVED,
        }
        return known.get(rest, PathKind.FOREIGN)
    if rest in ("", layout.SESSION):
        return PathKind.PAYLOAD if rest else PathKind.PROJECT_SESSION
    is_parent = f"/{layout.CHILDREN}/" not in location.child
    if is_parent and rest in (layout.CHILDREN, layout.CHILDREN_INDEX):
        return PathKind.PROJECT_SESSIONS if rest == layout.CHILDREN else PathKind.DERIVED
    return _shared_kind(rest)


def _state_path(path: str, name: str) -> PathInfo:
    categories = path.split("/")[1:-1]
    location = layout.state_location("/".join(categories))
    stem, _, ending = name.rpartition(".")
    is_document = ending in ("json", "md") and is_state_name(stem) and all(map(is_category_name, categories))
    if not categories or not is_document:
        return PathInfo(path, PathKind.FOREIGN, location, name)
    return PathInfo(path, PathKind.STATE_JSON if ending == "json" else PathKind.STATE_TEXT, location, name)


def is_category_name(part: str) -> bool:
    """Whether a directory below state/ can be a component of a category; `.git` is foreign."""
    return part not in ("", ".", ".git") and is_state_name(part)


def is_state_name(stem: str) -> bool:
    """Whether a file below state/ can be a document, by its name without the suffix.

    `.#name` is a lock file of Emacs.
    """
    is_safe = ".." not in stem and "/" not in stem and "\\" not in stem and layout.is_text(stem)
    return is_safe and not stem.startswith(".#")


def listing_order(name: str) -> tuple[bool, str]:
    """Sort key of directory listings: derived files last.

    `rm -r` deletes in this order, so the payloads go before the files derived from them.
    """
    return name in (layout.PROJECT_INDEX, layout.CHILDREN_INDEX), name
