"""The namespace: which nodes exist, what a name leads to, what a directory lists.

Below `sessions/` the home decides; beside it stand the generated files. Rejected bytes and their reason
are shown in the session they belong to, though they lie elsewhere.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from hashlib import blake2b

from fusefs.generated import Generated
from fusefs.nodes import ROOT_INODE, Node, Nodes
from fusefs.shadows import Shadow
from fusefs.writers import Writers
from store import Store, layout
from store.errors import NotFound
from store.places import VERSIONED, Kind, Place, place_of


class Tree:
    def __init__(self, store: Store, generated: Generated, writers: Writers) -> None:
        self.store = store
        self.nodes = Nodes()
        self.writers = writers
        self._generated = generated
        self.root = self.nodes.add(Node(ROOT_INODE, None, "", info=store.home.stat(), children={}))
        self._started_ns = time.time_ns()

    # -- lookup ------------------------------------------------------------------------------------------

    def lookup(self, parent: Node, name: str) -> Node:
        """The node a name leads to for everybody but its writer; NotFound if to none."""
        path = f"{parent.path}/{name}" if parent.path else name
        if path == layout.SESSIONS or path.startswith(f"{layout.SESSIONS}/"):
            return self._stored(parent, name, path)
        return self._made(parent, name, path)

    def _stored(self, parent: Node, name: str, path: str) -> Node:
        place = place_of(path)
        if self.writers.hidden(path) is not None:
            raise NotFound(f"{path} was taken away")
        info = self.store.names.stat(path)
        if info is None:
            return self._rejected(parent, name, place)
        is_version = place.kind in VERSIONED and stat.S_ISREG(info.st_mode)
        if place.kind in VERSIONED and not is_version and not _is_foreign_dir(place.kind, info):
            raise NotFound(f"{path} is not a plain file")
        present = self.nodes.named(parent, name)
        if present is not None and present.info is not None and _is_same(present.info, info, is_version=is_version):
            present.info = info
            return present
        version = (info.st_ino, info.st_mtime_ns, info.st_ctime_ns) if is_version else info.st_ino
        return self.nodes.add(Node(self.nodes.number(path, version), parent, name, info=info))

    def _rejected(self, parent: Node, name: str, place: Place) -> Node:
        """`session.json.rejected` and `session.json.error`, read-only, from where they are kept."""
        if place.location is None or place.path != place.location.path(name):
            raise NotFound(f"{place.path} does not exist")
        kept = self.store.names.rejects.path(place.location, name)
        if kept is None:
            raise NotFound(f"{place.path} does not exist")
        info = self.store.names.stat(kept)
        data = self.store.names.read(Place(kept, Kind.PLAIN, None, name))
        if info is None or data is None:
            raise NotFound(f"{place.path} does not exist")
        return self._with_data(parent, name, place.path, data, info.st_mtime_ns)

    def _made(self, parent: Node, name: str, path: str) -> Node:
        files = self._generated.files
        if path in files:
            return self._with_data(parent, name, path, files[path](), self._started_ns)
        if not any(other.startswith(f"{path}/") for other in files):
            raise NotFound(f"{path} does not exist")
        present = self.nodes.named(parent, name)
        if present is not None:
            return present
        return self.nodes.add(Node(self.nodes.number(path, "made"), parent, name, info=self.root.info, children={}))

    def _with_data(self, parent: Node, name: str, path: str, data: bytes, mtime_ns: int) -> Node:
        present = self.nodes.named(parent, name)
        if present is not None and present.data == data:
            return present
        version = blake2b(data, digest_size=8).hexdigest()  # not hash(): the number is the same after a remount
        node = Node(self.nodes.number(path, version), parent, name, data=data, created_ns=mtime_ns)
        return self.nodes.add(node)

    # -- listing -----------------------------------------------------------------------------------------

    def list(self, directory: Node) -> list[str]:
        """The names in a directory, in order."""
        path = directory.path
        if path == layout.SESSIONS or path.startswith(f"{layout.SESSIONS}/"):
            return sorted(self._list_stored(path))
        prefix = f"{path}/" if path else ""
        inside = {p[len(prefix) :].partition("/")[0] for p in self._generated.files if p.startswith(prefix)}
        return sorted(inside | ({layout.SESSIONS} if not path else set()))

    def _list_stored(self, path: str) -> Iterator[str]:
        hidden = set(self.writers.hidden_in(path))
        yield from (entry.name for entry in self.store.names.entries(path) if entry.name not in hidden)
        place = place_of(path)
        if place.kind is Kind.SESSION and place.location is not None:
            yield from self.store.names.rejects.names(place.location)

    # -- private nodes -----------------------------------------------------------------------------------

    def make_private(self, parent: Node, name: str, info: os.stat_result | None, shown: int | None = None) -> Node:
        """A node for one writer of a name, with a shadow that is still empty."""
        place = place_of(f"{parent.path}/{name}")
        base = None
        if place.kind is Kind.DOCUMENT and place.location is not None:
            base = self.store.version(place.location)
        shadow = Shadow(self.store, place, base, info)
        number = self.nodes.number(place.path, ("private", time.monotonic_ns()))
        node = Node(number, parent, name, info=info, shadow=shadow, shown_inode=shown, created_ns=time.time_ns())
        return self.nodes.add_private(node)


def _is_foreign_dir(kind: Kind, info: os.stat_result) -> bool:
    """Among the attachments there may be directories: git's, or those of rsync --delay-updates."""
    return kind is Kind.ATTACHMENT and stat.S_ISDIR(info.st_mode)


def _is_same(known: os.stat_result, info: os.stat_result, *, is_version: bool) -> bool:
    """Whether what is there now is what was known."""
    if stat.S_IFMT(known.st_mode) != stat.S_IFMT(info.st_mode) or known.st_ino != info.st_ino:
        return False
    if not is_version:
        return True
    return (known.st_size, known.st_mtime_ns, known.st_ctime_ns) == (info.st_size, info.st_mtime_ns, info.st_ctime_ns)
