"""A long-running mount: an hour of edits without the pauses. Its resource use must stay constant.

All kinds of changes repeat on the same few names, so anything that grows is a leak: descriptors, memory, nodes of the
daemon, write buffers and temporary files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from store import Message
from store.layout import ATTACHMENTS, SESSION, SESSIONS, TMP, TOKEN_USAGE
from tests.builders import make_document, make_session
from tests.mount.conftest import wait_until
from tests.torture.crowd import Size
from tests.torture.mounted_home import PATIENCE_S, MountedHome
from tests.torture.mounts import Mounted

NAME = "lasting"
MORE_DESCRIPTORS = 32
MORE_MEMORY_KB = 12 * 1024  # after the warm-up; keeping the 2 KB document of each edit would add 7 MB per hour
MORE_NODES = 200


class Life:
    """One mount and the edits made in it."""

    def __init__(self, grove: MountedHome) -> None:
        self.grove = grove
        self.mount: Mounted = grove.mounts[0]
        self.directory = grove.sessions / NAME
        self.turn = 0
        grove.store.save(make_session(NAME, messages=20))
        wait_until((self.directory / SESSION).exists, PATIENCE_S)
        self.changes: list[Callable[[], None]] = [
            self.in_place,
            self.refused,
            self.by_rename,
            self.by_vim,
            self.attached,
            self.write_note,
            self.create_and_delete,
            self.by_api,
            self.read_views,
        ]

    def run(self, turns: int) -> None:
        for _ in range(turns):
            self.turn += 1
            self.changes[self.turn % len(self.changes)]()

    def text(self) -> bytes:
        data = json.loads((self.directory / SESSION).read_bytes())
        return json.dumps({**data, "title": f"Turn {self.turn}", "messages": data["messages"][:20]}).encode()

    def in_place(self) -> None:
        text = self.text()
        (self.directory / SESSION).write_bytes(text)
        assert (self.directory / SESSION).read_bytes() == text

    def refused(self) -> None:
        with pytest.raises(OSError, match="Bad message"):
            (self.directory / SESSION).write_bytes(b'{"torn":')

    def by_rename(self) -> None:
        temporary = self.directory / f"t{self.turn}"
        temporary.write_bytes(self.text())
        temporary.rename(self.directory / SESSION)

    def by_vim(self) -> None:
        text, path = self.text(), self.directory / SESSION
        path.rename(self.directory / "session.json~")
        path.write_bytes(text)
        (self.directory / "session.json~").unlink()

    def attached(self) -> None:
        path = self.directory / ATTACHMENTS / f"{self.turn}.png"
        path.write_bytes(b"x" * (self.turn % 5000))
        path.unlink()

    def write_note(self) -> None:
        with (self.directory / TOKEN_USAGE).open("ab", buffering=0) as log:
            log.write(b'{"n": 1}\n')
        os.truncate(self.directory / TOKEN_USAGE, 0)

    def create_and_delete(self) -> None:
        copy = self.grove.sessions / f"copy{self.turn}"
        (copy).mkdir()
        (copy / SESSION).write_bytes(make_document(copy.name))
        copy.rename(self.grove.sessions / f"moved{self.turn}")
        shutil.rmtree(self.grove.sessions / f"moved{self.turn}")

    def by_api(self) -> None:
        self.grove.store.append(NAME, [Message.user(f"turn {self.turn}")])
        wait_until(lambda: f"turn {self.turn}".encode() in (self.directory / SESSION).read_bytes(), PATIENCE_S)

    def read_views(self) -> None:
        top = self.mount.path
        os.listdir(top / "search" / f"turn{self.turn}")
        subprocess.run(["find", top / "views", top / "transcripts"], check=True, capture_output=True)
        (top / "sessions.json").read_bytes()

    # -- resources ---------------------------------------------------------------------------------------

    def size(self) -> Size:
        Path("/proc/sys/vm/drop_caches").write_text("2")  # otherwise the kernel's dentry cache keeps nodes alive
        return Size.of(self.mount.daemon)

    def nodes(self) -> int:
        stats = json.loads((self.mount.path / ".grovefs/stats.json").read_bytes())
        found: int = stats["nodes"]
        return found

    def check_flat(self, before: Size, nodes: int) -> None:
        """Compare with the values after the warm-up. Forgets from the kernel arrive a moment later."""
        wait_until(lambda: self.size().descriptors <= before.descriptors + MORE_DESCRIPTORS, PATIENCE_S)
        wait_until(lambda: self.nodes() <= nodes + MORE_NODES, PATIENCE_S)
        now = self.size()
        assert now.memory_kb <= before.memory_kb + MORE_MEMORY_KB, f"{before.memory_kb} KB became {now.memory_kb} KB"
        temporaries = os.listdir(self.grove.home / TMP)
        assert not temporaries, temporaries
        assert set(os.listdir(self.grove.home / SESSIONS)) == {NAME}
        assert self.grove.store.check().is_clean
        assert "Traceback" not in self.grove.logged()
