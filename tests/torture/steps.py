"""The mount's daemon, killed with SIGKILL at each durable step of each writer.

After each kill the next mount replaces the dead one, shows the old or the new version and accepts the next save;
`check` finds nothing. The steps that were hit are reported by name.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from store import Store
from tests.crash.scenarios import copy_home
from tests.torture.attack import Case
from tests.torture.daemon import Daemon, mounted
from tests.torture.forked import in_child
from tests.torture.places import Ground, flaws, scratch, tree_below
from tests.torture.writers import WRITERS, Writer, save

# The steps of changes through a mount. Appending to a log has none.
STEPS = frozenset(
    {
        *("make-dir", "write-temp", "sync-temp", "journal", "move", "sync-dir", "history-add", "history-moved"),
        *("index", "remove", "remove-tree", "exchange"),
    }
)
UNTOUCHED = 200  # more than any writer has


class Stepped(Ground):
    """Mounts copies of the home and kills their daemon at a step; records which steps were hit."""

    def __init__(self, place: Path, memory: Path) -> None:
        super().__init__(place, memory)
        self.home = memory / "home"
        self.hit: Counter[str] = Counter()
        self.through: dict[str, bool] = {}  # whether a writer finished before its last step

    def kill(self, writer: Writer, at: int) -> None:
        home = copy_home(self.origin, self.home)
        try:
            with mounted(home, self.place, at) as daemon:
                daemon.fuse.light()
                error = in_child(lambda: writer.write(daemon.path), daemon.abort)
                steps = daemon.fuse.steps
            assert not daemon.was_stuck, "the writer waited for the dead daemon"
            self.through[writer.name] = len(steps) < at
            self.hit.update(steps[at - 1 : at])
            with mounted(home, self.place) as daemon:
                self._look(daemon)
            self._check(home, writer, reported=error is None)
        finally:
            shutil.rmtree(home)

    def _look(self, daemon: Daemon) -> None:
        """After mounting again, the home can be read and written."""

        def use() -> None:
            (daemon.path / "sessions.json").read_bytes()
            save(daemon.path / "state/facts/later.json", b'{"text": "later"}')

        error = in_child(use)
        assert error is None, error
        daemon.unmount()

    def _check(self, home: Path, writer: Writer, *, reported: bool) -> None:
        with Store.open(home, background=False) as store:
            assert not flaws(store), flaws(store)
            done = writer.done(store)
            assert done or not reported, "success was reported, but the change is missing"
            assert store.search("later")
            if not done:
                now = tree_below(home)
                kept = self.before if not writer.in_parts else self.before.keys() & now.keys()
                assert all(now.get(path) == self.before[path] for path in kept), "neither the old nor the new version"
            assert not list((home / ".grovefs/tmp").iterdir())


@contextmanager
def ground() -> Iterator[Stepped]:
    with scratch() as place, scratch(in_memory=True) as memory:
        yield Stepped(place, memory)


def kills(seed: int) -> Iterator[Case]:
    """Every writer at every step; finally, check that no step was left out."""
    with ground() as here:
        for writer in WRITERS:
            yield from kills_by(here, writer)
        if here.through.keys() == {writer.name for writer in WRITERS}:  # otherwise only one case was requested
            yield Case("every step was hit", lambda: check_hit(here.hit))


def kills_by(here: Stepped, writer: Writer) -> Iterator[Case]:
    for at in range(1, UNTOUCHED):
        yield Case(f"{writer.name}: killed at step {at}", partial(here.kill, writer, at))
        if here.through.get(writer.name):
            return


def check_hit(hit: Counter[str]) -> None:
    assert set(hit) == STEPS, f"hit: {dict(hit)}; not hit: {STEPS - set(hit)}; unknown: {set(hit) - STEPS}"
