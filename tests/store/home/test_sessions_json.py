"""sessions.json, the export in Bamboo's format. Another program that writes it counts as a Bamboo server."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from store import BambooAtWork, Message, Session, Store
from store.index.catalog import render_entry
from store.model.timestamp import Timestamp
from tests.builders import make_session, read_json

LOCKS = [".session-lifecycle.lock", ".sessions-index.lock"]


def exported(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_json(home / "sessions.json")
    return found


def wait_until(condition: Callable[[], bool], timeout_s: float) -> float:
    """Poll; returns the seconds it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < timeout_s, "condition not met in time"
        time.sleep(0.01)
    return time.monotonic() - started


def rewrite(home: Path, **members: Any) -> None:
    """As a Bamboo server does: write a new file and rename it."""
    data = exported(home) | members
    temp = home / "written-by-bamboo"
    temp.write_text(json.dumps(data, indent=2))
    temp.rename(home / "sessions.json")


# -- contents ----------------------------------------------------------------------------------------


def test_export_equals_the_entries(store: Store) -> None:
    """Bamboo's format: version, updated_at, and each entry under its id, members in order."""
    store.save(make_session("s1", title='größer "quoted"', pinned=True, run_id="run"))
    store.save(Session.new_child("c1", "s1", "m", "child"))
    store.maintenance.export_sessions_json()
    raw = (store.home / "sessions.json").read_bytes()
    data = json.loads(raw)
    assert list(data) == ["version", "updated_at", "sessions"]
    assert data["version"] == 2
    assert data["sessions"] == {e.id: json.loads(render_entry(e)) for e in store.entries()}
    assert list(data["sessions"]["c1"]) == list(json.loads(render_entry(store.entries(kind="child")[0])))
    assert data["sessions"]["c1"]["rel_path"] == "sessions/s1/children/c1"
    assert raw == json.dumps(data, indent=2, ensure_ascii=False).encode()


def test_new_home_has_an_export_from_the_start(store: Store) -> None:
    """Bamboo expects the file; an empty home has an empty index."""
    assert exported(store.home)["sessions"] == {}


def test_export_is_written_soon_after_the_last_change(home: Path) -> None:
    """By the background thread, never by the save."""
    with Store.open(home, durability="normal") as store:
        for i in range(5):
            store.save(make_session(f"s{i}"))
        assert wait_until(lambda: len(exported(home)["sessions"]) == 5, timeout_s=20.0) < 20.0
        store.append("s1", [Message.user("more")])
        wait_until(lambda: exported(home)["sessions"]["s1"]["message_count"] == 3, timeout_s=20.0)
        store.delete("s4")
        wait_until(lambda: "s4" not in exported(home)["sessions"], timeout_s=20.0)


@pytest.mark.parametrize("background", [True, False])
def test_export_is_written_on_close(home: Path, background: bool) -> None:
    """With and without the background thread."""
    with Store.open(home, background=background) as store:
        store.save(make_session("s1"))
    assert set(exported(home)["sessions"]) == {"s1"}


def test_export_is_not_rewritten_when_nothing_changed(home: Path) -> None:
    """Neither by a second export nor by opening and closing."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
        store.maintenance.export_sessions_json()
        before = os.stat(home / "sessions.json")
        store.maintenance.export_sessions_json()
    with Store.open(home, background=False) as store:
        assert store.entry("s1")
    after = os.stat(home / "sessions.json")
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_version_and_unknown_keys_are_kept(home: Path) -> None:
    """Members that only a newer Bamboo knows are written back with every export."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
        store.save(make_session("s2"))
    data = exported(home)
    data["sessions"]["s1"]["novelty"] = {"a": [1, 2.5]}
    rewrite(home, version=7, rebuild_in_progress=False, sessions=data["sessions"])
    with Store.open(home, background=False) as store:
        store.append("s1", [Message.user("more")])
        store.delete("s2")
    again = exported(home)
    assert list(again) == ["version", "updated_at", "sessions", "rebuild_in_progress"]
    assert (again["version"], again["rebuild_in_progress"]) == (7, False)
    assert again["sessions"]["s1"]["novelty"] == {"a": [1, 2.5]}
    assert again["sessions"]["s1"]["message_count"] == 3


