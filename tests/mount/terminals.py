"""Programs on a terminal of their own: keys go in, the screen is read back."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mount.conftest import wait_until

_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Terminal:
    """A separate tmux server: keyboard input and screen content."""

    socket: Path

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", str(self.socket), "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_DEADLINE_S).stdout

    def type(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def wait_for(self, *texts: str) -> str:
        """Wait until one of the texts is on the screen. Returns the one found."""
        deadline = time.monotonic() + _DEADLINE_S
        while not (found := [text for text in texts if text in self.screen()]):
            assert time.monotonic() < deadline, f"{texts} not found on the screen:\n{self.screen()}"
            time.sleep(0.02)
        return found[0]


@contextmanager
def terminal(command: str, cwd: Path, aside: Path) -> Iterator[Terminal]:
    """Run a command until it exits; it is killed if it does not. `aside` is its home directory."""
    made = Terminal(aside / "tmux")
    made.tmux("new-session", "-d", "-x", "120", "-y", "40", "-c", str(cwd), f"env HOME={aside} {command}")
    try:
        yield made
        wait_until(lambda: not _is_running(made), timeout_s=_DEADLINE_S)
    finally:
        if _is_running(made):
            made.tmux("kill-server")


def _is_running(terminal: Terminal) -> bool:
    command = ["tmux", "-S", str(terminal.socket), "list-sessions"]
    return subprocess.run(command, capture_output=True).returncode == 0
