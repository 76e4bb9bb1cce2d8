"""Kernel caching and invalidation, tested by counting requests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fusefs.fast import PROBED_NAMES
from store import Message
from tests.builders import make_session
from tests.mount.conftest import Mount, wait_until
from tests.mount.test_basics import edit, title

MountHome = Callable[..., Mount]

SOON_S = 20.0  # a second on an idle machine; the point is that no second request is needed


def requests(mount: Mount) -> Counter[str]:
    return Counter(json.loads((mount.path / ".grovefs/stats.json").read_bytes())["requests"])


def counted(mount: Mount, work: Callable[[], object]) -> Counter[str]:
    """The requests caused by `work`, without those for reading the counters."""
    requests(mount)
    before = requests(mount)
    own = requests(mount) - before
    before = requests(mount)
    work()
    spent = requests(mount) - before - own
    del spent["forget"]  # sent by the kernel on its own
    return spent


def run(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


# -- requests the kernel answers from its cache ----------------------------------------------------------------


def test_warm_listing_requests_nothing(mounted: Mount) -> None:
    """Reading a directory invalidates its access time in the kernel, so the second listing asks for that."""
    first = run("ls", "-lR", mounted.sessions)
    assert set(counted(mounted, lambda: run("ls", "-lR", mounted.sessions))) <= {"getattr"}
    assert not counted(mounted, lambda: run("ls", "-lR", mounted.sessions))
    assert run("ls", "-lR", mounted.sessions) == first


def test_without_the_extension_a_warm_listing_requests_only_directories(
    filled: Path, mount_home: MountHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each directory is opened, read and closed; no names or attributes are requested.

    Except for the one on the command line: reading a directory invalidates its access time in the kernel.
    """
    monkeypatch.setenv("GROVEFS_WITHOUT", "fast")
    mounted = mount_home(filled)
    first = run("ls", "-lR", mounted.sessions)
    again = counted(mounted, lambda: run("ls", "-lR", mounted.sessions))
    assert again.pop("getattr", 0) <= 1
    assert set(again) <= {"opendir", "readdir", "releasedir"}, again
    assert again["opendir"] == first.count(":\n")
    assert again["readdir"] <= 2 * again["opendir"]


def test_warm_read_requests_one_open(mounted: Mount) -> None:
    """Python answers the first open of a process. Others are answered in C, and the kernel has the pages."""
    files = [mounted.sessions / "root/session.json", mounted.sessions / "root/runtime.json"]
    first = run("cat", *files)
    run("cat", *files)
    assert counted(mounted, lambda: run("cat", *files)) == {"open": 1, "flush": 1, "release": 1}
    assert run("cat", *files) == first


def test_first_read_of_listed_files_requests_one_open(mounted: Mount) -> None:
    """A listing lets the extension open the versions in it, so grep after a mount is answered in C."""
    files = [path for path in mounted.sessions.rglob("*.json") if path.name in ("session.json", "runtime.json")]
    assert len(files) > 3
    spent = counted(mounted, lambda: run("cat", *files))
    assert {name: spent[name] for name in ("open", "flush", "release")} == {"open": 1, "flush": 1, "release": 1}
    assert spent["read"] <= 2


def test_a_listing_is_read_with_one_request(mounted: Mount) -> None:
    """The extension answers that nothing follows its last name."""
    run("ls", mounted.sessions / "root")
    (mounted.sessions / "root/note.txt").write_text("a change")
    assert counted(mounted, lambda: run("ls", mounted.sessions / "root"))["readdir"] == 1
    assert "note.txt" in run("ls", mounted.sessions / "root").split()


