"""Directories that come in by one rename: what becomes a document by it must be one already.

A tool may build a session elsewhere, under a name that is none of ours, and move it in. If its documents belong where
they come to lie, that is one step. If not, nobody would have checked them, or given a fork its own id; so the tool is
told that this is another filesystem. `mv` then copies file by file, and each is checked as any other.
"""

from __future__ import annotations

from collections.abc import Iterator

from store import documents, layout, secrets
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
    if new.kind is not Kind.DOCUMENT or new.location is None:
        return False
    try:
        file = core.disk.read(old.path, core.limit_bytes)
        if file is None:
            return True  # gone meanwhile
        document = parse_document(file.data, old.path, limit=core.limit_bytes)
        secrets.refuse_keys(file.data, document.data, old.path)
        documents.check_authority(document, new.path)
    except InvalidContent:
        return False
    is_whole = new.name == layout.SESSION or not document.data["messages"]
    return is_whole and documents.identity_flaw(document, new.location) is None
