"""Display names: file names for sessions in views/, safe in a shell and on any filesystem. Pure.

A name consists of the title and the start of the id, and is the same in every view. If several
sessions have the same name, each gets a suffix: a digest of its location. The index knows which
names are shared.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import blake2b

from store.layout import Location
from store.model.preview import NEW_TITLE

MAX_BYTES = 200
NONE = "none"  # the label of an absent value

_TITLE_BYTES = 150
_ID_BYTES = 16  # a longer id is shortened to its first bytes
_ID_PREFIX_BYTES = 8
_SUFFIXED = re.compile(r"(.+)~([0-9a-f]{8})\Z", re.DOTALL)
# Characters with a special meaning in a shell, or that are easily misread.
_UNSAFE = re.compile(r"[\s\x00-\x20!\"#$&'()*/:;<>?\[\\\]^`{|}~\x7f-\xa0]+")


def session_name(title: str, opening: str | None, location: Location) -> str:
    """The name of a session, before a suffix: its title, or the derived title if it has none."""
    title = shown_title(title, opening)
    tag = sanitize(location.id, MAX_BYTES)
    if len(tag.encode()) > _ID_BYTES:
        tag = clip(tag, _ID_PREFIX_BYTES)
    return f"{sanitize(title, _TITLE_BYTES) or 'untitled'}~{tag or digest_suffix(str(location))}"


def shown_title(title: str, opening: str | None) -> str:
    """A session's title, or the one derived from its first user message if it was never given one."""
    return opening if opening and title.strip() in ("", NEW_TITLE) else title


def with_suffix(name: str, location: Location) -> str:
    """A shared name with the suffix of one session."""
    return f"{name}~{digest_suffix(str(location))}"


def split_suffix(name: str) -> tuple[str, str] | None:
    """The name and its suffix; None if it has no suffix."""
    match = _SUFFIXED.match(name)
    return (match[1], match[2]) if match else None


def label(value: str | None) -> str:
    """The directory name of a status, model or project: the value if it is safe, else a sanitized form."""
    if not value:
        return NONE
    plain = sanitize(value, MAX_BYTES)
    if plain == value and value != NONE:
        return value
    return f"{clip(plain, MAX_BYTES - 9) or 'value'}~{digest_suffix(value)}"


def digest_suffix(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=4).hexdigest()


def sanitize(text: str, limit_bytes: int) -> str:
    """`text` with every run of unsafe characters replaced by a dash, clipped; "" if nothing is left."""
    composed = unicodedata.normalize("NFC", text)
    kept = "".join(c if c.isprintable() else " " for c in composed)
    return clip(_UNSAFE.sub("-", kept).strip("-").lstrip("-."), limit_bytes).rstrip("-")


def clip(text: str, limit_bytes: int) -> str:
    """Clip to a length in bytes, without splitting a character."""
    return text.encode()[:limit_bytes].decode(errors="ignore")
