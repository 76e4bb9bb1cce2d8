"""A mount that comes with the login and goes with the logout: the text of a systemd user unit. Pure, but for `install`.

The unit runs the present command with the present home and options. It is known by a digest in its first lines: one
that someone has changed by hand is not replaced.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal

from store.disk.file_io import replace_file
from store.errors import Conflict, InvalidName

HEAD = "# Made by `grovefs mount --install-unit`, which replaces it unless it was changed by hand.\n# "
LONGEST_NAME = 255
_PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%", "$": "$$"}


def unit_name(mountpoint: Path) -> str:
    """As `systemd-escape --path` spells it."""
    name = f"grovefs-{escape_path(mountpoint)}.service"
    if len(name) > LONGEST_NAME:
        raise InvalidName(f"{mountpoint} is too long a path for the name of a unit")
    return name


def escape_path(path: Path) -> str:
    """A path as part of a unit's name: slashes become dashes, and what is not plain \\x and its number."""
    raw = os.fsencode(os.path.normpath(path)).strip(b"/")
    if not raw:
        return "-"
    return "".join(_escaped(byte, is_first=place == 0) for place, byte in enumerate(raw))


def _escaped(byte: int, *, is_first: bool) -> str:
    character = chr(byte)
    if character == "/":
        return "-"
    is_plain = character.isascii() and (character.isalnum() or character in ":_" or (character == "." and not is_first))
    return character if is_plain else f"\\x{byte:02x}"


def quote(text: str) -> str:
    """One word of a command line in a unit, in which % and $ mean something too."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidName(f"{text!r} is not Unicode, and so cannot be said in a unit") from None
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
        raise InvalidName(f"{text!r} has control characters, and so cannot be said in a unit")
    if _PLAIN.fullmatch(text):
        return text
    return '"' + "".join(_ESCAPES.get(character, character) for character in text) + '"'


def render(command: Sequence[str], options: Sequence[str], home: Path, mountpoint: Path) -> str:
    """The unit. `command` is what starts GroveFS, `options` are those of `mount`."""
    program = " ".join(map(quote, command))
    place = quote(str(mountpoint))
    started = " ".join(map(quote, ["mount", "--foreground", "--home", str(home), *options]))
    described = " ".join(f"GroveFS: {home} at {mountpoint}".replace("%", "%%").split())
    text = f"""\
[Unit]
Description={described}
Documentation=man:grovefs(1)

[Service]
# Ready when it is mounted; what it logs goes to the journal.
Type=notify
ExecStart={program} {started} {place}
ExecStop={program} umount {place}
# After a crash the mountpoint would answer nobody.
ExecStopPost=-fusermount3 -quz {place}
Restart=on-failure
RestartSec=2
TimeoutStopSec=30

[Install]
WantedBy=default.target
"""
    return f"{HEAD}{_digest(text)}\n{text}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def is_untouched(text: str) -> bool:
    """Whether a unit is as it was made."""
    head, _, rest = text.removeprefix(HEAD).partition("\n")
    return text.startswith(HEAD) and head == _digest(rest)


def directory() -> Path:
    """Where systemd looks for the units of a user."""
    config = os.environ.get("XDG_CONFIG_HOME")
    return (Path(config) if config else Path.home() / ".config") / "systemd/user"


def install(name: str, text: str, *, force: bool) -> tuple[Path, Literal["written", "unchanged"]]:
    """Put a unit in its place, whole; Conflict if one is there that was changed by hand."""
    path = directory() / name
    if path.exists() and not force:
        present = path.read_text(errors="replace")
        if present == text:
            return path, "unchanged"
        if not is_untouched(present):
            raise Conflict(f"{path} was changed by hand, and stays as it is; --force replaces it")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, text.encode(), mode=0o644)
    return path, "written"
