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


class Kind(Enum):
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
    {Kind.DOCUMENT, Kind.RECORD, Kind.ATTACHMENT, Kind.MESSAGE, Kind.PAYLOAD, Kind.STATE_JSON, Kind.STATE_TEXT}
)
# Of these, what may be refused for what it says; a rename onto one is a commit.
CHECKED = frozenset({Kind.DOCUMENT, Kind.RECORD, Kind.MESSAGE, Kind.PAYLOAD, Kind.STATE_JSON})
# And what may be empty; an empty one of the others is a writer who has not begun yet.
MAY_BE_EMPTY = frozenset({Kind.ATTACHMENT, Kind.STATE_TEXT})
# What an index tells of: if one of these changes behind our back, something has to follow.
FOLLOWED = frozenset({Kind.DOCUMENT, Kind.PAYLOAD, Kind.STATE_JSON, Kind.STATE_TEXT})
# Directories that belong where they are.
FIXED = frozenset({Kind.SESSIONS, Kind.CHILDREN, Kind.ATTACHMENTS, Kind.MAILBOX, Kind.PART, Kind.MEMBERS})


class Place(NamedTuple):
    path: str
    kind: Kind
    location: Location | None  # of the session, project or category it is, or is in
    name: str  # the last part of the path

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def has_limbo(self) -> bool:
        """Whether taking the name away only hides it for a while: it is the deletion of a session."""
        return self.kind is Kind.DOCUMENT and self.name == layout.SESSION


def place_of(path: str) -> Place:
    """The place of a path that is relative to the home and begins with one of `layout.STORED`."""
    name = path.rpartition("/")[2]
    if path == layout.SESSIONS:
        return Place(path, Kind.SESSIONS, None, name)
    if path in layout.STORED:
        return Place(path, Kind.PART, None, name)
    if path.startswith(f"{layout.STATE}/"):
        return _state_place(path, name)
    if path.startswith(f"{layout.PROJECTS}/"):
        return _project_place(path, name)
    found = layout.locate_path(path)
    if found is None:
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
    if rest in layout.RECORDS:
        return Kind.RECORD
    if rest == layout.ATTACHMENTS:
        return Kind.ATTACHMENTS
    if rest.startswith(f"{layout.ATTACHMENTS}/") and rest.count("/") == 1:
        return Kind.ATTACHMENT
    return _shared_kind(rest)


def _shared_kind(rest: str) -> Kind:
    """What the sessions of both trees have."""
    if rest.endswith(".jsonl") and "/" not in rest:
        return Kind.LOG
    if rest != layout.MAILBOX and not rest.startswith(f"{layout.MAILBOX}/"):
        return Kind.PLAIN
    _, _, inside = rest.partition("/")
    box, _, name = inside.partition("/")
    if not name and (not box or box in layout.MAIL_DIRS):
        return Kind.MAILBOX
    is_message = box in (layout.MAIL_NEW, layout.MAIL_CUR) and "/" not in name and is_message_name(name)
    return Kind.MESSAGE if is_message else Kind.PLAIN


def is_message_name(name: str) -> bool:
    """What a reader takes for a message; temporaries of editors and rsync begin with a dot."""
    return name.endswith(".json") and not name.startswith(".")


def _project_place(path: str, name: str) -> Place:
    found = layout.locate_project(path)
    if found is None or any(part.startswith(".") for part in (path.split("/")[1], *path.split("/")[3:4])):
        return Place(path, Kind.PLAIN, None, name)
    location, rest = found
    return Place(path, _project_kind(location, rest), location, name)


def _project_kind(location: Location, rest: str) -> Kind:
    if location.child is None:
        known = {"": Kind.PROJECT, layout.SESSIONS: Kind.MEMBERS, layout.PROJECT_INDEX: Kind.DERIVED}
        return known.get(rest, Kind.PLAIN)
    if rest in ("", layout.SESSION):
        return Kind.PAYLOAD if rest else Kind.MEMBER
    is_parent = f"/{layout.CHILDREN}/" not in location.child
    if is_parent and rest in (layout.CHILDREN, layout.CHILDREN_INDEX):
        return Kind.MEMBERS if rest == layout.CHILDREN else Kind.DERIVED
    return _shared_kind(rest)


def _state_place(path: str, name: str) -> Place:
    categories = path.split("/")[1:-1]
    location = layout.state_location("/".join(categories))
    stem, _, ending = name.rpartition(".")
    is_document = ending in ("json", "md") and is_state_name(stem) and all(map(is_category_name, categories))
    if not categories or not is_document:
        return Place(path, Kind.PLAIN, location, name)
    return Place(path, Kind.STATE_JSON if ending == "json" else Kind.STATE_TEXT, location, name)


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
