"""All formats, and recognition of the format of a source. Loaded only for an import."""

from __future__ import annotations

from store.errors import InvalidName, NotFound
from store.transfer.formats import a3s, bamboo_home, chatgpt, claude_code, codex, oxios
from store.transfer.formats.importer import Format
from store.transfer.formats.source import Source

FORMATS: tuple[Format, ...] = tuple(module.FORMAT for module in (claude_code, codex, chatgpt, bamboo_home, oxios, a3s))


def get_format(name: str) -> Format:
    for format in FORMATS:
        if format.name == name:
            return format
    raise InvalidName(f"no format {name!r}; known formats: {', '.join(f.name for f in FORMATS)}")


def recognise(source: Source) -> Format:
    """The format with the highest confidence in a source."""
    sure = [(confidence, format) for format in FORMATS if (confidence := format.recognise(source)) is not None]
    if not sure:
        known = "\n".join(f"  {format.name:12} {format.description}" for format in FORMATS)
        raise NotFound(
            f"no sessions recognised at {source.display_path(source.name or '')}; nothing was changed. "
            f"Known formats:\n{known}"
        )
    return max(sure, key=lambda pair: pair[0])[1]
