"""Invocation by mount(8): `grovefs HOME MOUNTPOINT -o options`, from /etc/fstab or by `mount -t fuse.grovefs`.

mount.fuse3 consumes its own options (setuid=, nofail, x-…) and passes the rest. Options of `grovefs mount` are
translated, kernel options are passed on, and unknown options are an error: a misspelled `ro` must not become a
writable mount.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from fusefs.cli.terminal import echo

# Options of mount(8) and fuse(8) that are defaults, or meant for other programs.
_DEFAULTS = ("rw", "defaults", "dev", "suid", "exec", "async", "atime", "relatime", "diratime", "nodiratime")
_FOR_OTHERS = ("auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev")
IGNORED = frozenset((*_DEFAULTS, *_FOR_OTHERS, "norelatime", "strictatime", "lazytime", "default_permissions"))
IGNORED_WITH_VALUE = ("x-", "comment=", "user=", "fsname=", "subtype=", "setuid=", "uhelper=", "helper=")
FOR_KERNEL = ("nodev", "nosuid", "noexec", "noatime", "sync", "dirsync")
FLAGS = {
    "ro": "--read-only",
    "allow_other": "--allow-other",
    "beside_bamboo": "--beside-bamboo",
    "no_history": "--no-history",
    "debug": "--debug",
}
VALUES = {"durability": "--durability", "on_conflict": "--on-conflict", "log_file": "--log-file"}


class UnknownOption(ValueError):
    pass


def is_call(arguments: Sequence[str]) -> bool:
    """Whether mount(8) is the caller: no command has a slash in its name, and mount(8) always passes -o."""
    is_by_name = os.path.basename(arguments[0]).startswith("mount.")
    is_place = len(arguments) >= 3 and "/" in arguments[1] and not arguments[1].startswith("-")
    return is_by_name or (is_place and "-o" in arguments[3:])


def translate(arguments: Sequence[str]) -> list[str]:
    """Translate the arguments of mount(8) (source, mountpoint, -o, -t, -s, -n, -v) into those of `grovefs mount`."""
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
        raise UnknownOption("expected a home and a mountpoint, followed by -o and options")
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
    """The arguments main() continues with. An unknown option exits with code 1, as mount(8) expects."""
    try:
        return translate(arguments)
    except UnknownOption as error:
        echo(f"grovefs: {error}", err=True)
        sys.exit(1)
