"""`grovefs grove demo`: two mounted hosts of one grove, and nothing left of them after Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.grove.groves import wait_until
from tests.mount.conftest import CODE, daemons_of


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_shows_an_edit_on_the_other_host_and_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    """Also while a shell is in one of its mounts."""
    command = [sys.executable, "-c", CODE, "grove", "demo", "--json"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": "/var/tmp"})
    shell: subprocess.Popen[bytes] | None = None
    try:
        assert demo.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1].rstrip() != "}":
            lines.append(demo.stdout.readline())
            assert lines[-1], "the demo did not start"
        shown = json.loads("".join(lines))
        one, two = (Path(host["mount"]) for host in shown["hosts"])
        document = one / "sessions/welcome/session.json"
        document.write_text(document.read_text().replace("Does the other host", "Surely the other host"))
        wait_until(lambda: "Surely the other host" in (two / "transcripts/welcome.md").read_text())
        shell = subprocess.Popen(["sleep", "600"], cwd=two / "sessions")
        demo.send_signal(number)
        assert demo.wait(120) == 0
    finally:
        if shell is not None:
            shell.kill()
            shell.wait()
        demo.kill()
        demo.wait()
        assert demo.stdout is not None
        demo.stdout.close()
    assert not one.parent.exists()
    wait_until(lambda: not daemons_of(one) + daemons_of(two))
    mounts = Path("/proc/self/mounts").read_text()
    assert str(one.parent) not in mounts
    running = subprocess.run(["pgrep", "-f", str(one.parent)], capture_output=True, text=True).stdout.split()
    assert running == []
