"""What a path in the home means, and so which rules hold for it. Pure.

    sessions/                       SESSIONS
    sessions/<root>/                SESSION        also children/<child>/
    sessions/<root>/children/       CHILDREN       only of a root
    …/session.json, runtime.json    DOCUMENT       checked, committed as a whole
    …/artifacts.json, traces.json, verification.json   RECORD   checked, committed as a whole
    …/*.jsonl                       LOG            appended to in place
    …/attachments/                  ATTACHMENTS
    …/attachments/<name>            ATTACHMENT     any bytes, committed as a whole
    …/mailbox/                      MAILBOX        and new/, cur/, corrupt/ in it
    …/mailbox/{new,cur}/<name>.json MESSAGE        checked, committed as a whole

    projects/<key>/                 PROJECT
    …/sessions/                     MEMBERS        also sessions/<parent>/children/
    …/sessions/<parent>/            MEMBER         also children/<child>/
    …/session.json                  PAYLOAD        any JSON object, committed as a whole
    …/index.json, children.json     DERIVED        made from the payloads: nobody else writes them

    state/<category>/<name>.json    STATE_JSON     checked, committed as a whole; categories may be nested
    state/<category>/<name>.md      STATE_TEXT     any bytes, committed as a whole

    projects/, state/               PART
    anything else                   PLAIN          a foreign file or directory: not ours, left alone

A file where a session's directory could be is foreign too; whether it is one, only the disk knows.
"""

from __future__ import annotations

from enum import Enum, auto
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
    PART = auto()
    PROJECT = auto()
    MEMBERS = auto()
    MEMBER = auto()
    PAYLOAD = auto()
    DERIVED = auto()
    STATE_JSON = auto()
    STATE_TEXT = auto()
    PLAIN = auto()


# Committed as a whole: each version is a file of its own, and who reads one reads it to the end (rule 4).
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
# Of these, what may be refused for what it says; a rename onto one is a commit.
CHECKED = frozenset({PathKind.DOCUMENT, PathKind.RECORD, PathKind.MESSAGE, PathKind.PAYLOAD, PathKind.STATE_JSON})
# And what may be empty; an empty one of the others is a writer who has not begun yet.
MAY_BE_EMPTY = frozenset({PathKind.ATTACHMENT, PathKind.STATE_TEXT})
# What an index tells of: if one of these changes behind our back, something has to follow.
FOLLOWED = frozenset({PathKind.DOCUMENT, PathKind.PAYLOAD, PathKind.STATE_JSON, PathKind.STATE_TEXT})
# Directories that belong where they are.
FIXED = frozenset(
    {PathKind.SESSIONS, PathKind.CHILDREN, PathKind.ATTACHMENTS, PathKind.MAILBOX, PathKind.PART, PathKind.MEMBERS}
)


class PathInfo(NamedTuple):
    path: str
    kind: PathKind
    location: Location | None  # of the session, project or category it is, or is in
    name: str  # the last part of the path

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def can_be_hidden(self) -> bool:
        """Whether taking the name away only hides it for a while: it is the deletion of a session."""
        return self.kind is PathKind.DOCUMENT and self.name == layout.SESSION


def classify_path(path: str) -> PathInfo:
    """The place of a path that is relative to the home and begins with one of `layout.STORED`."""
    name = path.rpartition("/")[2]
    if path == layout.SESSIONS:
        return PathInfo(path, PathKind.SESSIONS, None, name)
    if path in layout.STORED:
        return PathInfo(path, PathKind.PART, None, name)
    if path.startswith(f"{layout.STATE}/"):
        return _state_path(path, name)
    if path.startswith(f"{layout.PROJECTS}/"):
        return _project_path(path, name)
    found = layout.locate_path(path)
    if found is None:
        return PathInfo(path, PathKind.PLAIN, None, name)
    location, rest = found
    return PathInfo(path, _kind(location, rest), location, name)


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
    """What the sessions of both trees have."""
    if rest.endswith(".jsonl") and "/" not in rest:
        return PathKind.LOG
    if rest != layout.MAILBOX and not rest.startswith(f"{layout.MAILBOX}/"):
        return PathKind.PLAIN
    _, _, inside = rest.partition("/")
    box, _, name = inside.partition("/")
    if not name and (not box or box in layout.MAIL_DIRS):
        return PathKind.MAILBOX
    is_message = box in (layout.MAIL_NEW, layout.MAIL_CUR) and "/" not in name and is_message_name(name)
    return PathKind.MESSAGE if is_message else PathKind.PLAIN


def is_message_name(name: str) -> bool:
    """What a reader takes for a message; temporaries of editors and rsync begin with a dot."""
    return name.endswith(".json") and not name.startswith(".")


def _project_path(path: str, name: str) -> PathInfo:
    found = layout.locate_project(path)
    if found is None or any(part.startswith(".") for part in (path.split("/")[1], *path.split("/")[3:4])):
        return PathInfo(path, PathKind.PLAIN, None, name)
    location, rest = found
    return PathInfo(path, _project_kind(location, rest), location, name)


def _project_kind(location: Location, rest: str) -> PathKind:
    if location.child is None:
        known = {"": PathKind.PROJECT, layout.SESSIONS: PathKind.MEMBERS, layout.PROJECT_INDEX: PathKind.DERIVED}
        return known.get(rest, PathKind.PLAIN)
    if rest in ("", layout.SESSION):
        return PathKind.PAYLOAD if rest else PathKind.MEMBER
    is_parent = f"/{layout.CHILDREN}/" not in location.child
    if is_parent and rest in (layout.CHILDREN, layout.CHILDREN_INDEX):
        return PathKind.MEMBERS if rest == layout.CHILDREN else PathKind.DERIVED
    return _shared_kind(rest)


def _state_path(path: str, name: str) -> PathInfo:
    categories = path.split("/")[1:-1]
    location = layout.state_location("/".join(categories))
    stem, _, ending = name.rpartition(".")
    is_document = ending in ("json", "md") and is_state_name(stem) and all(map(is_category_name, categories))
    if not categories or not is_document:
        return PathInfo(path, PathKind.PLAIN, location, name)
    return PathInfo(path, PathKind.STATE_JSON if ending == "json" else PathKind.STATE_TEXT, location, name)


def is_category_name(part: str) -> bool:
    """Whether a directory below `state/` can be (part of) a category; `.git` is not ours."""
    return part not in ("", ".", ".git") and is_state_name(part)


def is_state_name(stem: str) -> bool:
    """Whether a file there can be a document, by its name without the ending; `.#name` is the lock of an Emacs."""
    is_clear = ".." not in stem and "/" not in stem and "\\" not in stem and layout.is_text(stem)
    return is_clear and not stem.startswith(".#")


def listing_order(name: str) -> tuple[bool, str]:
    """How a directory lists its names: what is derived comes last, so that `rm -r`, which goes by this order, takes
    away what it tells of first."""
    return name in (layout.PROJECT_INDEX, layout.CHILDREN_INDEX), name