# -- one entry per id --------------------------------------------------------------------------------


def copy_of(store: Store, child: str, root: str) -> None:
    """Copy a child to another root under the same id, as `cp -r` of its root does."""
    source, target = store.home / f"sessions/{child}", store.home / f"sessions/{root}/children/{Path(child).name}"
    target.parent.mkdir(exist_ok=True)
    shutil.copytree(source, target)
    for path in target.glob("*.json"):
        path.write_text(json.dumps({**read_json(path), "root_session_id": root, "parent_session_id": root}))
    store.maintenance.sweep()


def path_of(store: Store, session_id: str) -> str:
    store.maintenance.export_sessions_json()
    return str(exported(store.home)["sessions"][session_id]["rel_path"])


@pytest.mark.parametrize("restart", [False, True], ids=["running", "rebuilt"])
def test_c1_entry_that_bamboo_had_is_kept_when_its_id_is_used_again(home: Path, restart: bool) -> None:
    """The copy's root is first in the alphabet; also if index.db is rebuilt from the files."""
    with Store.open(home, background=False) as store:
        for root in ("zz", "aa"):
            store.save(make_session(root))
        store.save(Session.new_child("kid", "zz", "m", "original"))
        assert path_of(store, "kid") == "sessions/zz/children/kid"
        copy_of(store, "zz/children/kid", "aa")
        assert path_of(store, "kid") == "sessions/zz/children/kid"
    if restart:
        (home / ".grovefs/index.db").unlink()
    with Store.open(home, background=False) as store:
        assert path_of(store, "kid") == "sessions/zz/children/kid"
        assert not store.check().findings  # Bamboo does not use this home
        (home / "session_search.db").touch()
        (note,) = store.check().findings
        assert (note.kind, note.path, note.is_damage) == ("duplicate-id", "sessions/aa/children/kid", False)
        assert "sessions/zz/children/kid" in note.text
        store.delete("zz/kid")
        assert path_of(store, "kid") == "sessions/aa/children/kid"
        assert not store.check().findings
        (home / "session_search.db").unlink()


def test_c1_entry_of_a_root_wins_over_children_with_its_id(store: Store) -> None:
    """As everywhere: an id names the root."""
    store.save(make_session("aa"))
    store.save(Session.new_child("zz", "aa", "m", "child"))
    assert path_of(store, "zz") == "sessions/aa/children/zz"
    store.save(make_session("zz"))
    assert path_of(store, "zz") == "sessions/zz"


# -- sessions that Bamboo reads and this program does not ------------------------------------------------

UNREADABLE_HERE = {
    "a duplicate key in metadata": lambda raw: raw.replace(b'"metadata": {', b'"metadata": {"a": "1", "a": "2", ', 1),
    "an offset without a colon": lambda raw: raw.replace(b"00:00:00Z", b"05:30:00+0530"),
}


def bamboo_home(home: Path) -> None:
    """A home with the sessions good, odd and .dot, indexed by Bamboo and never opened by this program."""
    with Store.open(home, background=False) as store:
        for name in ("good", "odd"):
            session = make_session(name, metadata={"k": "v"})
            session.created_at = Timestamp("2026-01-01T00:00:00Z")
            store.save(session)
    shutil.copytree(home / "sessions/odd", home / "sessions/.dot")
    data = exported(home)["sessions"]
    data["odd"]["novelty"] = 1
    rewrite(home, sessions=data | {".dot": data["odd"] | {"id": ".dot", "rel_path": "sessions/.dot"}})
    for path in home.glob("sessions/.dot/*.json"):
        path.write_text(json.dumps({**read_json(path), "id": ".dot", "root_session_id": ".dot"}))