def test_without_the_extension_a_warm_read_requests_no_data(
    filled: Path, mount_home: MountHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is opened and closed; after the second access its access time is cached too."""
    monkeypatch.setenv("GROVEFS_WITHOUT", "fast")
    mounted = mount_home(filled)
    files = [mounted.sessions / "root/session.json", mounted.sessions / "root/runtime.json"]
    run("cat", *files)
    assert not counted(mounted, lambda: run("cat", *files))["read"]
    assert counted(mounted, lambda: run("cat", *files)) == Counter(open=2, flush=2, release=2)


def test_second_stat_requests_nothing(mounted: Mount) -> None:
    path = mounted.sessions / "root/children/child/session.json"
    path.stat()
    assert not counted(mounted, path.stat)


@pytest.mark.parametrize("below", ["", "root", "root/children", "root/attachments"])
def test_missing_name_is_looked_up_once(mounted: Mount, below: str) -> None:
    """git, vim, rg and shells look up many missing names. A name that is created is visible at once."""
    path = mounted.sessions / below / ".ignore"
    path.parent.mkdir(exist_ok=True)
    assert not path.exists()
    assert not counted(mounted, path.exists)
    path.write_text("*.log")
    assert path.read_text() == "*.log"
    path.unlink()
    assert not path.exists()
    temporary = path.with_name("temporary")
    temporary.write_text("*.tmp")
    temporary.rename(path)
    assert path.read_text() == "*.tmp"
    path.unlink()
    assert not path.exists()


def test_rg_asks_for_ignore_files_once(mounted: Mount) -> None:
    """It looks for three names in every directory. Only those above sessions/ are asked for each time."""
    with mounted.store() as store:
        for number in range(5):
            store.save(make_session(f"s{number}"))
            store.attach(f"s{number}", b"text", "text/plain")
    wait_until((mounted.sessions / "s4/attachments").exists, SOON_S)
    search = ["rg", "--hidden", "nothing like this", str(mounted.sessions)]
    for _ in range(2):
        subprocess.run(search, capture_output=True)
    wait_until(lambda: counted(mounted, lambda: subprocess.run(search, capture_output=True))["lookup"] <= 6, SOON_S)


def is_missing(path: Path) -> bool:
    return not path.exists()


def test_ignore_files_are_looked_up_in_c(mounted: Mount) -> None:
    """rg looks for four names in every directory, so Python must not be asked for each of them.

    It is asked once where the directory was known before, and not at all in directories that are listed afterwards.
    """
    assert not (mounted.sessions / "root/.ignore").exists()
    run("ls", "-R", mounted.sessions)
    probed = [mounted.sessions / "root" / below / name for below in ("", "children/child") for name in PROBED_NAMES]
    assert not counted(mounted, lambda: [path.exists() for path in probed])["lookup"]
    assert not any(path.exists() for path in probed)


def test_ignore_files_exist_as_soon_as_they_are_created(mounted: Mount) -> None:
    """The kernel has cached that there is none, and caches it again after each removal."""
    for directory in (mounted.sessions, mounted.sessions / "root", mounted.sessions / "root/children"):
        file, on_disk = directory / ".gitignore", mounted.home / "sessions" / directory.relative_to(mounted.sessions)
        for _ in range(3):
            assert not file.exists()
            file.write_text("here")
            assert file.exists()
            file.unlink()
            assert not file.exists()
            (on_disk / ".gitignore").write_text("elsewhere")
            wait_until(file.exists, SOON_S)
            (on_disk / ".gitignore").unlink()
            wait_until(partial(is_missing, file), SOON_S)


def test_ignore_files_are_looked_up_where_a_session_is_now(mounted: Mount) -> None:
    assert not (mounted.sessions / "root/.ignore").exists()
    (mounted.sessions / "root/.rgignore").write_text("moves")
    (mounted.sessions / "root").rename(mounted.sessions / "moved")
    assert (mounted.sessions / "moved/.rgignore").read_text() == "moves"
    assert not (mounted.sessions / "moved/.ignore").exists()
    (mounted.home / "sessions/moved/.ignore").write_text("elsewhere")
    wait_until((mounted.sessions / "moved/.ignore").exists, SOON_S)


def test_missing_name_created_elsewhere_appears(mounted: Mount) -> None:
    names = ["notes.txt", "session.json.bak", "deeper", "attachments/.ignore"]
    (mounted.sessions / "root/attachments").mkdir(exist_ok=True)
    assert not any((mounted.sessions / "root" / name).exists() for name in names)
    (mounted.home / "sessions/root/notes.txt").write_text("by hand")
    (mounted.home / "sessions/root/session.json.bak").write_text("by hand")
    (mounted.home / "sessions/root/attachments/.ignore").write_text("by hand")
    (mounted.home / "sessions/root/deeper").mkdir()
    for name in names:
        wait_until((mounted.sessions / "root" / name).exists, SOON_S)


def test_switches_disable_the_caches(filled: Path, mount_home: MountHome, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a cache off, the same work causes requests; this allows measuring each cache."""
    monkeypatch.setenv("GROVEFS_WITHOUT", "fast,timeouts,listings,pages,loop")
    mount = mount_home(filled)
    path = mount.sessions / "root/session.json"
    path.read_bytes()
    assert counted(mount, path.stat)["lookup"]
    assert counted(mount, path.read_bytes)["read"]
    assert title(path) == "The root"


# -- no stale data ---------------------------------------------------------------------------------------------


def test_no_stale_data_after_a_commit_through_the_mount(mounted: Mount) -> None:
    """Size, content and mtime of document and sidecar are current when close or rename returns."""
    path, side = mounted.sessions / "root/session.json", mounted.sessions / "root/runtime.json"
    for number in range(100):
        before = path.read_text(), path.stat(), side.read_text(), side.stat()
        text = before[0].replace(title(path), "x" * (number % 7 + 1) + str(number))
        if number % 2:
            path.write_text(text)
        else:
            (path.parent / "t").write_text(text)
            (path.parent / "t").rename(path)
        assert path.read_text() == text
        assert path.stat().st_size == len(text.encode())
        assert path.stat().st_mtime_ns > before[1].st_mtime_ns
        assert title(side) == json.loads(text)["title"]
        assert json.loads(run("cat", side))["title"] == json.loads(text)["title"]


def test_api_commits_are_read_at_once(mounted: Mount) -> None:
    """Opening a document checks its version on disk, so reads are never stale; only stat may be."""
    path = mounted.sessions / "root/session.json"
    with mounted.store() as store:
        for number in range(30):
            path.read_bytes()
            store.append("root", [Message.user(f"message {number}")])
            assert f"message {number}" in path.read_text()


def test_api_changes_are_visible_to_ls(mounted: Mount) -> None:
    path = mounted.sessions / "root/session.json"
    before = path.stat()
    with mounted.store() as store:
        store.append("root", [Message.user("from outside")])
        store.save(make_session("brand-new"))
        store.attach("root", b"more", "text/plain")
    size = (mounted.home / "sessions/root/session.json").stat().st_size
    wait_until(lambda: path.stat().st_size == size, SOON_S)
    assert path.stat().st_mtime_ns > before.st_mtime_ns
    wait_until(lambda: "brand-new" in os.listdir(mounted.sessions), SOON_S)
    wait_until(lambda: len(os.listdir(mounted.sessions / "root/attachments")) == 2, SOON_S)
    with mounted.store() as store:
        store.delete("brand-new")
    wait_until(lambda: "brand-new" not in os.listdir(mounted.sessions), SOON_S)
    wait_until(lambda: not (mounted.sessions / "brand-new").exists(), SOON_S)


def test_direct_edit_of_the_home_is_visible_and_indexed(mounted: Mount) -> None:
    """Visible to cat, ls -l and the index, in a session that was only read through the mount."""
    path, raw = mounted.sessions / "root/session.json", mounted.home / "sessions/root/session.json"
    side = mounted.home / "sessions/root/runtime.json"
    assert title(path) == "The root"
    for file in (raw, side):
        file.write_text(file.read_text().replace("The root", "Behind the back"))
    wait_until(lambda: title(path) == "Behind the back", SOON_S)
    wait_until(lambda: path.stat().st_size == raw.stat().st_size, SOON_S)
    listed = mounted.path / "sessions.json"
    wait_until(lambda: json.loads(listed.read_bytes())["sessions"]["root"]["title"] == "Behind the back", SOON_S)


def test_two_mounts_of_one_home_see_each_other(filled: Path, mount_home: MountHome) -> None:
    one, other = mount_home(filled), mount_home(filled)
    path = other.sessions / "root/session.json"
    assert title(path) == "The root"
    run("ls", "-lR", other.sessions)
    edit(one.sessions / "root/session.json", "The root", "By the other mount")
    assert title(path) == "By the other mount"
    wait_until(lambda: path.stat().st_size == (one.sessions / "root/session.json").stat().st_size, SOON_S)
    with pytest.raises(OSError, match="Bad message"):
        edit(one.sessions / "root/session.json", '"By the other mount"', "5")
    wait_until(lambda: "session.json.error" in os.listdir(other.sessions / "root"), SOON_S)
    assert "expected a string, got a number" in (other.sessions / "root/session.json.error").read_text()


def test_tail_follows_api_appends(mounted: Mount, place: Path) -> None:
    """`tail -F` polls on FUSE filesystems and finds the new size."""
    log = mounted.sessions / "root/token-usage.jsonl"
    with mounted.store() as store:
        store.usage.append("root", {"n": 0})
    wait_until(log.exists, SOON_S)
    with (place / "seen").open("w") as seen:
        tail = subprocess.Popen(["tail", "-n", "+1", "-F", "-s", "0.1", log], stdout=seen, stderr=subprocess.DEVNULL)
        try:
            with mounted.store() as store:
                for number in range(1, 6):
                    store.usage.append("root", {"n": number})
                    time.sleep(0.15)
            wait_until(lambda: (place / "seen").read_text().count("\n") == 6, SOON_S)
        finally:
            tail.kill()
            tail.wait()


def test_renamed_session_shows_its_new_content(mounted: Mount) -> None:
    """All its files were cached by the kernel, and every document has another root id now."""
    run("sh", "-c", f"cat {mounted.sessions}/root/session.json {mounted.sessions}/root/children/*/*.json")
    (mounted.sessions / "root").rename(mounted.sessions / "moved")
    data = json.loads((mounted.sessions / "moved/children/child/session.json").read_bytes())
    assert data["root_session_id"] == "moved"
    size = (mounted.home / "sessions/moved/children/child/session.json").stat().st_size
    wait_until(lambda: (mounted.sessions / "moved/children/child/session.json").stat().st_size == size, SOON_S)
    assert not (mounted.sessions / "root").exists()


def test_event_queue_overflow_is_handled(mounted: Mount) -> None:
    """When the inotify queue overflows, everything is checked again."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    run("ls", "-lR", mounted.sessions)
    raw = mounted.home / "sessions/root"
    program = f"""
import os
for i in range({limit // 2 + 5000}):
    open({str(raw)!r} + f"/f{{i % 50}}", "w").close()
    os.utime({str(raw)!r} + f"/f{{i % 50}}")
open({str(raw)!r} + "/last", "w").close()
"""
    daemon_is_busy = subprocess.Popen([sys.executable, "-c", program])
    assert daemon_is_busy.wait(120) == 0
    wait_until(lambda: len(os.listdir(mounted.sessions / "root")) == len(os.listdir(raw)), SOON_S)
    for name in os.listdir(raw):
        if name.startswith("f") or name == "last":
            (raw / name).unlink()
    wait_until(lambda: len(os.listdir(mounted.sessions / "root")) == len(os.listdir(raw)), SOON_S)


# -- the request loop ------------------------------------------------------------------------------------------


def test_slow_handler_does_not_delay_others(mounted: Mount) -> None:
    """While another process holds a session's lock, a save waits, and other requests are served."""
    with mounted.store() as store, store.names.core.locked(store.location("root")):  # type: ignore[arg-type]
        text = (mounted.sessions / "root/session.json").read_text().replace("The root", "Waited")
        writer = subprocess.Popen(
            ["sh", "-c", 'cat > "$0"', mounted.sessions / "root/session.json"], stdin=subprocess.PIPE, text=True
        )
        assert writer.stdin is not None
        writer.stdin.write(text)
        writer.stdin.close()
        for _ in range(3):
            assert title(mounted.sessions / "pinned/session.json") == "Pinned"
            run("ls", "-lR", mounted.sessions)
        assert writer.poll() is None
    assert writer.wait(30) == 0
    assert title(mounted.sessions / "root/session.json") == "Waited"


def test_timers_run_under_full_load(filled: Path, mount_home: MountHome) -> None:
    """Hidden names expire by a timer even under continuous requests."""
    mount = mount_home(filled, "--limbo-seconds", "0.5")
    program = f"import os\nwhile True: os.path.exists({str(mount.sessions / 'root/session.json.error')!r})"
    loads = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    try:
        before = requests(mount)["lookup"]
        wait_until(lambda: requests(mount)["lookup"] > before + 100, SOON_S)
        (mount.sessions / "root/session.json").unlink()
        wait_until(lambda: not (mount.home / "sessions/root/session.json").exists(), SOON_S)
    finally:
        for load in loads:
            load.kill()
            load.wait()
