"""The order in which GNU `grep -r` visits files, computed for some files without walking past the others.

That is the order of fts(3): a directory's entries as readdir lists them, each subdirectory with its whole
contents in its place. In directories with more than 10,000 entries fts sorts by inode, in runs of 100,000,
except on filesystems where sorting does not help. Only directories with two or more wanted names are listed.
"""

from __future__ import annotations

import os

_SORTED_ABOVE = 10_000  # entries
_RUN = 100_000  # entries
_NOT_SORTED = (b"tmpfs", b"nfs", b"nfs4", b"cifs", b"smb3")

TYPE_CHECKING = False
if TYPE_CHECKING:
    Tree = dict[bytes, "Tree | None"]


def in_walk_order(paths: list[bytes], prefix: bytes = b"") -> list[bytes]:
    """Sort paths in walk order. They are relative to `prefix`, which is empty or ends in a slash."""
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
        subtree = tree[name]
        if subtree is None:
            found.append(folder + name)
        else:
            _walk(folder + name + b"/", subtree, prefix, found)


def _ordered(folder: bytes, names: list[bytes]) -> list[bytes]:
    try:
        return _by_inode(folder, names) or _as_listed(folder, names)
    except OSError:  # deleted since
        return names


def _by_inode(folder: bytes, names: list[bytes]) -> list[bytes]:
    """The names by inode, if the link count (on most filesystems) proves a directory large; otherwise []."""
    links = os.stat(folder or b".").st_nlink - 2
    if not _SORTED_ABOVE < links < _RUN - _SORTED_ABOVE or not _sorts(folder):
        return []
    return sorted(names, key=lambda name: os.lstat(folder + name).st_ino)


def _as_listed(folder: bytes, names: list[bytes]) -> list[bytes]:
    wanted = set(names)
    return [name for name in _entries_in_order(folder) if name in wanted]


def _entries_in_order(folder: bytes) -> list[bytes]:
    """The regular files and directories in a directory, in walk order. `grep -r` skips everything else."""
    with os.scandir(folder or b".") as entries:
        listed = [(entry.inode(), entry) for entry in entries]
    runs = [listed[i : i + _RUN] for i in range(0, len(listed), _RUN)]
    if len(listed) > _SORTED_ABOVE and _sorts(folder):
        runs = [sorted(run, key=lambda row: row[0]) if len(run) > _SORTED_ABOVE else run for run in runs]
    return [
        entry.name
        for run in runs
        for _, entry in run
        if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
    ]


def _sorts(folder: bytes) -> bool:
    """Whether fts sorts by inode on this filesystem."""
    return filesystems_of(os.stat(folder or b".").st_dev).isdisjoint(_NOT_SORTED)


def filesystems_of(device: int) -> set[bytes]:
    """The types of the filesystems mounted from a device; usually one."""
    number = b"%d:%d" % (os.major(device), os.minor(device))
    with open("/proc/self/mountinfo", "rb") as mounts:
        return {line.split(b" - ")[1].split()[0] for line in mounts if line.split()[2] == number}
