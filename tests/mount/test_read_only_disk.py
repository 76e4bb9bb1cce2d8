"""A disk that rejects writes temporarily, under a running mount.

A filesystem with files open for writing, as a mount has, cannot be made read-only and writable again. `mount -o
remount` fails, and a damaged filesystem stays read-only until it is unmounted. The test injects errors with strace.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.mount.conftest import Mount, daemons_of
from tests.mount.test_basics import edit, title
from tests.torture.traced import attached

# System calls that change the disk. Not write and writev: the daemon answers the kernel with those.
_CALLS = (
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat"),
    *("pwrite64", "pwritev", "ftruncate", "fsync", "fdatasync"),
)


@contextmanager
def read_only_below(daemon: int) -> Iterator[None]:
    calls = ",".join(f"?{call}" for call in _CALLS)
    rules = ["-e", f"trace={calls}", "-e", f"inject={calls}:error=EROFS"]
    with attached(daemon, "-f", "-o", os.devnull, *rules):
        yield


def test_mount_survives_a_temporarily_read_only_disk(mounted: Mount) -> None:
    """Reading works, every save fails with EROFS and changes nothing, and saving works again afterwards."""
    (daemon,) = daemons_of(mounted.path)
    session = mounted.sessions / "root"
    (mounted.path / "state/facts").mkdir()
    before = (session / "session.json").read_bytes()
    changes: dict[str, Callable[[], object]] = {
        "save": lambda: edit(session / "session.json", '"The root"', '"In vain"'),
        "attach": lambda: (session / "attachments/new.txt").write_text("text"),
        "state": lambda: (mounted.path / "state/facts/new.json").write_text("{}"),
        "mkdir": lambda: (mounted.sessions / "new").mkdir(),
        "rename": lambda: session.rename(mounted.sessions / "renamed"),
    }
    with read_only_below(daemon):
        for name, change in changes.items():
            with pytest.raises(OSError, match=r".") as raised:
                change()
            assert raised.value.errno == errno.EROFS, name
        assert (session / "session.json").read_bytes() == before
        assert "The root" in (mounted.path / "sessions.json").read_text()
        assert "The root" in (mounted.path / "transcripts/root.md").read_text()
    assert daemons_of(mounted.path) == [daemon]
    edit(session / "session.json", '"The root"', '"Afterwards"')
    (session / "attachments/new.txt").write_text("text")
    session.rename(mounted.sessions / "renamed")
    assert title(mounted.sessions / "renamed/session.json") == "Afterwards"
    with mounted.store() as store:
        assert [hit.location for hit in store.search("Afterwards")]
