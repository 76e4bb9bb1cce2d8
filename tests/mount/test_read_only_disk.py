"""A disk that takes nothing for a while, below a mount that lives on.

No filesystem turns read-only and back again below files that are open for writing, as a mount's are: `mount -o remount`
is refused, and who found itself damaged stays read-only until it is unmounted. So strace answers in its place.
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

# What changes the disk. Not write and writev: by those the kernel is answered.
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


def test_a_mount_outlives_a_spell_in_which_its_disk_takes_nothing(mounted: Mount) -> None:
    """Reading goes on, every save is told EROFS and changes nothing; and the next one after it works."""
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
            with pytest.raises(OSError, match=r".") as told:
                change()
            assert told.value.errno == errno.EROFS, name
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
