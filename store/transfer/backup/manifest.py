"""The manifest of a backup: JSON that lists every file with its digest. Pure.

    {"format": "grovefs-backup", "version": 1, "home": …, "started_at": …, "finished_at": …,
     "sessions": {"<root>[/<child>]": {"updated_at": …, "title": …}},
     "files": {"<path>": {"size", "mtime_ns", "mode", "sha256", "stamp"}}}

Paths are relative, the same in home and backup. `stamp` is inode, size, mtime and ctime of the file in the home when it
was copied; while these are unchanged, the file is not read again. A link has `link`, its target, and is never followed.
"""

from __future__ import annotations

import json  # not orjson: a foreign file name may not be UTF-8, and only json keeps surrogates
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
    """One file as it was backed up; for a link, only its target."""

    size: int
    mtime_ns: int
    mode: int
    sha256: str
    stamp: Stamp
    link: str | None = None

    def to_json(self) -> dict[str, Any]:
        about = {"size": self.size, "mtime_ns": self.mtime_ns, "mode": self.mode, "sha256": self.sha256}
        return {**about, "stamp": list(self.stamp)} if self.link is None else {**about, "link": self.link}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> BackupFile:
        link = found.get("link")
        numbers = [_number(name, found[name]) for name in ("size", "mtime_ns", "mode")]
        stamp = Stamp(*(_number("stamp", number) for number in found.get("stamp", (0, 0, 0, 0))))
        return cls(numbers[0], numbers[1], numbers[2], str(found["sha256"]), stamp, None if link is None else str(link))


def _number(name: str, value: Any) -> int:
    """An integer that a file can have. Raises ValueError for any other value."""
    number = int(value) if isinstance(value, int | float) and abs(value) < 2**63 else None
    if number is None or (number < 0 and name in ("size", "mode")):
        raise ValueError(f"{name}: expected a number that a file can have, got {str(value)[:40]}")
    return number


class BackupSession(NamedTuple):
    """The version of a session that was backed up."""

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
    """Render the manifest, one file per line."""
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
    yield from _lines((path, item.to_json()) for path, item in sorted(manifest.files.items()))
    yield b"}}\n"


def _lines(members: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[bytes]:
    separator = "\n"
    for name, value in members:
        yield f"{separator}{json.dumps(name)}: {json.dumps(value)}".encode()
        separator = ",\n"


def parse(raw: bytes, name: str = NAME) -> Manifest:
    """Parse a manifest. Raises Corrupt if it is invalid or from a newer version."""
    try:
        found = json.loads(raw)
        if found["format"] != FORMAT:
            raise ValueError("not a backup manifest")
        if found["version"] > VERSION:
            raise ValueError(f"version {found['version']} is not supported, only up to {VERSION}; use a newer GroveFS")
        return Manifest(
            str(found["home"]),
            str(found["started_at"]),
            str(found["finished_at"]),
            parse_sessions(found["sessions"]),
            parse_files(found["files"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
        raise Corrupt(name, Problem(reason)) from None


def parse_sessions(found: Mapping[str, Any]) -> dict[str, BackupSession]:
    return {name: BackupSession(str(session["updated_at"]), str(session["title"])) for name, session in found.items()}


def parse_files(found: Mapping[str, Any]) -> dict[str, BackupFile]:
    return {check_path(path): BackupFile.from_json(item) for path, item in found.items()}


def check_path(path: str) -> str:
    """Raise ValueError for a path outside a home: a forged manifest must not make us read or write elsewhere."""
    parts = path.split("/")
    is_within = parts[0] in layout.STORED and len(parts) > 1
    if any(part in ("", ".", "..") or "\0" in part for part in parts) or not (is_within or path == layout.INDEX_EXPORT):
        raise ValueError(f"{path!r} is not a path in a home")
    return path
