"""File names of pages, and links between them. Pure.

    html/<root>.html              a root's conversation
    html/<root>/<child>.html      a child's
    html/<root>.images/7-0.png    the first image inside message 7 of a root; html/<root>/<child>.images/… of a child
    html/<root>.log.html          a root's history; html/<root>/<child>.log.html a child's

Ids that end like one of these names get `.d` appended, as in transcripts/, to keep all names unique.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from store import Location, layout
from store.documents.transcript import quote_name

INDEX, STATS = "index.html", "stats.html"
IMAGES = ".images"
PageKind = Literal["page", "log", "images"]

_SUFFIXES: dict[PageKind, str] = {"log": ".log.html", "page": ".html", "images": IMAGES}  # the longest first
_ENDS_LIKE_A_NAME = re.compile(r"(\A(index|stats)|\.html|\.log|\.images)(\.d)*\Z")


class PageName(NamedTuple):
    """What a file name in html/ stands for."""

    location: Location
    kind: PageKind


def stem_of(session_id: str) -> str:
    return f"{session_id}.d" if _ENDS_LIKE_A_NAME.search(session_id) else session_id


def id_of(stem: str) -> str | None:
    """The session whose names have this stem; None if there cannot be one."""
    session_id = stem.removesuffix(".d") if _ENDS_LIKE_A_NAME.search(stem) else stem
    return session_id if layout.is_session_id(session_id) and stem_of(session_id) == stem else None


def parse_name(root: str | None, name: str) -> PageName | None:
    """The page, log or image directory with this name, in html/ or in the directory of a root."""
    for kind, suffix in _SUFFIXES.items():
        if name.endswith(suffix):
            session_id = id_of(name.removesuffix(suffix))
            if session_id is None:
                return None
            return PageName(Location(session_id) if root is None else Location(root, session_id), kind)
    return None


def path_of(location: Location, kind: PageKind = "page") -> str:
    """The path of a page below html/."""
    stems = "/".join(stem_of(part) for part in location if part is not None)
    return stems + _SUFFIXES[kind]


def link(source: Location | None, target: Location | str, kind: PageKind = "page") -> str:
    """The relative address from one page to another, quoted; the source is None for pages directly in html/."""
    up = "" if source is None or source.child is None else "../"
    return up + quote_name(target if isinstance(target, str) else path_of(target, kind))
