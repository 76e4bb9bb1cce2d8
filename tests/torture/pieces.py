"""What the model is made of: documents, other files, directories, and what says whose a document is.

A document whose new bytes the store decides (a fork, a carried sidecar, an API save) is known by its members alone,
until what lies on disk has been compared with them; from then on it is known to the byte.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from store.layout import Location

IDENTITY = ("id", "kind", "root_session_id", "parent_session_id", "spawn_depth")
# What an API save may bring along, by rules that other tests prove; the model compares what it set itself.
COMPARED = ("id", "kind", "root_session_id", "parent_session_id", "title", "pinned", "note", "metadata")


@dataclass
class Doc:
    data: dict[str, Any]
    raw: bytes | None  # None until it has been seen
    number: int  # the moment of its commit
    is_loose: bool = False  # written by the API: only COMPARED and what was said is foretold

    def adopt(self, found: bytes) -> None:
        """Compare with what is there; what was open is settled by it."""
        data = json.loads(found)
        view = _told if self.is_loose else _bare
        assert view(data) == view(self.data), f"{view(data)} is there, {view(self.data)} was to be"
        self.data, self.raw = data, found


def _told(data: dict[str, Any]) -> dict[str, Any]:
    told = {name: data.get(name) for name in COMPARED if name != "metadata"}
    return told | {"metadata": data.get("metadata") or {}, "said": said(data), "pinned": bool(data.get("pinned"))}


def _bare(data: dict[str, Any]) -> dict[str, Any]:
    """Without members of identity that say nothing."""
    return {k: v for k, v in data.items() if k not in IDENTITY or v not in (None, 0)}


def said(data: dict[str, Any]) -> list[str]:
    return [message["content"] for message in data["messages"]]


@dataclass
class File:
    data: bytes
    number: int  # the moment it was made


@dataclass
class Rejected:
    data: bytes
    reason: bytes | None = None  # until it has been read


@dataclass
class Dir:
    """The directory of a session, or of what may become one."""

    main: Doc | None = None
    side: Doc | None = None
    attachments: dict[str, bytes] | None = None  # None: not even a directory
    has_children: bool = False  # the directory `children/`
    files: dict[str, File] = field(default_factory=dict)  # foreign ones, and the log
    rejected: dict[str, Rejected] = field(default_factory=dict)

    @property
    def has_more(self) -> bool:
        """Than session.json, which the mount may hide."""
        return bool(self.side or self.files or self.has_children or self.attachments is not None)


@dataclass
class Hidden:
    doc: Doc  # the version that was taken away; no other goes in its stead
    was_deleted: bool  # by unlink, not by rename: who deletes first means what comes next


# -- whose a document is -----------------------------------------------------------------------------------------------


def spelled(data: dict[str, Any], members: dict[str, Any]) -> dict[str, Any]:
    """With other members of identity; None takes one away."""
    return {k: v for k, v in {**data, **members}.items() if k not in members or v is not None}


def is_same_session(new: dict[str, Any], old: dict[str, Any]) -> bool:
    return all(new.get(name) == old.get(name) for name in ("id", "kind", "root_session_id"))


def is_at_home(data: dict[str, Any], location: Location) -> bool:
    return (data["id"], data["kind"], data["root_session_id"]) == (location.id, location.kind, location.root)


def below_root(root: str) -> dict[str, Any]:
    return {"parent_session_id": root, "spawn_depth": 1}


def forked(data: dict[str, Any], location: Location) -> dict[str, Any]:
    """A document at a path that is not its own."""
    own: dict[str, Any] = {"id": location.id, "kind": location.kind, "root_session_id": location.root}
    if location.child is None:
        own |= {"parent_session_id": None, "spawn_depth": 0}
    elif data["kind"] == "root" or data["parent_session_id"] in (data["root_session_id"], location.id):
        own |= below_root(location.root)
    return spelled(data, own)


def identity_at(source: Location, target: Location) -> dict[str, Any]:
    own: dict[str, Any] = {"id": target.id, "kind": target.kind, "root_session_id": target.root}
    if target.child is None:
        return own | {"parent_session_id": None, "spawn_depth": 0}
    return own | (below_root(target.root) if source.child is None or source.root != target.root else {})
