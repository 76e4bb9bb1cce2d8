"""Likely keys and tokens in what is stored, by place. They are counted and named by kind, never printed.

Every plain file below `sessions/`, `projects/` and `state/` is looked through: JSON value by value, so that a finding
names the member, logs and all other text line by line.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator

import orjson

from store import layout
from store.check.finding import Finding
from store.commit.core import Core
from store.documents import json_text, secrets
from store.errors import Corrupt


def check_secrets(core: Core) -> Iterator[Finding]:
    """Each kind once for each place it is found in."""
    for top in layout.STORED:
        for path in _files(core, top):
            for place, kind in _secrets_in(core, path):
                shown = path.encode(errors="replace").decode()
                yield Finding("secret", shown, f"{place}: looks like {kind}")


def _files(core: Core, directory: str) -> Iterator[str]:
    """Every plain file in a directory and below, in order."""
    try:
        entries = core.disk.entries(directory)
    except (Corrupt, PermissionError):  # a link, or closed to us: other checks tell of that
        return
    for entry in entries:
        path = f"{directory}/{entry.name}"
        if entry.is_dir:
            yield from _files(core, path)
        elif entry.is_file:
            yield path


def _secrets_in(core: Core, path: str) -> Iterator[tuple[str, str]]:
    info = core.disk.stat(path)
    if info is None or not stat.S_ISREG(info.st_mode) or info.st_size > core.limit_bytes:
        return
    try:
        file = core.disk.read(path)
    except (Corrupt, PermissionError):
        return
    if file is None:
        return
    try:
        value = orjson.loads(file.data) if path.endswith(".json") else None
    except orjson.JSONDecodeError:
        value = None
    yield from _in_value(value) if value is not None else _in_lines(file.data.decode(errors="replace"))


def _in_value(value: object) -> Iterator[tuple[str, str]]:
    held = secrets.find_api_key(value) if isinstance(value, dict) else None
    if held is not None:
        yield json_text.render_path(held), "a key, by its place"
    for secret in secrets.find_secrets(value):
        if secret.path != held:
            yield json_text.render_path(secret.path) or "the whole", secret.kind


def _in_lines(text: str) -> Iterator[tuple[str, str]]:
    if not any(secrets.secrets_in(text)):
        return
    for number, line in enumerate(text.split("\n"), 1):
        for kind in secrets.secrets_in(line):
            yield f"line {number}", kind
