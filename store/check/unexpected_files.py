"""Checks for symbolic links, FIFOs and devices in place of the store's files, and for hard links.

The store never follows or opens them (see `disk`), and they are never repaired: only their
creator knows what they are for. In a session's directory `check_names` reports them; this module
only adds the hard links there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from store import layout
from store.check.context import CheckContext
from store.check.finding import Finding, display_path
from store.commit.core import Core
from store.errors import Corrupt
from store.path_kinds import PathKind, classify_path

_DIRS = frozenset(
    {PathKind.AREA, PathKind.PROJECT, PathKind.PROJECT_SESSIONS, PathKind.PROJECT_SESSION, PathKind.MAILBOX}
)
_NOT_FILES = (
    frozenset({PathKind.SESSIONS, PathKind.SESSION, PathKind.CHILDREN, PathKind.ATTACHMENTS, PathKind.FOREIGN}) | _DIRS
)
_STATE = frozenset({PathKind.STATE_JSON, PathKind.STATE_TEXT})
_READ_BY_OTHER_CHECKS = frozenset({PathKind.MESSAGE, PathKind.PAYLOAD})  # which report that they cannot be read
_TOP_FILES = (layout.BAMBOO_INDEX_LOCK, layout.BAMBOO_LIFECYCLE_LOCK, layout.SIDECAR_MARKER)


def check_unexpected_files(context: CheckContext) -> Iterator[Finding]:
    core = context.core
    for name in (*_TOP_FILES, layout.PROJECTS, layout.STATE):
        is_dir, info = name not in _TOP_FILES, core.disk.stat(name)
        if info is not None and not (stat.S_ISDIR if is_dir else stat.S_ISREG)(info.st_mode):
            yield _not_plain(name, is_dir=is_dir)
        elif info is not None and not is_dir and info.st_nlink > 1:
            yield _hard_link(name)
    for path, info in _iter_below(core, layout.SESSIONS):
        yield from _check_hard_links(path, info)
    for part in (layout.PROJECTS, layout.STATE):
        for path, info in _iter_below(core, part):
            yield from _check_kind(core, path, info)
            yield from _check_hard_links(path, info)


def _iter_below(core: Core, top: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every path below a directory with its stat. Links are not followed."""
    queue = [top]
    while queue:
        directory = queue.pop()
        for name, info in _scan(core, directory):
            path = f"{directory}/{name}"
            yield path, info
            if stat.S_ISDIR(info.st_mode):
                queue.append(path)


def _scan(core: Core, directory: str) -> list[tuple[str, os.stat_result]]:
    try:
        return core.disk.scan(directory)
    except (Corrupt, PermissionError):  # removed meanwhile, or reported by another check
        return []


def _check_kind(core: Core, path: str, info: os.stat_result) -> Iterator[Finding]:
    """Compare the file type with the one the path requires.

    A link in `state/` may replace a category, so it is reported whatever its name. A directory there may have the name
    of a document if it contains something.
    """
    kind, mode = classify_path(path).kind, info.st_mode
    if kind is PathKind.FOREIGN:
        is_stray = path.startswith(f"{layout.STATE}/") and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
        if is_stray:
            yield Finding("not-plain", display_path(path), "not a regular file or directory; links are not followed")
    elif kind in _DIRS and not stat.S_ISDIR(mode):
        yield _not_plain(path, is_dir=True)
    elif kind in _STATE and stat.S_ISDIR(mode) and _scan(core, path):
        return
    elif kind not in _DIRS and kind not in _READ_BY_OTHER_CHECKS and not stat.S_ISREG(mode):
        yield _not_plain(path, is_dir=False)


def _check_hard_links(path: str, info: os.stat_result) -> Iterator[Finding]:
    if info.st_nlink > 1 and stat.S_ISREG(info.st_mode) and classify_path(path).kind not in _NOT_FILES:
        yield _hard_link(path)


def _hard_link(path: str) -> Finding:
    text = "has a hard link elsewhere; a write through that name may change it unnoticed"
    return Finding("hard-link", display_path(path), text)


def _not_plain(path: str, *, is_dir: bool) -> Finding:
    expected = "a directory" if is_dir else "a regular file"
    return Finding("not-plain", display_path(path), f"expected {expected}; links are not followed")
