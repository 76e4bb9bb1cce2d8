"""Checks for what is planted: links, FIFOs and the like where something of ours should be, and files with two names.

Nothing of it is followed or waited for (see `atomic`), and nothing of it is mended: what was meant by it, only who
put it there knows. What lies in a session's own directory is told by `check`, all but its hard links.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from store import layout
from store.check.finding import Finding
from store.commit.core import Core
from store.errors import Corrupt
from store.path_kinds import PathKind, classify_path

_FOLDERS = frozenset(
    {PathKind.AREA, PathKind.PROJECT, PathKind.PROJECT_SESSIONS, PathKind.PROJECT_SESSION, PathKind.MAILBOX}
)
_NO_FOLDERS = (
    frozenset({PathKind.SESSIONS, PathKind.SESSION, PathKind.CHILDREN, PathKind.ATTACHMENTS, PathKind.FOREIGN})
    | _FOLDERS
)
_STATE = frozenset({PathKind.STATE_JSON, PathKind.STATE_TEXT})
_READ_BY_CHECK = frozenset({PathKind.MESSAGE, PathKind.PAYLOAD})  # which tells what it found instead
_TOP_FILES = (layout.BAMBOO_INDEX_LOCK, layout.BAMBOO_LIFECYCLE_LOCK, layout.SIDECAR_MARKER)


def check_unexpected_files(core: Core) -> Iterator[Finding]:
    for name in (*_TOP_FILES, layout.PROJECTS, layout.STATE):
        is_folder, info = name not in _TOP_FILES, core.disk.stat(name)
        if info is not None and not (stat.S_ISDIR if is_folder else stat.S_ISREG)(info.st_mode):
            yield _not_plain(name, is_folder=is_folder)
        elif info is not None and not is_folder and info.st_nlink > 1:
            yield _two_names(name)
    for path, info in _everything_below(core, layout.SESSIONS):
        yield from _check_names_of(path, info)
    for part in (layout.PROJECTS, layout.STATE):
        for path, info in _everything_below(core, part):
            yield from _check_kind(core, path, info)
            yield from _check_names_of(path, info)


def _everything_below(core: Core, top: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every path and what is there; only real directories are entered."""
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        for name, info in _inside(core, folder):
            path = f"{folder}/{name}"
            yield path, info
            if stat.S_ISDIR(info.st_mode):
                waiting.append(path)


def _inside(core: Core, folder: str) -> list[tuple[str, os.stat_result]]:
    try:
        return core.disk.scan(folder)
    except (Corrupt, PermissionError):  # gone meanwhile, or told of elsewhere
        return []


def _check_kind(core: Core, path: str, info: os.stat_result) -> Iterator[Finding]:
    """A link in `state/` may stand for a category, so it is told of whatever its name. A directory there that is
    called as a document is may be one, if something is in it."""
    kind, mode = classify_path(path).kind, info.st_mode
    if kind is PathKind.FOREIGN:
        is_stray = path.startswith(f"{layout.STATE}/") and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
        if is_stray:
            yield Finding("not-plain", _shown(path), "neither a file nor a directory; links are not followed")
    elif kind in _FOLDERS and not stat.S_ISDIR(mode):
        yield _not_plain(path, is_folder=True)
    elif kind in _STATE and stat.S_ISDIR(mode) and _inside(core, path):
        return
    elif kind not in _FOLDERS and kind not in _READ_BY_CHECK and not stat.S_ISREG(mode):
        yield _not_plain(path, is_folder=False)


def _check_names_of(path: str, info: os.stat_result) -> Iterator[Finding]:
    if info.st_nlink > 1 and stat.S_ISREG(info.st_mode) and classify_path(path).kind not in _NO_FOLDERS:
        yield _two_names(path)


def _two_names(path: str) -> Finding:
    text = "it has another name elsewhere (a hard link); what is written there may change it unnoticed"
    return Finding("hard-link", _shown(path), text)


def _not_plain(path: str, *, is_folder: bool) -> Finding:
    expected = "a directory" if is_folder else "a plain file"
    return Finding("not-plain", _shown(path), f"{expected} is expected; links are not followed")


def _shown(path: str) -> str:
    """A path for people: a name that is no UTF-8 has its odd bytes replaced."""
    return path.encode(errors="replace").decode()