@pytest.mark.warns
@pytest.mark.parametrize("damage", list(UNREADABLE_HERE))
def test_c2_entries_of_sessions_that_cannot_be_read_here_are_kept(home: Path, damage: str) -> None:
    """Opening, changing and closing the home keeps every entry that Bamboo had."""
    bamboo_home(home)
    path = home / "sessions/odd/session.json"
    raw = path.read_bytes()
    path.write_bytes(UNREADABLE_HERE[damage](raw))
    assert path.read_bytes() != raw
    before = exported(home)["sessions"]
    for text in ("one", "two"):
        with Store.open(home, background=False) as store:
            assert "odd" in store.maintenance.status()["damaged"]
            store.append("good", [Message.user(text)])
        after = exported(home)["sessions"]
        assert (after["odd"], after[".dot"]) == (before["odd"], before[".dot"])
        assert list(after) == sorted(after)
    shutil.rmtree(home / "sessions/.dot")
    path.write_bytes(raw)  # repaired by hand
    with Store.open(home, background=False) as store:
        store.append("odd", [Message.user("three")])
    after = exported(home)["sessions"]
    assert list(after) == ["good", "odd"]
    assert after["odd"]["message_count"] == 3


@pytest.mark.warns
def test_c2_a_session_damaged_while_the_store_is_open_keeps_its_entry(home: Path) -> None:
    """After a repair by hand Bamboo finds it again, without opening the home here."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
        store.save(make_session("s2"))
    path, before = home / "sessions/s1/session.json", exported(home)["sessions"]["s1"]
    path.write_bytes(path.read_bytes()[:-1])
    with Store.open(home, background=False) as store:
        store.maintenance.sweep()
        store.append("s2", [Message.user("more")])
    assert exported(home)["sessions"]["s1"] == before
    with Store.open(home, background=False) as store:
        store.delete("s1", force=True)
    assert list(exported(home)["sessions"]) == ["s2"]


def test_deleted_export_is_written_again(home: Path) -> None:
    """On opening, and with the next change while open. A deletion does not count as a Bamboo server."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
    (home / "sessions.json").unlink()
    with Store.open(home) as store:
        assert set(exported(home)["sessions"]) == {"s1"}
        (home / "sessions.json").unlink()
        store.save(make_session("s2"))
        wait_until(lambda: (home / "sessions.json").exists(), timeout_s=20.0)
        assert set(exported(home)["sessions"]) == {"s1", "s2"}


@pytest.mark.warns
@pytest.mark.parametrize("garbage", [b"", b"{", b"[1]", b'{"sessions": []}', b"\xff\xfe"])
def test_invalid_export_is_rebuilt_on_opening(home: Path, garbage: bytes) -> None:
    """From the sessions; the invalid file is kept in the trash."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
    (home / "sessions.json").write_bytes(garbage)
    with Store.open(home, background=False) as store:
        assert [e.id for e in store.entries()] == ["s1"]
        store.save(make_session("s2"))
    assert set(exported(home)["sessions"]) == {"s1", "s2"}
    kept = [p.read_bytes() for p in (home / ".grovefs/trash").rglob("sessions.json")]
    assert kept == ([garbage] if garbage else [])


@pytest.mark.warns
@pytest.mark.parametrize("make", [lambda p: p.symlink_to("/dev/null"), lambda p: p.mkdir()])
def test_link_or_directory_in_place_of_the_export_is_moved_to_the_trash(
    home: Path, make: Callable[[Path], None]
) -> None:
    """On opening: it must not prevent exports forever."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
    (home / "sessions.json").unlink()
    make(home / "sessions.json")
    with Store.open(home, background=False) as store:
        store.save(make_session("s2"))
    assert set(exported(home)["sessions"]) == {"s1", "s2"}


