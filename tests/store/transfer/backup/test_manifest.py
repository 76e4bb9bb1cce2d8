"""The manifest of a backup: it round-trips, and paths outside a home are rejected."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from store import Corrupt
from store.disk.file import Stamp
from store.transfer.backup import manifest
from store.transfer.backup.manifest import BackupFile, BackupSession, Manifest

NUMBERS = st.integers(0, 2**63 - 1)
# File names as the kernel returns them, including bytes that are not UTF-8.
NAMES = st.binary(min_size=1, max_size=12).map(lambda raw: raw.decode(errors="surrogateescape"))
PARTS = NAMES.filter(lambda name: "/" not in name and "\0" not in name and name not in (".", ".."))
PATHS = st.lists(PARTS, min_size=1, max_size=4).map(lambda parts: "/".join(["sessions", *parts]))
STAMPS = st.builds(Stamp, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
FILES = st.builds(BackupFile, NUMBERS, NUMBERS, st.integers(0, 0o7777), st.just("0a"), STAMPS, st.none())
LINKS = st.builds(
    lambda mtime_ns, text: BackupFile(0, mtime_ns, 0o777, "", Stamp(0, 0, 0, 0), text), NUMBERS, st.text(min_size=1)
)


NOTES = st.builds(BackupSession, st.just("2026-01-01T00:00:00Z"), st.text(max_size=20))


@settings(max_examples=40)
@given(st.dictionaries(PATHS, FILES | LINKS, max_size=3), st.dictionaries(NAMES, NOTES, max_size=3), st.text())
def test_rendered_manifest_can_be_parsed(
    files: dict[str, BackupFile], sessions: dict[str, BackupSession], home: str
) -> None:
    written = Manifest(home, "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", sessions, files)
    assert manifest.parse(b"".join(manifest.render(written))) == written


def test_manifest_has_one_file_per_line() -> None:
    """One file per line is easy to search and to diff."""
    item = BackupFile(1, 2, 0o600, "ab", Stamp(1, 2, 3, 4))
    text = b"".join(manifest.render(Manifest("/h", files={"sessions/a/x": item, "state/b/y.md": item}))).decode()
    assert json.loads(text)["files"]["sessions/a/x"]["sha256"] == "ab"
    assert len([line for line in text.splitlines() if '"sha256"' in line]) == 2


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x",
        "sessions/../../x",
        "sessions",
        "sessions//x",
        "sessions/./x",
        ".grovefs/index.db",
        "x",
    ],
)
def test_path_outside_a_home_is_rejected(path: str) -> None:
    item = BackupFile(1, 2, 0o600, "ab", Stamp(1, 2, 3, 4))
    text = b"".join(manifest.render(Manifest("/h", files={path: item})))
    with pytest.raises(Corrupt, match="not a path in a home"):
        manifest.parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "Expecting"),
        (b"[]", "indices"),
        (b'{"format": "tar"}', "not a backup manifest"),
        (b'{"format": "grovefs-backup", "version": 2}', "use a newer GroveFS"),
        (b'{"format": "grovefs-backup", "version": 1}', "'home' is missing"),
        (b"\xff", "utf-8"),
        (b'{"a":' * 100_000, "recursion"),
    ],
)
def test_invalid_manifest_is_corrupt(text: bytes, reason: str) -> None:
    with pytest.raises(Corrupt, match=reason):
        manifest.parse(text)


@pytest.mark.parametrize("member", ["size", "mtime_ns", "mode", "stamp"])
@pytest.mark.parametrize("value", ["1e30", "-1e30", "Infinity", "NaN", '"1"', "null"])
def test_b4_a_number_that_no_file_has_is_damage(member: str, value: str) -> None:
    """It is not written to a file, where it would be an OverflowError."""
    item = BackupFile(1, 2, 0o600, "ab", Stamp(1, 2, 3, 4))
    text = b"".join(manifest.render(Manifest("/h", files={"sessions/a/session.json": item}))).decode()
    whole = "[1, 2, 3, 4]" if member == "stamp" else str(getattr(item, member))
    wrong = f"[{value}, 2, 3, 4]" if member == "stamp" else value
    damaged = text.replace(f'"{member}": {whole}', f'"{member}": {wrong}')
    assert damaged != text
    with pytest.raises(Corrupt, match=f"{member}: expected a number that a file can have"):
        manifest.parse(damaged.encode())
