"""Session locks exclude threads and processes and end with their holder."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest

from store import Busy, Location
from store.disk.locks import HomePresence, Locks

A, B, OTHER = Location("r", "a"), Location("r", "b"), Location("q")

HOLDER = """
import sys
from pathlib import Path
from store.layout import Location
from store.disk.locks import Locks
locks = Locks(Path(sys.argv[1]))
root, child = sys.argv[2], sys.argv[3]
with locks.tree(root) if child == "*" else locks.session(Location(root, child or None)):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def locks(path: Path) -> Locks:
    return Locks(path, timeout_s=0.05)


@contextmanager
def in_process(path: Path, root: str, child: str = "") -> Iterator["subprocess.Popen[str]"]:
    """Another process holds the lock of a session or, with `*`, of a tree."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path), root, child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


@contextmanager
def in_thread(take: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
    """Another thread holds a lock."""
    held, release = threading.Event(), threading.Event()

    def work() -> None:
        with take():
            held.set()
            release.wait(30)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert held.wait(10)
        yield
    finally:
        release.set()
        thread.join()


def is_free(take: AbstractContextManager[None]) -> bool:
    try:
        with take:
            return True
    except Busy:
        return False


# -- one session ------------------------------------------------------------------------------------------


def test_lock_is_reentrant_for_its_thread(locks: Locks) -> None:
    """At any depth; the lock is released when the outermost block ends."""
    with locks.session(A):
        with locks.session(A), locks.session(A):
            assert locks.holds(A)
        assert locks.holds(A)
        with in_thread(nullcontext):  # another thread cannot take it
            assert not free_in_thread(locks, A)
    assert not locks.holds(A)
    assert free_in_thread(locks, A)


def free_in_thread(locks: Locks, location: Location) -> bool:
    answers: list[bool] = []
    thread = threading.Thread(target=lambda: answers.append(is_free(locks.session(location))))
    thread.start()
    thread.join()
    return answers[0]


def test_lock_excludes_other_threads(locks: Locks) -> None:
    """The locked session is Busy, any other is free; the lock is free again after its release."""
    with in_thread(lambda: locks.session(A)):
        assert not is_free(locks.session(A))
        assert not locks.holds(A)
        assert is_free(locks.session(B))
        assert is_free(locks.session(OTHER))
    assert is_free(locks.session(A))


def test_lock_excludes_other_processes(path: Path, locks: Locks) -> None:
    """The lock of a root session is separate from the locks of its children."""
    with in_process(path, "r", "a"):
        assert not is_free(locks.session(A))
        assert is_free(locks.session(B))
        assert is_free(locks.session(Location("r")))
    assert is_free(locks.session(A))


def test_two_stores_in_one_process_exclude_each_other(path: Path, locks: Locks) -> None:
    """Even in one thread."""
    with locks.session(A):
        assert not is_free(Locks(path, timeout_s=0).session(A))
    assert is_free(Locks(path, timeout_s=0).session(A))


def test_busy_is_raised_after_the_timeout_and_names_the_session(path: Path) -> None:
    """Not earlier and not much later; a call can override the timeout."""
    locks = Locks(path, timeout_s=0.2)
    with in_thread(lambda: locks.session(A)):
        started = time.monotonic()
        with pytest.raises(Busy, match="session r/a is locked by another writer"), locks.session(A):
            pass
        assert 0.2 <= time.monotonic() - started < 5
        started = time.monotonic()
        with pytest.raises(Busy), locks.session(A, timeout_s=0):
            pass
        assert time.monotonic() - started < 0.2


def test_waiter_gets_the_lock_when_it_is_released(path: Path) -> None:
    """The waiter runs after the holder."""
    locks = Locks(path, timeout_s=20)
    order: list[str] = []

    def wait() -> None:
        with locks.session(A):
            order.append("second")

    with locks.session(A):
        thread = threading.Thread(target=wait)
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_concurrent_increments_under_the_lock_lose_nothing(path: Path, tmp_path: Path) -> None:
    """Three threads and two processes read, increment and write the same number."""
    counter = tmp_path / "counter"
    counter.write_text("0")
    code = (
        "import sys; from pathlib import Path; from store.layout import Location; from store.disk.locks import Locks\n"
        "locks, counter = Locks(Path(sys.argv[1])), Path(sys.argv[2])\n"
        "for _ in range(100):\n"
        "    with locks.session(Location('r', 'a')):\n"
        "        counter.write_text(str(int(counter.read_text()) + 1))\n"
    )
    locks = Locks(path, timeout_s=30)

    def work() -> None:
        for _ in range(100):
            with locks.session(A):
                counter.write_text(str(int(counter.read_text()) + 1))

    processes = [subprocess.Popen([sys.executable, "-c", code, str(path), str(counter)]) for _ in range(2)]
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait() for process in processes] == [0, 0]
    assert counter.read_text() == "500"


def test_killed_holder_leaves_no_lock(path: Path) -> None:
    """After kill -9 a waiter gets the lock at once."""
    locks = Locks(path, timeout_s=10)
    with in_process(path, "r", "a") as process:
        assert not is_free(locks.session(A, timeout_s=0))
        process.kill()
        started = time.monotonic()
        with locks.session(A):
            assert time.monotonic() - started < 5


def test_failure_inside_releases_the_lock(locks: Locks) -> None:
    """An exception in the block releases session and tree locks."""
    with pytest.raises(KeyError), locks.session(A):
        raise KeyError
    with pytest.raises(KeyError), locks.tree("r"):
        raise KeyError
    assert not locks.holds(A)
    assert free_in_thread(locks, A)


def test_unusual_ids_can_be_locked(locks: Locks) -> None:
    """Spaces, newlines, bytes that are not UTF-8, names of maximum length."""
    for location in (Location("a b"), Location("\n"), Location("\udcff"), Location("x" * 255, "y" * 255)):
        with locks.session(location):
            assert locks.holds(location)


# -- trees ---------------------------------------------------------------------------------------------------


def test_tree_lock_excludes_all_its_sessions(path: Path, locks: Locks) -> None:
    """In threads and in processes; other trees are free."""
    with in_thread(lambda: locks.tree("r")):
        assert not is_free(locks.session(A))
        assert not is_free(locks.session(Location("r")))
        assert not is_free(locks.tree("r"))
        assert is_free(locks.session(OTHER))
        assert is_free(locks.tree("q"))
    with in_process(path, "r", "*"):
        assert not is_free(locks.session(A))
        assert not is_free(locks.tree("r"))
        assert is_free(locks.tree("q"))
    assert is_free(locks.tree("r"))


def test_session_lock_excludes_the_tree_lock(path: Path, locks: Locks) -> None:
    """A tree cannot be locked while one of its sessions is."""
    with in_thread(lambda: locks.session(A)):
        assert not is_free(locks.tree("r"))
    with in_process(path, "r", "b"):
        assert not is_free(locks.tree("r"))
        assert is_free(locks.session(A))
    assert is_free(locks.tree("r"))


def test_tree_lock_includes_its_sessions(locks: Locks) -> None:
    """It is re-entrant; releasing a session keeps the tree locked."""
    with locks.tree("r"):
        assert locks.holds(A)
        assert locks.holds(B)
        assert not locks.holds(OTHER)
        with locks.session(A), locks.tree("r"), locks.session(A):
            pass
        assert locks.holds(A)
        assert not free_in_thread(locks, A)
    assert not locks.holds(A)
    assert free_in_thread(locks, A)


def test_session_lock_cannot_be_upgraded_to_the_tree_lock(path: Path) -> None:
    """Two threads doing so would deadlock: Busy is raised at once and the session stays locked."""
    locks = Locks(path, timeout_s=30)
    started = time.monotonic()
    with locks.session(A):
        with pytest.raises(Busy, match="this thread already holds the lock of one of its sessions"), locks.tree("r"):
            pass
        assert locks.holds(A)
        assert not is_free(Locks(path, timeout_s=0).session(A))
    assert time.monotonic() - started < 5


def test_sessions_of_one_tree_are_locked_and_released_separately(path: Path, locks: Locks) -> None:
    """Releasing one of two keeps the other locked."""
    others = Locks(path, timeout_s=0)
    with locks.session(A):
        with locks.session(B):
            assert not is_free(others.session(B))
        assert is_free(others.session(B))
        assert not is_free(others.session(A))
        assert not locks.holds(B)


def test_killed_holder_of_a_tree_leaves_it_free(path: Path) -> None:
    """kill -9 in the middle of a deletion."""
    with in_process(path, "r", "*") as process:
        process.kill()
        with Locks(path, timeout_s=10).tree("r"):
            pass


# -- presence --------------------------------------------------------------------------------------------------


def test_first_process_enters_exclusively(tmp_path: Path) -> None:
    """The first sets up the home; later ones enter after `ready`."""
    path = tmp_path / "open.lock"
    first, second = HomePresence(path), HomePresence(path)
    assert first.enter()
    first.ready()
    assert not second.enter()
    assert not first.try_exclusive()
    assert not second.try_exclusive()
    first.leave()
    assert second.try_exclusive()
    second.leave()


def test_enter_waits_until_the_first_is_ready(tmp_path: Path) -> None:
    """No process uses a home during recovery."""
    path = tmp_path / "open.lock"
    first, second = HomePresence(path), HomePresence(path)
    assert first.enter()
    entered = threading.Event()
    answers: list[bool] = []

    def enter() -> None:
        answers.append(second.enter())
        entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    assert not entered.wait(0.1)
    first.ready()
    assert entered.wait(10)
    thread.join()
    assert answers == [False]
    first.leave()
    second.leave()


def test_presence_ends_with_its_process(tmp_path: Path) -> None:
    """After a kill the remaining process can take the lock exclusively."""
    path = tmp_path / "open.lock"
    code = (
        "import sys; from pathlib import Path; from store.disk.locks import HomePresence\n"
        "p = HomePresence(Path(sys.argv[1]))\n"
        "print(p.enter(), flush=True); p.ready(); print('in', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "True\n"
    assert process.stdout.readline() == "in\n"
    second = HomePresence(path)
    assert not second.enter()
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    assert second.try_exclusive()
    second.leave()


GREEDY = """
import sys, time
from pathlib import Path
from store.layout import Location
from store.disk.locks import Locks
locks, turns = Locks(Path(sys.argv[1])), 0
while True:
    with locks.session(Location("q")) if sys.argv[2] == "session" else locks.tree("q"):
        turns += 1
        Path(sys.argv[3]).write_text(str(turns))
        time.sleep(0.005)
"""


@pytest.mark.parametrize("kind", ["session", "tree"])
def test_waiter_is_not_starved_by_a_loop(path: Path, tmp_path: Path, kind: str) -> None:
    """A process that takes the lock in a loop gets it at most a few times before the waiter."""
    turns = tmp_path / "turns"
    locks = Locks(path)
    with subprocess.Popen([sys.executable, "-c", GREEDY, str(path), kind, str(turns)]) as greedy:
        try:
            deadline = time.monotonic() + 30
            while not turns.exists() or not turns.read_text():
                assert time.monotonic() < deadline
            for _ in range(20):
                with locks.session(OTHER):
                    before = int(turns.read_text())
                while int(turns.read_text() or before) <= before:
                    assert time.monotonic() < deadline
                asked = int(turns.read_text() or before)
                with locks.session(OTHER):
                    assert int(turns.read_text()) - asked <= 3
        finally:
            greedy.kill()