def test_export_keeps_the_mode_of_the_file(home: Path) -> None:
    """The next export has the same permissions."""
    with Store.open(home, background=False) as store:
        os.chmod(home / "sessions.json", 0o640)
        store.save(make_session("s1"))
    assert os.stat(home / "sessions.json").st_mode & 0o777 == 0o640


# -- a running server ---------------------------------------------------------------------------------------


def test_writes_are_rejected_after_a_foreign_rewrite(home: Path) -> None:
    """A server keeps its sessions in memory: it would overwrite our changes."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
        store.maintenance.export_sessions_json()
        rewrite(home, note="mine")
        before = (home / "sessions.json").read_bytes()
        for attempt in (
            lambda: store.save(make_session("s2")),
            lambda: store.append("s1", [Message.user("x")]),
            lambda: store.attach("s1", b"x", "image/png"),
            lambda: store.delete("s1"),
        ):
            with pytest.raises(BambooAtWork, match=r"it rewrote sessions\.json"):
                attempt()
        assert store.load("s1") is not None
        assert "sessions.json" in store.maintenance.status()["bamboo"]
        store.maintenance.export_sessions_json()
        assert (home / "sessions.json").read_bytes() == before
        assert store.check().is_clean
    assert (home / "sessions.json").read_bytes() == before


def test_sessions_written_by_the_server_are_indexed_after_its_rewrite(home: Path) -> None:
    """Not only its sessions.json is read again."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
        store.maintenance.export_sessions_json()
        path = home / "sessions/s1/session.json"
        path.write_bytes(path.read_bytes().replace(b"msg-0", b"by the server"))
        rewrite(home)
        with pytest.raises(BambooAtWork):
            store.save(make_session("s2"))
        assert len(store.search('"by the server"')) == 1


def test_beside_bamboo_allows_writes(home: Path) -> None:
    """Saves and exports work, and keep the members the server wrote."""
    with Store.open(home, background=False, beside_bamboo=True) as store:
        store.save(make_session("s1"))
        store.maintenance.export_sessions_json()
        rewrite(home, note="mine")
        store.save(make_session("s2"))
        store.maintenance.export_sessions_json()
        assert set(exported(home)["sessions"]) == {"s1", "s2"}
        assert exported(home)["note"] == "mine"


def test_rewrite_while_closed_does_not_reject_writes(home: Path) -> None:
    """The server has ended."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
    rewrite(home, note="mine")
    with Store.open(home, background=False) as store:
        store.save(make_session("s2"))
    assert set(exported(home)["sessions"]) == {"s1", "s2"}


@contextmanager
def held_elsewhere(path: Path) -> Iterator[None]:
    """Another process holds an flock on the file, as a server does."""
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("name", LOCKS)
def test_writes_are_rejected_while_a_server_holds_a_lock(store: Store, name: str) -> None:
    """The error names the lock; after its release writes succeed."""
    with held_elsewhere(store.home / name):
        wait_until(lambda: store.maintenance.status()["bamboo"] is not None, timeout_s=20.0)
        with pytest.raises(BambooAtWork, match=f"it holds {name}"):
            store.save(make_session("s1"))
        before = os.stat(store.home / "sessions.json")
        store.maintenance.export_sessions_json()
        assert os.stat(store.home / "sessions.json").st_ino == before.st_ino
    wait_until(lambda: store.maintenance.status()["bamboo"] is None, timeout_s=20.0)
    store.save(make_session("s1"))


@pytest.mark.parametrize("name", LOCKS)
def test_lock_file_that_is_not_held_is_ignored(store: Store, name: str) -> None:
    """Servers do not delete their lock files."""
    (store.home / name).touch()
    store.save(make_session("s1"))


@pytest.mark.parametrize("name", LOCKS)
def test_beside_bamboo_ignores_the_locks_of_a_server(home: Path, name: str) -> None:
    """A save succeeds while they are held; an export waits for the index lock as a server does."""
    with Store.open(home, background=False, beside_bamboo=True) as store:
        with held_elsewhere(home / name):
            store.save(make_session("s1"))
        store.maintenance.export_sessions_json()
    assert set(exported(home)["sessions"]) == {"s1"}


WRITER = """
import sys
from store import Store
from tests.builders import make_session
home, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store.open(home, background=False, durability="normal") as store:
    for i in range(count):
        store.save(make_session(f"{name}-{i}", messages=1))
        store.maintenance.export_sessions_json()
