"""Names for people: what a session is called in the views, safe in a shell and on any filesystem. Pure.

A name is made of the title and the beginning of the id. It is the same in every view. Should two sessions
come to the same one, each is told apart by a digest of where it lies; who asks the index knows whether.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b

from store.layout import Location
from store.model.session import NEW_TITLE

MAX_BYTES = 200
NONE = "none"  # the label of what has no value

_TITLE_BYTES = 150
_ID_BYTES = 16  # an id up to this length is shown whole, of a longer one the beginning
_ID_BEGINNING = 8
_MARKED = re.compile(r"(.+)~([0-9a-f]{8})\Z", re.DOTALL)
# Everything that a shell, a terminal or a person could take for something else than a letter of a name.
_UNSAFE = re.compile(r"[\s\x00-\x20!\"#$&'()*/:;<>?\[\\\]^`{|}~\x7f-\xa0]+")


def session_name(title: str, opening: str | None, location: Location) -> str:
    """What a session is called as long as no other is: its title, or the first words of its user."""
    if opening and title.strip() in ("", NEW_TITLE):
        title = opening
    tag = sanitize(location.id, MAX_BYTES)
    if len(tag.encode()) > _ID_BYTES:
        tag = clip(tag, _ID_BEGINNING)
    return f"{sanitize(title, _TITLE_BYTES) or 'untitled'}~{tag or digest_suffix(str(location))}"


def with_suffix(name: str, location: Location) -> str:
    """A name that several sessions would have, for one of them."""
    return f"{name}~{digest_suffix(str(location))}"


def split_suffix(name: str) -> tuple[str, str] | None:
    """The name before its mark, and the mark; None if it has none."""
    match = _MARKED.match(name)
    return (match[1], match[2]) if match else None


def label(value: str | None) -> str:
    """The directory of a status, a model, a project: the value itself where that is safe, else like it."""
    if not value:
        return NONE
    plain = sanitize(value, MAX_BYTES)
    if plain == value and value != NONE:
        return value
    return f"{clip(plain, MAX_BYTES - 9) or 'value'}~{digest_suffix(value)}"


def digest_suffix(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=4).hexdigest()


def sanitize(text: str, limit_bytes: int) -> str:
    """`text` with a dash for every run of what is not safe, cut to a length; "" if nothing is left."""
    composed = unicodedata.normalize("NFC", text)
    kept = "".join(c if c.isprintable() else " " for c in composed)
    return clip(_UNSAFE.sub("-", kept).strip("-").lstrip("-."), limit_bytes).rstrip("-")


def clip(text: str, limit_bytes: int) -> str:
    """Cut at a character, not in the middle of one."""
    return text.encode()[:limit_bytes].decode(errors="ignore")
