"""mount --follow: what an agent writes appears in the mount."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.mount.conftest import Mount, wait_until
from tests.store.transfer.foreign import CLAUDE_ID, claude_line, make_claude


def test_new_line_of_an_agent_appears_in_the_mount(
    place: Path, mount_home: Callable[..., Mount], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(place / "user"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    claude = make_claude(place / "user/.claude")
    mounted = mount_home(place / "home", "--follow")
    document = mounted.sessions / CLAUDE_ID / "session.json"
    wait_until(document.exists, 60)
    say = {"role": "user", "content": "typed while mounted"}
    with (claude / f"projects/-home-me-shop/{CLAUDE_ID}.jsonl").open("a") as file:
        file.write(json.dumps(claude_line("user", "n1", say, "40:00", parentUuid="u5")) + "\n")
    wait_until(lambda: "typed while mounted" in document.read_text(), 60)
