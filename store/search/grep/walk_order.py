"""The order in which GNU `grep -r` comes to files, for some of them, without walking past the others.

That is fts(3)'s: a directory's entries as the directory lists them, each directory with all it holds when its
turn comes; but sorted by inode where a directory has more than 10,000 entries, in runs of 100,000, unless the
filesystem is one where that is of no use. Only directories in which two wanted names lie are looked into.
"""

from __future__ import annotations

import os

_SORTED_ABOVE = 10_000
_RUN = 100_000
_NOT_SORTED = (b"tmpfs", b"nfs", b"nfs4", b"cifs", b"smb3")

TYPE_CHECKING = False
if TYPE_CHECKING:
    Tree = dict[bytes, "Tree | None"]


def in_walk_order(paths: list[bytes], prefix: bytes = b"") -> list[bytes]:
    """Files, as paths relative to what `prefix` (empty, or ending in a slash) names, in the order of a walk."""
    tree: Tree = {}
    for path in paths:
        *folders, name = path.split(b"/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})  # type: ignore[assignment]
        node[name] = None
    found: list[bytes] = []
    _walk(b"", tree, prefix, found)
    return found


def _walk(folder: bytes, tree: Tree, prefix: bytes, found: list[bytes]) -> None:
    for name in _ordered(prefix + folder, list(tree)) if len(tree) > 1 else tree:
        below = tree[name]
        if below is None:
            found.append(folder + name)
        else:
            _walk(folder + name + b"/", below, prefix, found)


def _ordered(folder: bytes, names: list[bytes]) -> list[bytes]:
    try:
        return _by_inode(folder, names) or _as_listed(folder, names)
    except OSError:  # gone meanwhile
        return names


def _by_inode(folder: bytes, names: list[bytes]) -> list[bytes]:
    """For a directory that surely has so many entries, which its links tell on most filesystems; else nothing."""
    links = os.stat(folder or b".").st_nlink - 2
    if not _SORTED_ABOVE < links < _RUN - _SORTED_ABOVE or not _sorts(folder):
        return []
    return sorted(names, key=lambda name: os.lstat(folder + name).st_ino)


def _as_listed(folder: bytes, names: list[bytes]) -> list[bytes]:
    wanted = set(names)
    return [name for name, _ in entries_in_order(folder) if name in wanted]


def entries_in_order(folder: bytes) -> list[tuple[bytes, bool]]:
    """The plain files (False) and directories (True) of a directory, as a walk comes to them."""
    with os.scandir(folder or b".") as entries:
        listed = [(entry.inode(), entry) for entry in entries]
    runs = [listed[i : i + _RUN] for i in range(0, len(listed), _RUN)]
    if len(listed) > _SORTED_ABOVE and _sorts(folder):
        runs = [sorted(run, key=lambda row: row[0]) if len(run) > _SORTED_ABOVE else run for run in runs]
    return [
        (entry.name, entry.is_dir(follow_symlinks=False))
        for run in runs
        for _, entry in run
        if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
    ]


def _sorts(folder: bytes) -> bool:
    """Whether fts would think that sorting helps on this filesystem."""
    return filesystems_of(os.stat(folder or b".").st_dev).isdisjoint(_NOT_SORTED)


def filesystems_of(device: int) -> set[bytes]:
    """The kinds of filesystem that are mounted from a device: one, as a rule."""
    number = b"%d:%d" % (os.major(device), os.minor(device))
    with open("/proc/self/mountinfo", "rb") as mounts:
        return {line.split(b" - ")[1].split()[0] for line in mounts if line.split()[2] == number}
