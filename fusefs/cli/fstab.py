"""Called by mount(8): `grovefs HOME MOUNTPOINT -o options`, from /etc/fstab or by `mount -t fuse.grovefs`.

mount.fuse3 takes away what concerns only itself (setuid=, nofail, x-…) and hands us the rest. What we have an option
for becomes that option; what the kernel has is handed on; what neither knows is refused, as a wrong spelling of `ro`
must not become a mount that can be written to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from fusefs.cli.terminal import echo

# Of mount(8) and fuse(8): said by default, or for others than us.
_DEFAULTS = ("rw", "defaults", "dev", "suid", "exec", "async", "atime", "relatime", "diratime", "nodiratime")
_FOR_OTHERS = ("auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev")
IGNORED = frozenset((*_DEFAULTS, *_FOR_OTHERS, "norelatime", "strictatime", "lazytime", "default_permissions"))
IGNORED_WITH_VALUE = ("x-", "comment=", "user=", "fsname=", "subtype=", "setuid=", "uhelper=", "helper=")
FOR_KERNEL = ("nodev", "nosuid", "noexec", "noatime", "sync", "dirsync")
FLAGS = {"ro": "--read-only", "allow_other": "--allow-other", "beside_bamboo": "--beside-bamboo", "debug": "--debug"}
VALUES = {"durability": "--durability", "on_conflict": "--on-conflict", "log_file": "--log-file"}


class UnknownOption(ValueError):
    pass


def is_call(arguments: Sequence[str]) -> bool:
    """Whether it is mount(8) that calls: no command has a slash in its name, and it always says -o."""
    is_by_name = os.path.basename(arguments[0]).startswith("mount.")
    is_place = len(arguments) >= 3 and "/" in arguments[1] and not arguments[1].startswith("-")
    return is_by_name or (is_place and "-o" in arguments[3:])


def translate(arguments: Sequence[str]) -> list[str]:
    """The arguments of `grovefs mount` for those of mount(8): source, mountpoint, then -o, and -s, -n, -v, -f."""
    places: list[str] = []
    options: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in ("-o", "-t"):
            value = next(words, "")
            options += _split(value) if word == "-o" else []
        elif word.startswith("-o"):
            options += _split(word[2:])
        elif word not in ("-s", "-n", "-v"):
            places.append(word)
    if len(places) != 2:
        raise UnknownOption("expected are a home and a mountpoint, then -o and options")
    home, mountpoint = places
    return ["mount", "--home", home, *(flag for option in options for flag in _translated(option)), "--", mountpoint]


def _split(text: str) -> list[str]:
    return [option for option in text.split(",") if option]


def _translated(option: str) -> list[str]:
    name, _, value = option.partition("=")
    if option in FLAGS:
        return [FLAGS[option]]
    if option in FOR_KERNEL:
        return ["--kernel-option", option]
    if name in VALUES and value:
        return [VALUES[name], value]
    if option in IGNORED or option.startswith(IGNORED_WITH_VALUE):
        return []
    raise UnknownOption(f"unknown mount option {option!r}")


def run(arguments: Sequence[str]) -> list[str]:
    """What main() is to go on with; a wrong option ends it as mount(8) wishes: exit code 1."""
    try:
        return translate(arguments)
    except UnknownOption as error:
        echo(f"grovefs: {error}", err=True)
        sys.exit(1)
