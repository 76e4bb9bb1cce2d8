"""What a backup holds, file by file: its manifest, as JSON that a person can read and any program can check. Pure.

    {"format": "grovefs-backup", "version": 1, "home": …, "started_at": …, "finished_at": …,
     "sessions": {"<root>[/<child>]": {"updated_at": …, "title": …}},
     "files": {"<path>": {"size", "mtime_ns", "mode", "sha256", "stamp"}}}

A path is relative to home and backup alike. `stamp` is what the file in the home was known by (inode, size, mtime,
ctime) when it was copied: while it is the same the file is not read again. A link has `link`, and is never followed.
"""

from __future__ import annotations

import json  # not orjson: a foreign name may be bytes that are no UTF-8, which only json carries
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from store import layout
from store.disk.file import Stamp
from store.errors import Corrupt, Problem

NAME = "grovefs-backup.json"
FORMAT = "grovefs-backup"
VERSION = 1


class BackupFile(NamedTuple):
    """One file as it was backed up; of a link, only what it says."""

    size: int
    mtime_ns: int
    mode: int
    sha256: str
    stamp: Stamp
    link: str | None = None

    def as_json(self) -> dict[str, Any]:
        about = {"size": self.size, "mtime_ns": self.mtime_ns, "mode": self.mode, "sha256": self.sha256}
        return {**about, "stamp": list(self.stamp)} if self.link is None else {**about, "link": self.link}

    @classmethod
    def of_json(cls, found: Mapping[str, Any]) -> BackupFile:
        link = found.get("link")
        numbers = [int(found[name]) for name in ("size", "mtime_ns", "mode")]
        stamp = Stamp(*map(int, found.get("stamp", (0, 0, 0, 0))))
        return cls(numbers[0], numbers[1], numbers[2], str(found["sha256"]), stamp, None if link is None else str(link))


class BackupSession(NamedTuple):
    """Which version of a session was backed up."""

    updated_at: str
    title: str


@dataclass
class Manifest:
    home: str = ""
    started_at: str = ""
    finished_at: str = ""
    sessions: dict[str, BackupSession] = field(default_factory=dict)
    files: dict[str, BackupFile] = field(default_factory=dict)


def render(manifest: Manifest) -> Iterator[bytes]:
    """The manifest as text, a file a line."""
    head = {
        "format": FORMAT,
        "version": VERSION,
        "home": manifest.home,
        "started_at": manifest.started_at,
        "finished_at": manifest.finished_at,
    }
    yield json.dumps(head)[:-1].encode() + b',\n"sessions": {'
    yield from _lines((name, note._asdict()) for name, note in sorted(manifest.sessions.items()))
    yield b'},\n"files": {'
    yield from _lines((path, item.as_json()) for path, item in sorted(manifest.files.items()))
    yield b"}}\n"


def _lines(members: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[bytes]:
    separator = "\n"
    for name, value in members:
        yield f"{separator}{json.dumps(name)}: {json.dumps(value)}".encode()
        separator = ",\n"


def parse(raw: bytes, name: str = NAME) -> Manifest:
    """A manifest that can be gone by; Corrupt if it is none, or of a later make."""
    try:
        found = json.loads(raw)
        if found["format"] != FORMAT:
            raise ValueError("it is no manifest of a backup")
        if found["version"] > VERSION:
            raise ValueError(f"it is of version {found['version']}, and this GroveFS knows {VERSION}; use a newer one")
        return Manifest(
            str(found["home"]),
            str(found["started_at"]),
            str(found["finished_at"]),
            parse_notes(found["sessions"]),
            parse_files(found["files"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise Corrupt(name, Problem(said)) from None


def parse_notes(found: Mapping[str, Any]) -> dict[str, BackupSession]:
    return {name: BackupSession(str(note["updated_at"]), str(note["title"])) for name, note in found.items()}


def parse_files(found: Mapping[str, Any]) -> dict[str, BackupFile]:
    return {check_path(path): BackupFile.of_json(item) for path, item in found.items()}


def check_path(path: str) -> str:
    """Refuse what is no file of a home: who writes a manifest may not lead us elsewhere."""
    parts = path.split("/")
    is_within = parts[0] in layout.STORED and len(parts) > 1
    if any(part in ("", ".", "..") or "\0" in part for part in parts) or not (is_within or path == layout.INDEX_EXPORT):
        raise ValueError(f"{path!r} is no file of a home")
    return path
