"""Changes of directories in every way, each compared with what the mount lists afterwards."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from types import TracebackType
from typing import Self

from store import Store
from tests.builders import make_session
from tests.mount.conftest import Mount

DEADLINE_S = 60.0


class ListingChanges:
    """Two mounts of one home. Readers list all the time, so the kernel's caches are always full."""

    def __init__(self, mount: Mount, other: Mount, draw: Random) -> None:
        self._mount, self._other, self._draw = mount, other, draw
        self._stop = threading.Event()
        self._listers = [threading.Thread(target=self._list_all, args=(m,)) for m in (mount, mount, other)]
        self._errors: list[BaseException] = []
        self._number = 0
        self._delays_s: list[float] = []  # until changes made elsewhere were listed

    def __enter__(self) -> Self:
        self._store = Store.open(self._mount.home, background=False)
        for lister in self._listers:
            lister.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stop.set()
        for lister in self._listers:
            lister.join()
        self._store.close()
        if kind is None:
            assert not self._errors, self._errors

    def _list_all(self, mount: Mount) -> None:
        try:
            while not self._stop.is_set():
                for directory, _, _ in os.walk(mount.sessions):
                    os.listdir(directory) if os.path.isdir(directory) else None
        except FileNotFoundError:
            if not self._stop.is_set():
                self._list_all(mount)  # a directory went between the check and the listing
        except BaseException as error:
            self._errors.append(error)

    # -- changes ---------------------------------------------------------------------------------

    def change(self) -> None:
        """Change something; then the mount must list it."""
        self._number += 1
        ways: list[Callable[[], None]] = [
            lambda: self._foreign_file(self._mount.sessions, at_once=True),
            lambda: self._foreign_file(self._other.sessions, at_once=False),
            lambda: self._foreign_file(self._mount.home / "sessions", at_once=False),
            lambda: self._directory(self._mount.sessions, at_once=True),
            lambda: self._directory(self._mount.home / "sessions", at_once=False),
            self._session_by_api,
            self._session_renamed_by_api,
            lambda: self._renamed(self._mount.sessions, at_once=True),
            lambda: self._renamed(self._other.sessions, at_once=False),
            lambda: self._renamed(self._mount.home / "sessions", at_once=False),
            lambda: self._absent(self._mount.sessions, at_once=True),
            lambda: self._absent(self._other.sessions, at_once=False),
            lambda: self._absent(self._mount.home / "sessions", at_once=False),
            self._rejected_here,
            self._attachment_here,
        ]
        self._draw.choice(ways)()

    def describe_delays(self) -> str:
        """How long changes made elsewhere took to be listed. A second is promised on a machine with idle CPUs."""
        delays = sorted(self._delays_s)
        late = sum(delay > 1.0 for delay in delays)
        return f"{len(delays)} changes elsewhere: median {median(delays):.3f} s, worst {delays[-1]:.3f} s, {late} late"

    def settle(self) -> None:
        """In the end both mounts list what the disk has."""
        for mount in (self._mount, self._other):
            self._expect(lambda mount=mount: tree(mount.sessions) == tree(mount.home / "sessions"), at_once=False)  # type: ignore[misc]

    def _foreign_file(self, top: Path, *, at_once: bool) -> None:
        name = f"note-{self._number}"
        (top / "root" / name).write_text("x")
        self._expect(lambda: name in self._names("root"), at_once=at_once)
        (top / "root" / name).unlink()
        self._expect(lambda: name not in self._names("root"), at_once=at_once)

    def _directory(self, top: Path, *, at_once: bool) -> None:
        name = f"folder-{self._number}"
        (top / "root" / name).mkdir()
        self._expect(lambda: name in self._names("root"), at_once=at_once)
        (top / "root" / name / "inside").write_text("x")
        self._expect(lambda: self._names(f"root/{name}") == {"inside"}, at_once=at_once)
        shutil.rmtree(top / "root" / name)
        self._expect(lambda: name not in self._names("root"), at_once=at_once)

    def _session_by_api(self) -> None:
        name = f"session-{self._number}"
        self._store.save(make_session(name, messages=1))
        self._expect(lambda: name in self._names(""), at_once=False)
        self._expect(lambda: {"session.json", "runtime.json"} <= self._names(name), at_once=False)
        self._store.delete(name)
        self._expect(lambda: name not in self._names(""), at_once=False)

    def _session_renamed_by_api(self) -> None:
        old, new = f"old-{self._number}", f"new-{self._number}"
        self._store.save(make_session(old, messages=1))
        self._expect(lambda: old in self._names(""), at_once=False)
        self._store.rename(old, new)
        self._expect(lambda: old not in self._names("") and new in self._names(""), at_once=False)
        self._store.delete(new)
        self._expect(lambda: new not in self._names(""), at_once=False)

    def _renamed(self, top: Path, *, at_once: bool) -> None:
        old, new = top / "root" / f"a-{self._number}", top / f"root/b-{self._number}"
        old.write_text("x")
        old.rename(new)
        self._expect(lambda: old.name not in self._names("root") and new.name in self._names("root"), at_once=at_once)
        new.unlink()
        self._expect(lambda: new.name not in self._names("root"), at_once=at_once)

    def _absent(self, top: Path, *, at_once: bool) -> None:
        """A name that programs looked for before it existed, and look for again."""
        below = self._draw.choice(["root/.ignore", "root/attachments/.ignore", ".ignore"])
        shown = self._mount.sessions / below
        assert not shown.exists()
        (top / below).write_text("x")
        self._expect(shown.exists, at_once=at_once)
        (top / below).unlink()
        self._expect(lambda: not shown.exists(), at_once=at_once)

    def _rejected_here(self) -> None:
        """A rejected save leaves its text and the reason, the next one removes them."""
        path = self._mount.sessions / "pinned/session.json"
        good = path.read_text()
        try:
            path.write_text("not JSON")
        except OSError:
            pass
        else:
            raise AssertionError("accepted")
        assert (path.parent / "session.json.error").exists()
        path.write_text(
            good.replace('"title"', ' "title"', 1) if ' "title"' not in good else good.replace(' "title"', '"title"', 1)
        )
        assert not (path.parent / "session.json.error").exists()

    def _attachment_here(self) -> None:
        name = f"picture-{self._number}.png"
        path = self._mount.sessions / "root/attachments" / name
        path.write_bytes(b"x")
        self._expect(lambda: name in self._names("root/attachments"), at_once=True)
        path.unlink()
        self._expect(lambda: name not in self._names("root/attachments"), at_once=True)

    def _names(self, directory: str) -> set[str]:
        try:
            return set(os.listdir(self._mount.sessions / directory))
        except FileNotFoundError:
            return set()

    def _expect(self, is_so: Callable[[], bool], *, at_once: bool) -> None:
        began = time.monotonic()
        while not is_so():
            in_time = not at_once and time.monotonic() < began + DEADLINE_S
            assert in_time, f"change {self._number}: not listed {'at once' if at_once else 'in time'}"
            time.sleep(0.005)
        if not at_once:
            self._delays_s.append(time.monotonic() - began)


def tree(top: Path) -> set[str]:
    """All paths below a directory, but for temporary ones."""
    return {str(Path(root, name).relative_to(top)) for root, dirs, files in os.walk(top) for name in [*dirs, *files]}
