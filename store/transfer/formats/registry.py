"""All formats, and recognition of the format of a source. Loaded only for an import."""

from __future__ import annotations

import os
from collections.abc import Iterable

from store.errors import InvalidName, NotFound
from store.transfer.formats import (
    a3s,
    aider,
    bamboo_home,
    chatgpt,
    claude_ai,
    claude_code,
    cline,
    codex,
    copilot_cli,
    cursor,
    gemini_cli,
    opencode,
    oxios,
    qwen_code,
)
from store.transfer.formats.importer import Format
from store.transfer.formats.source import Source

_MODULES = (claude_code, codex, gemini_cli, opencode, copilot_cli, qwen_code, cline, cursor, aider)
_MODULES += (chatgpt, claude_ai, bamboo_home, oxios, a3s)  # type: ignore[assignment]
FORMATS: tuple[Format, ...] = tuple(module.FORMAT for module in _MODULES)


def get_format(name: str) -> Format:
    for format in FORMATS:
        if format.name == name:
            return format
    raise InvalidName(f"no format {name!r}; known formats: {', '.join(f.name for f in FORMATS)}")


def recognise(source: Source) -> Format:
    """The format with the highest confidence in a source."""
    found = best(source, FORMATS)
    if found is None:
        raise NotFound(unrecognised(source.display_path(source.name or "")))
    return found


def best(source: Source, formats: Iterable[Format]) -> Format | None:
    """The format with the highest confidence in a source; None if no format recognises it."""
    sure = [(confidence, format) for format in formats if (confidence := format.recognise(source)) is not None]
    return max(sure, key=lambda pair: pair[0])[1] if sure else None


def _link_hint(path: str) -> str:
    """Names a directory of sessions that is a link, because links in a source are not followed."""
    bases = sorted({format.base for format in FORMATS if format.base})
    for base in bases:
        link = os.path.join(path, base)
        if os.path.islink(link):
            return f" {base} is a link, and links are not followed: import {link}."
    return ""


def unrecognised(path: str) -> str:
    """The error for a source that no format recognises."""
    known = "\n".join(f"  {format.name:12} {format.description}" for format in FORMATS)
    has_archive = path.endswith(".zip") or (os.path.isdir(path) and any(n.endswith(".zip") for n in os.listdir(path)))
    hint = " Unpack the .zip file first, and import the directory." if has_archive else _link_hint(path)
    return f"no sessions recognised at {path}; nothing was changed.{hint} Known formats:\n{known}"
