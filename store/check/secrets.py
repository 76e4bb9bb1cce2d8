"""Likely keys and tokens in stored files. Findings name the place and the kind of a secret, never
its value.

Every regular file below `sessions/`, `projects/` and `state/` is searched: JSON value by value,
so a finding names the member; logs and other text line by line.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator

import orjson

from store import layout
from store.check.context import CheckContext
from store.check.finding import Finding, display_path
from store.commit.core import Core
from store.documents import json_text, secrets
from store.errors import Corrupt

_BAMBOO_SEARCH_KEEPS_TEXT = (
    "Bamboo's own search index may contain text that was redacted or deleted here; "
    "to remove it, stop Bamboo and delete this file, which Bamboo builds again"
)


def check_secrets(context: CheckContext) -> Iterator[Finding]:
    """One finding for each kind of secret and place."""
    core = context.core
    for top in layout.STORED:
        for path in _files(core, top):
            for place, kind in _secrets_in(core, path):
                yield Finding("secret", display_path(path), f"{place}: looks like {kind}")
    if core.disk.stat(layout.BAMBOO_SEARCH) is not None:
        yield Finding("foreign-file", layout.BAMBOO_SEARCH, _BAMBOO_SEARCH_KEEPS_TEXT)


def _files(core: Core, directory: str) -> Iterator[str]:
    """Yield every regular file below a directory, in order."""
    try:
        entries = core.disk.entries(directory)
    except (Corrupt, PermissionError):  # a link, or no permission: other checks report it
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
        yield json_text.render_path(held), "a key, by the name of its member"
    for secret in secrets.find_secrets(value):
        if secret.path != held:
            yield json_text.render_path(secret.path) or "the whole document", secret.kind


def _in_lines(text: str) -> Iterator[tuple[str, str]]:
    if not any(secrets.find_secret_kinds(text)):
        return
    for number, line in enumerate(text.split("\n"), 1):
        for kind in secrets.find_secret_kinds(line):
            yield f"line {number}", kind
