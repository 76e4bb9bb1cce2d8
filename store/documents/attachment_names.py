"""Attachments: file names, MIME types, references, and decoding of input data. Pure.

An attachment is stored as `<id>.<ext>`. Its type is stored only in the extension. A type without
a well-known extension is encoded in the extension itself: `application_x-foo`, with a comma for
every dot, because an extension contains no dots.
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
OCTET_STREAM = "application/octet-stream"
DEFAULT_MIME = "image/png"  # Bamboo's default for base64 without a type

# Bamboo's own table; Bamboo stores all other types as .bin.
_BAMBOO_EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/webp": "webp",
    "image/gif": "gif",
    "image/bmp": "bmp",
}
# Python's built-in table, not the one of this machine: a file must have the same type everywhere.
_MIMES = mimetypes.MimeTypes()
_TOP_LEVEL = ("application", "audio", "font", "image", "message", "model", "multipart", "text", "video")
_SUBTYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")  # RFC 6838, section 4.2


def mime_to_extension(mime: str) -> str | None:
    """The extension for a MIME type, without dot; None if the string is not a MIME type."""
    plain = mime.partition(";")[0].strip().lower()
    if plain == OCTET_STREAM:
        return "bin"
    known = _BAMBOO_EXTENSIONS.get(plain)
    if known is None:
        guessed = _MIMES.guess_extension(plain)
        # Several types share an extension: use it only if it maps back to this type.
        if guessed is not None and extension_to_mime(guessed[1:]) == plain:
            known = guessed[1:]
    if known is not None:
        return known
    top, slash, sub = plain.partition("/")
    if not slash or top not in _TOP_LEVEL or not _SUBTYPE.fullmatch(sub):
        return None
    return f"{top}_{sub.replace('.', ',')}"


def extension_to_mime(extension: str) -> str | None:
    """The MIME type of an extension; None if it is unknown."""
    plain = extension.strip().lower()
    if plain in ("jpg", "jpeg"):
        return "image/jpeg"
    for mime, known in _BAMBOO_EXTENSIONS.items():
        if plain == known:
            return mime
    top, underscore, sub = plain.partition("_")
    if underscore and top in _TOP_LEVEL and sub:
        return f"{top}/{sub.replace(',', '.')}"
    return _MIMES.types_map[1].get(f".{plain}") if plain else None


def reference(session_id: str, attachment_id: str) -> str:
    return f"{SCHEME}{session_id}/{attachment_id}"


def parse_reference(url: str) -> tuple[str, str] | None:
    """Session id and attachment id of a `bamboo-attachment://` URL; None for any other string."""
    if not url.startswith(SCHEME):
        return None
    session_id, slash, attachment_id = url[len(SCHEME) :].partition("/")
    return (session_id, attachment_id) if slash and session_id and attachment_id else None


def find_name(attachment_id: str, names: Iterable[str]) -> str | None:
    """The file name of an attachment: its id, a dot, an extension without dots. Ignores temporary files."""
    prefix = attachment_id + "."
    for name in sorted(names):
        extension = name[len(prefix) :]
        if name.startswith(prefix) and extension and "." not in extension and not is_leftover(name):
            return name
    return None


def decode(data: bytes | str, mime: str | None) -> tuple[bytes, str]:
    """Content and MIME type of an attachment given as bytes, as a `data:` URL or as base64."""
    if isinstance(data, bytes):
        return data, mime or OCTET_STREAM
    if not isinstance(data, str):
        raise TypeError(f"attachment: expected bytes or a string, got {type(data).__name__}")
    text = data.strip()
    if text[:5].lower() == "data:":
        header, comma, payload = text[5:].partition(",")
        if not comma or ";base64" not in header.lower():
            raise InvalidContent("attachment", Problem("expected a base64 data URL, got another encoding"))
        return _decode_base64(payload), header.partition(";")[0].strip() or mime or "text/plain"
    return _decode_base64(text), mime or DEFAULT_MIME


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidContent("attachment", Problem(f"invalid base64: {error}")) from None
