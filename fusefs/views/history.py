"""history/<root>/: every version of a session as a file, and history/<root>/children/<child>/ for descendants.

    000002~2026-11-16T22.10.35~sed.json    number, local time, program; session.json as it was

`history/` itself lists nothing, so tools that walk the mount meet no version.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator

from fusefs.views.base import Item, View, VirtualDir, VirtualFile
from fusefs.views.page_cache import PageCache
from store import Location, SavedVersion, Store, layout
from store.undo.versions_spec import local_text

_NUMBER = re.compile(r"(local-)?(\d{6,18})~")
_NOT_PLAIN = re.compile(r"[^\w.+-]+")
MAX_PROGRAM = 40  # characters

_Permissions = tuple[int, tuple[int, int] | None]  # mode; user and group id


class HistoryView(View):
    is_listed = False

    def __init__(self, store: Store, cache: PageCache) -> None:
        self._history = store.history
        self._names = store.names
        self._children = store.children
        self._cache = cache

    def find(self, path: str) -> Item | None:
        if not path:
            return VirtualDir(0, is_fixed=True)
        location, name = _located(path)
        if location is None:
            return None
        newest = self._history.newest(location.dir)
        if newest is None:
            return None
        if not name:
            mode, owner = self._permissions(location.dir)
            return VirtualDir(newest.at_ns, mode=mode, owner=owner)
        if name == layout.CHILDREN and location.child is None:
            return VirtualDir(newest.at_ns) if self._recorded_children(location) else None
        version = self._find_named(location, name)
        if version is None or version.main_bytes is None or name_of(version) != name:
            return None
        return self._file(location, version)

    def _find_named(self, location: Location, name: str) -> SavedVersion | None:
        number = _NUMBER.match(name)
        if number is None:
            return None
        find = self._history.find if number[1] else self._history.find_shown
        return find(location.dir, int(number[2]))

    def iter_items(self, path: str) -> Iterator[tuple[str, Item]]:
        location, name = _located(path) if path else (None, "")
        if location is None or name not in ("", layout.CHILDREN):
            return
        if name:
            for child in self._recorded_children(location):
                item = self.find(f"{path}/{child}")
                if item is not None:
                    yield child, item
            return
        permissions = self._permissions(location.path(layout.SESSION))
        for version in reversed(self._history.log(location.dir, limit=-1)):
            if version.main_bytes is not None:
                yield name_of(version), self._file(location, version, permissions)
        if location.child is None and (item := self.find(f"{path}/{layout.CHILDREN}")) is not None:
            yield layout.CHILDREN, item

    def forget(self) -> None:
        self._cache.clear()

    def _recorded_children(self, root: Location) -> list[str]:
        found = (Location(root.root, id) for id in self._history.children_of(root.root))
        return [str(location.child) for location in found]

    def _file(self, location: Location, version: SavedVersion, permissions: _Permissions | None = None) -> VirtualFile:
        assert version.main_bytes is not None
        mode, owner = permissions or self._permissions(location.path(layout.SESSION))
        return VirtualFile(
            version.main_bytes,
            version.at_ns,
            str(version.key),
            lambda: self._cache.rendered((version.key, False), lambda: self._history.read(version).main or b""),
            mode=mode,
            owner=owner,
            source=location.dir,
        )

    def _permissions(self, path: str) -> _Permissions:
        """A past version has today's mode and owner."""
        info = self._names.stat(path)
        return (stat.S_IMODE(info.st_mode), (info.st_uid, info.st_gid)) if info is not None else (0o600, None)


def name_of(version: SavedVersion) -> str:
    """The name of a version's file."""
    moment = local_text(version.made_at_ns).replace(" ", "T").replace(":", ".")
    program = _NOT_PLAIN.sub("-", version.author.program or version.author.via)[:MAX_PROGRAM]
    shown = version.shown_number
    number = f"{shown:06}" if shown is not None else f"local-{version.number:06}"
    return f"{number}~{moment}~{program}.json"


def _located(path: str) -> tuple[Location | None, str]:
    """The session of a path, and the name in its directory."""
    root, _, rest = path.partition("/")
    if not layout.is_session_dir(root):
        return None, ""
    if not rest.startswith(f"{layout.CHILDREN}/"):
        return (Location(root), rest) if "/" not in rest else (None, "")
    child, _, name = rest.partition("/")[2].partition("/")
    if not layout.is_session_dir(child) or "/" in name:
        return None, ""
    return Location(root, child), name
