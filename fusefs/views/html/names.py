"""File names of pages, and links between them. Pure.

    html/<root>.html              a root's conversation
    html/<root>/<child>.html      a child's
    html/<root>.images/7-0.png    the first image inside message 7; html/<root>/<child>.images/… of a child
    html/<root>.log.html          its versions
    html/<root>.diff-5.html       what version 5 changed; diff-3-5: the difference between versions 3 and 5

Ids that end like one of these names get `.d` appended, as in transcripts/, to keep all names unique.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from store import Location, layout
from store.documents.transcript import quote_name

INDEX, STATS = "index.html", "stats.html"
FILES = "files"  # attachments in an exported site
PageKind = Literal["page", "log", "images", "diff"]

_SUFFIX = re.compile(r"(\.log\.html|\.diff-(\d{1,9})(?:-(\d{1,9}))?\.html|\.html|\.images)\Z")
_ENDS_LIKE_A_NAME = re.compile(r"(\A(index|stats|files)|\.html|\.log|\.diff-\d+(-\d+)?|\.images)(\.d)*\Z")


class PageName(NamedTuple):
    """What a file name in html/ stands for."""

    location: Location
    kind: PageKind
    versions: tuple[int | None, int] | None = None  # of a difference: older and newer; None is the one before


def stem_of(session_id: str) -> str:
    return f"{session_id}.d" if _ENDS_LIKE_A_NAME.search(session_id) else session_id


def id_of(stem: str) -> str | None:
    """The session whose names have this stem; None if there cannot be one."""
    session_id = stem.removesuffix(".d") if _ENDS_LIKE_A_NAME.search(stem) else stem
    return session_id if layout.is_session_id(session_id) and stem_of(session_id) == stem else None


def parse_name(root: str | None, name: str) -> PageName | None:
    """The page or image directory with this name, in html/ or in the directory of a root."""
    found = _SUFFIX.search(name)
    session_id = id_of(name[: found.start()]) if found else None
    if found is None or session_id is None:
        return None
    location = Location(session_id) if root is None else Location(root, session_id)
    if found[2] is not None:
        first, second = int(found[2]), found[3]
        return PageName(location, "diff", (None, first) if second is None else (first, int(second)))
    kinds: dict[str, PageKind] = {".log.html": "log", ".html": "page", ".images": "images"}
    return PageName(location, kinds[found[1]])


def path_of(location: Location, kind: Literal["page", "log", "images"] = "page") -> str:
    """The path of a page below html/."""
    suffix = {"page": ".html", "log": ".log.html", "images": ".images"}[kind]
    return _stems(location) + suffix


def diff_path(location: Location, number: int) -> str:
    """The path of the page that shows what a version changed."""
    return f"{_stems(location)}.diff-{number}.html"


def _stems(location: Location) -> str:
    return "/".join(stem_of(part) for part in location if part is not None)


def link(source: Location | None, target: str) -> str:
    """The relative address of a path below html/, quoted; the source is None for pages directly in html/."""
    up = "" if source is None or source.child is None else "../"
    return up + quote_name(target)
