"""Attachments: names, types, and the ways their bytes arrive.

A file is `<id>.<ext>`, and the extension is the only place where its type is kept. For types without a
well-known extension ours is the type itself (`application_x-foo`, with a comma for every dot, because an
extension has none), so that none is ever lost.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Iterable

from store.errors import InvalidContent, Problem
from store.layout import is_leftover

SCHEME = "bamboo-attachment://"
OCTETS = "application/octet-stream"
DEFAULT_MIME = "image/png"  # Bamboo's assumption for base64 that does not say what it is

# Bamboo's own table; everything else it stores as .bin.
_BAMBOO = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif", "image/bmp": "bmp"}
# A table of our own, not the machine's: the same file must have the same type everywhere.
_MIMES = mimetypes.MimeTypes()
_TOP_LEVEL = ("application", "audio", "font", "image", "message", "model", "multipart", "text", "video")
_SUBTYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")  # RFC 6838, section 4.2


def mime_to_extension(mime: str) -> str | None:
    """The extension for a type, without dot; None if the text is no type at all."""
    plain = mime.partition(";")[0].strip().lower()
    if plain == OCTETS:
        return "bin"
    known = _BAMBOO.get(plain)
    if known is None:
        guessed = _MIMES.guess_extension(plain)
        # Several types share an extension: keep it only if it leads back.
        if guessed is not None and extension_to_mime(guessed[1:]) == plain:
            known = guessed[1:]
    if known is not None:
        return known
    top, slash, sub = plain.partition("/")
    if not slash or top not in _TOP_LEVEL or not _SUBTYPE.fullmatch(sub):
        return None
    return f"{top}_{sub.replace('.', ',')}"


def extension_to_mime(extension: str) -> str | None:
    """The type an extension stands for; None if it stands for none."""
    plain = extension.strip().lower()
    if plain in ("jpg", "jpeg"):
        return "image/jpeg"
    for mime, known in _BAMBOO.items():
        if plain == known:
            return mime
    top, underscore, sub = plain.partition("_")
    if underscore and top in _TOP_LEVEL and sub:
        return f"{top}/{sub.replace(',', '.')}"
    return _MIMES.types_map[1].get(f".{plain}") if plain else None


def reference(session_id: str, attachment_id: str) -> str:
    return f"{SCHEME}{session_id}/{attachment_id}"


def parse_reference(url: str) -> tuple[str, str] | None:
    """Session id and attachment id of a `bamboo-attachment://` URL; None for any other text."""
    if not url.startswith(SCHEME):
        return None
    session_id, slash, attachment_id = url[len(SCHEME) :].partition("/")
    return (session_id, attachment_id) if slash and session_id and attachment_id else None


def find_name(attachment_id: str, names: Iterable[str]) -> str | None:
    """The file of an attachment: its id, a dot, an extension without dots. Temporaries never match."""
    prefix = attachment_id + "."
    for name in sorted(names):
        extension = name[len(prefix) :]
        if name.startswith(prefix) and extension and "." not in extension and not is_leftover(name):
            return name
    return None


def decode(data: bytes | str, mime: str | None) -> tuple[bytes, str]:
    """Bytes and type, from bytes, from a `data:` URL, or from plain base64."""
    if isinstance(data, bytes):
        return data, mime or OCTETS
    if not isinstance(data, str):
        raise TypeError(f"attachment: expected bytes or a string, got {type(data).__name__}")
    text = data.strip()
    if text[:5].lower() == "data:":
        header, comma, payload = text[5:].partition(",")
        if not comma or ";base64" not in header.lower():
            raise InvalidContent("attachment", Problem("the data URL is not base64"))
        return _unbase64(payload), header.partition(";")[0].strip() or mime or "text/plain"
    return _unbase64(text), mime or DEFAULT_MIME


def _unbase64(text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidContent("attachment", Problem(f"the base64 is broken: {error}")) from None
