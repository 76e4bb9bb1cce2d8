"""Foreign directories renamed to a path of a session: files that become documents must be valid.

A tool may build a session under a foreign name and rename it into place. If its documents are
valid and belong to the new path, one rename suffices. If not, the rename fails like one across
filesystems (MustBeCopied). `mv` then copies file by file, and each file is checked, or forked, as
it is written.

Foreign files have no lock, so they are checked a second time after the rename: from then on a
write to them is a write to a document. Only a file that was opened for writing before the rename
and is written to after both checks escapes them.
"""

from __future__ import annotations

from collections.abc import Iterator

from store import layout
from store.commit.core import Core
from store.documents import json_text, secrets
from store.documents.document import check_authority, identity_problem, parse_document
from store.errors import InvalidContent, MustBeCopied
from store.path_kinds import CHECKED, PathInfo, PathKind, classify_path


def require_checked_documents(core: Core, source: PathInfo, target: PathInfo, *, is_renamed: bool = False) -> None:
    """Raise MustBeCopied if a file below `source` would become an invalid document below `target`.

    Call it before the rename, and again after it with `is_renamed`; the caller then undoes the
    rename.
    """
    if target.kind is PathKind.FOREIGN and not target.path.startswith(f"{layout.STATE}/"):
        return  # everything below a foreign directory is foreign
    for inside in _files_below(core, target.path if is_renamed else source.path):
        old, new = classify_path(source.path + inside), classify_path(target.path + inside)
        if new.kind in CHECKED and old.kind not in CHECKED and not _belongs(core, new if is_renamed else old, new):
            raise MustBeCopied(f"{old.path} would become a document without being checked; copy it instead")


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
        return True  # removed meanwhile
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
    check_authority(document, place.path)
    is_whole = place.name == layout.SESSION or not document.data["messages"]
    return is_whole and identity_problem(document, place.location) is None
