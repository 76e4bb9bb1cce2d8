"""Directories that come in by one rename: what becomes a document by it must be one already.

A tool may build a session elsewhere, under a name that is none of ours, and move it in. If its documents belong where
they come to lie, that is one step. If not, nobody would have checked them, or given a fork its own id; so the tool is
told that this is another filesystem. `mv` then copies file by file, and each is checked as any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from store import codec, documents, layout, secrets
from store.core import Core
from store.documents import parse_document
from store.errors import InvalidContent, MustBeCopied
from store.places import CHECKED, Kind, Place, place_of


def refuse_unchecked(core: Core, source: Place, target: Place) -> None:
    if target.kind is Kind.PLAIN and not target.path.startswith(f"{layout.STATE}/"):
        return  # and so is all that is in it
    for inside in _files_below(core, source.path):
        old, new = place_of(source.path + inside), place_of(target.path + inside)
        if new.kind in CHECKED and old.kind not in CHECKED and not _belongs(core, old, new):
            raise MustBeCopied(f"{old.path} becomes a document: it has to be copied, and is checked then")


def _files_below(core: Core, path: str) -> Iterator[str]:
    folders = [""]
    while folders:
        folder = folders.pop()
        for entry in core.disk.entries(path + folder):
            inside = f"{folder}/{entry.name}"
            if entry.is_dir:
                folders.append(inside)
            else:
                yield inside


def _belongs(core: Core, old: Place, new: Place) -> bool:
    file = core.disk.read(old.path, core.limit_bytes)
    if file is None:
        return True  # gone meanwhile
    try:
        if new.kind is Kind.STATE_JSON:
            codec.parse_value(file.data, old.path, limit=core.limit_bytes)
            return True
        return new.kind is Kind.DOCUMENT and _is_document(core, file.data, new)
    except InvalidContent:
        return False


def _is_document(core: Core, raw: bytes, place: Place) -> bool:
    assert place.location is not None
    document = parse_document(raw, place.path, limit=core.limit_bytes)
    secrets.refuse_keys(raw, document.data, place.path)
    documents.check_authority(document, place.path)
    is_whole = place.name == layout.SESSION or not document.data["messages"]
    return is_whole and documents.identity_flaw(document, place.location) is None
