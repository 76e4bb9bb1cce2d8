"""Sources on another machine: copy its agents' sessions with rsync over ssh, and import the copy.

rsync transfers what has changed since the last copy, and ssh uses the keys and host names that the user has set up.
Nothing is written on the other machine. The copy is a cache: losing it costs a complete transfer and no session.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from store.errors import InvalidName, NotFound

SCHEME = "ssh://"
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
# Keys of the agents must not leave their machine; the rest has no sessions.
_NOT_COPIED = ("auth.json", "*credentials*", "oauth_creds.json", ".env", "node_modules", ".git", ".cache", "*.sock")
_VANISHED = 24  # exit code of rsync: files were deleted while they were copied


class RemoteSource(NamedTuple):
    host: str
    user: str
    port: int | None
    path: str  # absolute, or relative to the home directory; "" for what the agents keep there


def is_remote(path: str) -> bool:
    return path.startswith(SCHEME)


def parse_url(url: str) -> RemoteSource:
    """Parse ssh://[USER@]HOST[:PORT][/DIR]; /~/DIR is below the home directory. Raises InvalidName."""
    try:
        parts = urlsplit(url)
        host, user, port = parts.netloc.rpartition("@")[2].partition(":")[0], parts.username or "", parts.port
    except ValueError as error:
        raise InvalidName(f"{url}: {error}") from None
    if not _HOST.fullmatch(host) or (user and not _USER.fullmatch(user)) or parts.query or parts.fragment:
        raise InvalidName(f"{url}: expected ssh://[USER@]HOST[:PORT][/DIR]; nothing was imported")
    path = unquote(parts.path)
    path = path.removeprefix("/~/") if path.startswith("/~") else path
    return RemoteSource(host, user, port, "" if path in ("/", "~", "/~") else path)


def fetch(remote: RemoteSource, wanted: Sequence[str], environment: Mapping[str, str]) -> Path:
    """Copy what has changed, and return the directory of the copy. Raises NotFound if that fails.

    Without a directory the `wanted` paths in the home directory are copied, as far as they exist.
    """
    copy = _cache(remote, environment)
    copy.mkdir(parents=True, exist_ok=True, mode=0o700)
    sources = [f"{remote.path.rstrip('/')}/./"] if remote.path else [f"./{path}" for path in dict.fromkeys(wanted)]
    try:
        done = subprocess.run(
            _command(remote, sources, copy, environment), capture_output=True, stdin=subprocess.DEVNULL, check=False
        )
    except FileNotFoundError:
        raise NotFound("rsync is not installed on this machine; nothing was imported") from None
    if done.returncode not in (0, _VANISHED):
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"rsync exited with {done.returncode}"]
        raise NotFound(
            f"{remote.host}: {lines[0]}; nothing was imported. Check that `ssh {remote.host}` works without a "
            "password, that the directory exists, and that rsync is installed on both machines"
        )
    return copy


def _command(
    remote: RemoteSource, sources: Sequence[str], copy: Path, environment: Mapping[str, str]
) -> list[str | Path]:
    shell = environment.get("RSYNC_RSH", "ssh")
    if remote.port is not None:
        shell += f" -p {remote.port}"
    if shlex.split(shell)[0].rpartition("/")[2] == "ssh":
        shell += " -o BatchMode=yes"  # fail instead of asking for a password
    target = f"{remote.user}@{remote.host}" if remote.user else remote.host
    options = ["--recursive", "--times", "--relative", "--secluded-args", "--prune-empty-dirs"]
    if not remote.path:
        options.append("--ignore-missing-args")
    excluded = [f"--exclude={name}" for name in _NOT_COPIED]
    named = [f"{target if number == 0 else ''}:{path}" for number, path in enumerate(sources)]
    return ["rsync", *options, *excluded, f"--rsh={shell}", "--", *named, f"{copy}/"]


def _cache(remote: RemoteSource, environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME", "~"), ".cache")
    key = hashlib.sha256(repr((remote.user, remote.port, remote.path)).encode()).hexdigest()[:12]
    return Path(base).expanduser() / "grovefs/hosts" / remote.host / key