"""


def test_concurrent_exports_do_not_look_like_a_server(home: Path) -> None:
    """Three GroveFS processes export at the same time."""
    count = 15
    with Store.open(home, background=False, durability="normal") as store:
        writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(home), n, str(count)]) for n in ("a", "b")]
        number = 0
        while any(writer.poll() is None for writer in writers):
            number += 1
            store.save(make_session(f"c-{number}", messages=1))
            store.maintenance.export_sessions_json()
        assert [writer.returncode for writer in writers] == [0, 0]
        assert store.check().is_clean
        assert store.count() == 2 * count + number
    assert len(exported(home)["sessions"]) == 2 * count + number


def test_own_export_lock_does_not_look_like_a_server(home: Path) -> None:
    """Even if the probe runs in the middle of an export."""
    with Store.open(home, background=False, durability="normal") as store:
        server, stop, seen = store._home.bamboo, threading.Event(), []

        def look() -> None:
            while not stop.is_set():
                seen.append(server.activity())

        thread = threading.Thread(target=look)
        thread.start()
        try:
            for _ in range(300):
                with server.index_lock():
                    pass
        finally:
            stop.set()
            thread.join()
    assert set(seen) == {None}


# -- crashes ---------------------------------------------------------------------------------------------------

CRASH = """
import os, sys
from store import Store
from tests.builders import make_session, read_json
home = sys.argv[1]

def crash(wanted):
    '''Export, and exit at the step of that number.'''
    steps = []
    def step(name):
        steps.append(name)
        if exporting and len(steps) > wanted:
            os._exit(9)
    exporting = False
    store = Store.open(home, background=False, step=step)
    store.save(make_session("s2"))
    steps.clear()
    exporting = True
    store.maintenance.export_sessions_json()
    os._exit(0)

ends = []
while not ends or ends[-1]:
    pid = os.fork()
    if not pid:
        crash(len(ends))
    ends.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    with Store.open(home, background=False) as store:
        assert not store._home.sessions_json.is_foreign()
        assert store.check().is_clean
        store.delete("s2")
        assert store.maintenance.status()["bamboo"] is None
    assert set(read_json(store.home / "sessions.json")["sessions"]) == {"s1"}
print(ends)
"""


def test_crash_during_an_export_does_not_look_like_a_foreign_write(home: Path) -> None:
    """At every step before, between and after recording the stamp and the rename."""
    with Store.open(home, background=False) as store:
        store.save(make_session("s1"))
    done = subprocess.run([sys.executable, "-c", CRASH, str(home)], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    ends = json.loads(done.stdout)
    assert ends == [9] * (len(ends) - 1) + [0]
    assert len(ends) > 3


def test_failed_export_keeps_the_old_file_and_is_retried(store: Store) -> None:
    """A full disk is an error for the caller; the next export works."""
    store.save(make_session("s1"))
    before = (store.home / "sessions.json").read_bytes()
    for failing in ("write-temp", "sync-temp", "move"):

        def step(name: str, failing: str = failing) -> None:
            if name == failing:
                raise OSError(28, "No space left on device")

        store._core.disk.step = step
        with pytest.raises(OSError, match="No space"):
            store.maintenance.export_sessions_json()
        store._core.disk.step = lambda name: None
        assert (store.home / "sessions.json").read_bytes() == before
        assert not store._home.sessions_json.is_foreign()
        assert not list((store.home / ".grovefs/tmp").iterdir())
    store.maintenance.export_sessions_json()
    assert set(exported(store.home)["sessions"]) == {"s1"}
