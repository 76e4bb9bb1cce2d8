"""Directories that come in by one rename: what becomes a document by it must be one already.

A tool may build a session elsewhere, under a name that is none of ours, and move it in. If its documents belong where
they come to lie, that is one step. If not, nobody would have checked them, or given a fork its own id; so the tool is
told that this is another filesystem. `mv` then copies file by file, and each is checked as any other.

Nobody holds a lock on what is foreign, so it is looked at again where it has come to lie: from then on whoever writes
there writes a document. Only a file that was opened for writing before, and is written to after, escapes both looks.
"""

from __future__ import annotations

from collections.abc import Iterator

from store import layout
from store.commit.core import Core
from store.documents import document as documents
from store.documents import json_text, secrets
from store.documents.document import parse_document
from store.errors import InvalidContent, MustBeCopied
from store.path_kinds import CHECKED, PathInfo, PathKind, classify_path


def require_checked_documents(core: Core, source: PathInfo, target: PathInfo, *, has_come: bool = False) -> None:
    """Before the rename; or, if it `has_come`, after it, for whoever takes it back then."""
    if target.kind is PathKind.FOREIGN and not target.path.startswith(f"{layout.STATE}/"):
        return  # and so is all that is in it
    for inside in _files_below(core, target.path if has_come else source.path):
        old, new = classify_path(source.path + inside), classify_path(target.path + inside)
        if new.kind in CHECKED and old.kind not in CHECKED and not _belongs(core, new if has_come else old, new):
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


def _belongs(core: Core, now: PathInfo, new: PathInfo) -> bool:
    file = core.disk.read(now.path, core.limit_bytes)
    if file is None:
        return True  # gone meanwhile
    try:
        if new.kind is PathKind.STATE_JSON:
            json_text.parse_value(file.data, now.path, limit=core.limit_bytes)
            return True
        return new.kind is PathKind.DOCUMENT and _is_document(core, file.data, new)
    except InvalidContent:
        return False


def _is_document(core: Core, raw: bytes, place: PathInfo) -> bool:
    assert place.location is not None
    document = parse_document(raw, place.path, limit=core.limit_bytes)
    secrets.reject_api_keys(raw, document.data, place.path)
    documents.check_authority(document, place.path)
    is_whole = place.name == layout.SESSION or not document.data["messages"]
    return is_whole and documents.identity_problem(document, place.location) is None
