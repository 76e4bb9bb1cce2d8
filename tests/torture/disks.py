"""Full disks, page by page and inode by inode, and disks that turn read-only: by API and through the mount.

Every error is the right one and nothing has changed; the process survives; with the disk repaired, all works again.
"""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from store import Store
from tests.crash.scenarios import Scenario, copy_home
from tests.torture.attack import Case
from tests.torture.daemon import Daemon, mounted
from tests.torture.forked import in_child
from tests.torture.places import (
    FailingDisk,
    Ground,
    SmallDisk,
    Tree,
    failing_disk,
    flaws,
    scratch,
    small_disk,
    tree_below,
)
from tests.torture.syscalls import changes, judge_after, judge_result
from tests.torture.traced import silence_warnings
from tests.torture.writers import WRITERS, Writer, save

PAGES = (*range(16), 20, 24, 28, 32, 40, 48, 64, 96)
NAMES = range(12)
MOUNT_PAGES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
MOUNT_NAMES = (0, 1, 2, 3, 4)


class Filling(Ground):
    """Changes on copies of the home on a disk that fills up."""

    def __init__(self, place: Path, small: SmallDisk) -> None:
        super().__init__(place)
        self.small = small

    # -- by API --------------------------------------------------------------------------------------------------

    def change(self, scenario: Scenario, fill: Callable[[], None]) -> None:
        home = copy_home(self.origin, self.small.path / "home")
        try:
            error = in_child(lambda: self._change(home, scenario, fill))
            assert error is None, error
        finally:
            self.small.free()
            shutil.rmtree(home)

    def _change(self, home: Path, scenario: Scenario, fill: Callable[[], None]) -> None:
        silence_warnings()
        try:
            with Store.open(home, background=False) as store:
                before = tree_below(home)
                fill()
                error = attempt(store, scenario)
                judge_result(store, scenario, errno.ENOSPC, error, before, is_lasting=True)
                self.small.free()
                judge_after(store, scenario, reported=error is None)
        except OSError as error:
            raise AssertionError(repr(error)) from error

    # -- through the mount ---------------------------------------------------------------------------------------

    def write(self, writer: Writer, fill: Callable[[], None]) -> None:
        home = copy_home(self.origin, self.small.path / "home")
        try:
            with mounted(home, self.place) as daemon:
                (daemon.path / "sessions.json").stat()
                fill()
                error = in_child(lambda: writer.write(daemon.path))
                check_result(daemon, writer, error, errno.ENOSPC, self.before)
                self.small.free()
                use_again(daemon)
                daemon.unmount()
            check_end(home, writer, reported=error is None)
        finally:
            self.small.free()
            shutil.rmtree(home)


def attempt(store: Store, scenario: Scenario) -> Exception | None:
    try:
        scenario.change(store)
    except Exception as error:
        return error
    return None


def check_result(daemon: Daemon, writer: Writer, error: OSError | None, number: int, before: Tree) -> None:
    """The reported result is true, existing data is unchanged, and the daemon is alive."""
    assert daemon.is_alive, daemon.log.read_text()
    if error is not None:
        assert error.errno == number, error
    if error is not None and not writer.in_parts:
        now = tree_below(daemon.home)
        lost = [path for path, data in before.items() if now.get(path) != data]
        assert not lost, f"{error}, but {lost} changed"


def use_again(daemon: Daemon) -> None:
    """The disk has space again: the next save works at once."""
    error = in_child(lambda: save(daemon.path / "state/facts/later.json", b'{"text": "later"}'))
    assert error is None, error


def check_end(home: Path, writer: Writer, *, reported: bool) -> None:
    with Store.open(home, background=False) as store:
        assert store._home.upkeep.catch_up()  # the history has what it missed, without another save
        assert not flaws(store), flaws(store)
        assert writer.done(store) or not reported, "success was reported, but the change is missing"
        assert store.search("later")


# -- a full disk -------------------------------------------------------------------------------------------------------


def full(seed: int) -> Iterator[Case]:
    """All cases in random order: if time runs out, some of every kind were tried."""
    with scratch() as place, small_disk(place) as small:
        cases = [*_all(Filling(place, small), seed)]
        random.Random(seed).shuffle(cases)
        yield from cases


def _all(here: Filling, seed: int) -> Iterator[Case]:
    fill, fill_names = here.small.fill, here.small.fill_names
    for scenario in changes(seed):
        for pages in PAGES:
            yield Case(f"{scenario.name}: {pages} pages left", partial(here.change, scenario, partial(fill, pages)))
        for names in NAMES:
            yield Case(
                f"{scenario.name}: {names} names left", partial(here.change, scenario, partial(fill_names, names))
            )
    for writer in WRITERS:
        name = f"{writer.name} (mount)"
        for pages in MOUNT_PAGES:
            yield Case(f"{name}: {pages} pages left", partial(here.write, writer, partial(fill, pages)))
        for names in MOUNT_NAMES:
            yield Case(f"{name}: {names} names left", partial(here.write, writer, partial(fill_names, names)))


# -- a disk that turned read-only --------------------------------------------------------------------------------------


class Failing(Ground):
    """Changes on copies of the home on a disk that turns read-only."""

    def __init__(self, place: Path, disk: FailingDisk) -> None:
        super().__init__(place)
        self.disk = disk

    def _copied(self) -> Path:
        home = self.disk.path / "home"
        shutil.rmtree(home, ignore_errors=True)
        copy_home(self.origin, home)
        self.disk.sync()
        return home

    def change(self, scenario: Scenario) -> None:
        home = self._copied()
        try:
            error = in_child(lambda: self._change(home, scenario))
            assert error is None, error
        finally:
            self.disk.replace_disk()
        with Store.open(home, background=False) as store:
            assert tree_below(home) == self.before, "the data from before the disk failed"
            judge_after(store, scenario)

    def _change(self, home: Path, scenario: Scenario) -> None:
        silence_warnings()
        store = Store.open(home, background=False)
        try:
            before = tree_below(home)
            self.disk.fail()
            error = attempt(store, scenario)
            judge_result(store, scenario, errno.EROFS, error, before, is_lasting=True)
            store.close()  # it cannot clean up, and reports that only in the log
        except OSError as error:
            raise AssertionError(repr(error)) from error

    def write(self, writer: Writer) -> None:
        home = self._copied()
        with ExitStack() as stack:
            stack.callback(self.disk.replace_disk)
            daemon = stack.enter_context(mounted(home, self.place))
            self.disk.fail()
            error = in_child(lambda: writer.write(daemon.path))
            assert error is not None, "nothing could be written, but success was reported"
            check_result(daemon, writer, error, errno.EROFS, self.before)
            daemon.unmount()
        with mounted(home, self.place) as daemon:
            use_again(daemon)
            daemon.unmount()
        check_end(home, writer, reported=False)


def read_only(seed: int) -> Iterator[Case]:
    with scratch() as place, failing_disk(place) as disk:
        here = Failing(place, disk)
        for scenario in changes(seed):
            yield Case(f"{scenario.name}: the disk is read-only", partial(here.change, scenario))
        for writer in WRITERS:
            yield Case(f"{writer.name} (mount): the disk is read-only", partial(here.write, writer))
