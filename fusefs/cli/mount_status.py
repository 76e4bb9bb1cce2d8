"""What running mounts say of themselves, in .grovefs/status.json. A daemon that hangs does not block the caller."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fusefs.daemon.fuse_connection import ANSWER_S, iter_mounted, state_of

TURNED_OFF = "turned off"


def iter_mounts_of(home: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The running mounts of a home, each with its status."""
    for place, *_ in iter_mounted():
        status = read_status(place) if state_of(place) == "mounted" else {}
        if status and Path(status.get("home", "")).resolve() == home.resolve():
            yield place, status


def read_status(mountpoint: Path) -> dict[str, Any]:
    """The status of a mount; empty if its daemon does not answer, or the mount is another user's."""
    answers: list[dict[str, Any]] = []
    asking = threading.Thread(target=lambda: answers.append(_read(mountpoint)), daemon=True)
    asking.start()
    asking.join(ANSWER_S)
    return answers[0] if answers else {}


def _read(mountpoint: Path) -> dict[str, Any]:
    try:
        status = json.loads((mountpoint / ".grovefs/status.json").read_bytes())
    except (OSError, ValueError):  # of another user, or unmounted meanwhile
        return {}
    return status if isinstance(status, dict) else {}


def history_problem(status: dict[str, Any]) -> str:
    """Why a mount keeps no versions; "" if it keeps them, or its status is not known."""
    return str(status.get("history", {}).get("problem", ""))


def advice(problem: str) -> str:
    """What a user can do about versions that are not kept."""
    if problem == TURNED_OFF:
        return "mount again without --no-history to keep them"
    return "saves still work; remove the cause, and versions are kept again within a minute"


def set_aside_line(name: str) -> str:
    """What a user can do with a damaged history.db that was set aside."""
    return (
        f"{name} is a damaged history that was set aside: versions from before are in it, and are not shown. "
        f"`sqlite3 FILE .recover` may read them; delete the file when you do not need it"
    )
