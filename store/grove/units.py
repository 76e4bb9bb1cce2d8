"""Units: what has a version of its own in a grove. Pure.

    sessions/<root>                     its documents, records and attachments
    sessions/<root>/children/<child>    the same of a child
    <session>/mailbox                   the messages of a session
    state/<category>                    the documents directly in a category

A unit is named by its directory. All units of one root are in one shard, so that their order is
agreed too. Files that belong to no unit are local: logs, foreign files, trash, rejected writes.
"""

from __future__ import annotations

import re
from hashlib import blake2b

from store import layout
from store.layout import Location
from store.path_kinds import PathKind, classify_path

_OF_SESSION = frozenset({PathKind.DOCUMENT, PathKind.RECORD, PathKind.ATTACHMENT})
_OF_STATE = frozenset({PathKind.STATE_JSON, PathKind.STATE_TEXT})
_ESCAPED = re.compile("%([0-9A-F]{2})")
_TO_ESCAPE = re.compile("[%\udc80-\udcff]")


def unit_of(path: str) -> str | None:
    """The unit that a file belongs to; None if it is local."""
    info = classify_path(path)
    if info.location is None:
        return None
    if info.kind in _OF_SESSION or info.kind in _OF_STATE:
        return info.location.dir
    if info.kind is PathKind.MESSAGE and info.location.is_session:
        return info.location.path(layout.MAILBOX)
    return None


def location_of(unit: str) -> Location:
    """The location whose lock the commits of a unit hold."""
    if unit == layout.STATE or unit.startswith(f"{layout.STATE}/"):
        return layout.state_location(unit.partition("/")[2])
    found = layout.locate_path(unit)
    if found is None or found[1] not in ("", layout.MAILBOX):
        raise ValueError(f"{unit!r} is not a unit")
    location, rest = found
    return location.part(layout.MAILBOX) if rest else location


def unit_at(location: Location) -> str:
    """The unit whose commits hold the lock of this location."""
    return location.dir


def is_unit(text: str) -> bool:
    """Whether a text from the database names a unit."""
    try:
        return location_of(text).dir == text and ".." not in text.split("/")
    except ValueError:
        return False


def shard_of(root: str, shards: int) -> int:
    """The shard of a root: `Location.root`, so all state documents are in one."""
    return int.from_bytes(blake2b(root.encode(), digest_size=8).digest()) % shards


def escape_path(path: str) -> str:
    """A path as valid Unicode: bytes that are not UTF-8 become %XX, as does the percent sign."""
    return _TO_ESCAPE.sub(lambda found: f"%{ord(found[0]) & 0xFF:02X}", path)


def unescape_path(text: str) -> str:
    """The path that `escape_path` made this from."""

    def restored(found: re.Match[str]) -> str:
        number = int(found[1], 16)
        return chr(0xDC00 + number) if number >= 0x80 else chr(number)

    return _ESCAPED.sub(restored, text)
