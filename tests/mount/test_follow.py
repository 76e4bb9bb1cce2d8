"""mount --follow: what an agent writes appears in the mount."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.conftest import Mount, wait_until
from tests.store.transfer.foreign import CLAUDE_ID, claude_line, make_claude


@pytest.fixture
def claude(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of Claude Code, where it is looked for."""
    monkeypatch.setenv("HOME", str(place / "user"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return make_claude(place / "user/.claude")


def say(claude: Path, text: str) -> None:
    message = {"role": "user", "content": text}
    with (claude / f"projects/-home-me-shop/{CLAUDE_ID}.jsonl").open("a") as file:
        file.write(json.dumps(claude_line("user", "n1", message, "40:00", parentUuid="u5")) + "\n")


def test_new_line_of_an_agent_appears_in_the_mount(place: Path, mount_home: Callable[..., Mount], claude: Path) -> None:
    mounted = mount_home(place / "home", "--follow")
    document = mounted.sessions / CLAUDE_ID / "session.json"
    wait_until(document.exists, 60)
    say(claude, "typed while mounted")
    wait_until(lambda: "typed while mounted" in document.read_text(), 60)


def test_a_session_that_does_not_grow_any_more_is_logged(
    place: Path, mount_home: Callable[..., Mount], claude: Path
) -> None:
    mounted = mount_home(place / "home", "--follow")
    receipt = mounted.home / "sessions" / CLAUDE_ID / ".import.json"
    wait_until(receipt.exists, 60)
    receipt.unlink()
    say(claude, "typed later")
    wait_until(lambda: f"kept: {CLAUDE_ID}" in (mounted.home / ".grovefs/follow.log").read_text(), 60)
