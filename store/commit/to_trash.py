"""The part of a commit that puts files into the trash.

A slot under `.grovefs/trash/` holds the files of one deletion and an info.json that names the
original path of each. Everything here is pure: the caller adds the result to its own commit,
so the files reach the trash in the same commit that removes or replaces them, or not at all.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from store import layout
from store.disk import trash
from store.disk.file import File, NewFile
from store.layout import Location


class TrashPart(NamedTuple):
    """Arguments for `Commit`; all are empty if there is nothing to keep."""

    files: list[NewFile]
    moves: list[tuple[str, str]]
    dirs: list[str]
    links: list[tuple[str, str]]


NOTHING_KEPT = TrashPart([], [], [], [])


def to_trash(
    location: Location,
    reason: str,
    *,
    moved: Iterable[str] = (),
    copied: Iterable[tuple[str, File]] = (),
    linked: Iterable[str] = (),
    title: str | None = None,
    numbered: bool = False,
) -> TrashPart:
    """Put files and directories into one new slot: rename `moved`, write copies of `copied`.

    `linked` are files that the commit replaces: they get a hard link in the slot. Each file keeps
    its last name in the slot. `numbered` names them 0, 1, … instead: needed where two may have the
    same last name.
    """
    kept, paths, replaced = list(copied), list(moved), list(linked)
    originals = [*(path for path, _ in kept), *paths, *replaced]
    if not originals:
        return NOTHING_KEPT
    slot = trash.new_slot(location)
    names = _names(originals, numbered=numbered)
    moves = [(path, f"{slot}/{name}") for path, name in zip(originals, names, strict=True)]
    copies = [
        NewFile(target, [file.data], None, file.stamp.mtime_ns, file.mode)
        for (_, target), (_, file) in zip(moves, kept, strict=False)
    ]
    info = trash.info_file(slot, location, reason, moves, title)
    renamed = moves[len(kept) : len(kept) + len(paths)]
    return TrashPart([*copies, info], renamed, [slot], moves[len(kept) + len(paths) :])


def _names(paths: Sequence[str], *, numbered: bool) -> list[str]:
    """The names in the slot; info.json is taken."""
    names = [path.rpartition("/")[2] for path in paths]
    if numbered or trash.INFO in names:
        return [str(number) for number in range(len(paths))]
    return names


# Swap and lock files of vim, nano, Kate and LibreOffice.
_SWAP_FILE = re.compile(r"\..+\.(sw[a-z]|kate-swp)|\.~lock\..+#", re.DOTALL)


def is_worth_keeping(path: str, info: os.stat_result) -> bool:
    """Whether a deleted file goes to the trash.

    Not if it is empty, an editor's swap file, or not a regular file. Nor if it is the backup that
    an editor makes of a document: the history has that text.
    """
    name = path.rpartition("/")[2]
    is_temporary = _SWAP_FILE.fullmatch(name) is not None or name in _DOCUMENT_BACKUPS
    return stat.S_ISREG(info.st_mode) and info.st_size > 0 and not is_temporary


_DOCUMENT_BACKUPS = frozenset(f"{name}~" for name in layout.DOCUMENTS)


def deletion_reason(path: str, reason: str) -> str:
    """The reason for the slot of a deleted file: HIDDEN_DELETED for hidden files and backups.

    The receipt of an import is hidden, but belongs to its session.
    """
    name = path.rpartition("/")[2]
    is_hidden = (name.startswith(".") and name != layout.RECEIPT) or name.endswith("~")
    return trash.HIDDEN_DELETED if is_hidden else reason
