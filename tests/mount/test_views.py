"""transcripts/ and views/ on a real mount with common tools: sizes, links, freshness."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest

from store import Message, Session, Store
from store.model.message import ImageUrl, MessagePart
from tests.builders import make_session
from tests.mount.conftest import Mount, wait_until


def run(*command: str | Path, cwd: Path | None = None, input: str | None = None) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=cwd, input=input, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def name_of(text: str, directory: Path) -> str:
    """The only entry whose name starts with `text`."""
    found = [name for name in os.listdir(directory) if name.startswith(text)]
    assert len(found) == 1, (text, os.listdir(directory))
    return found[0]


def with_picture(store: Store, session_id: str) -> None:
    url = store.attach(session_id, b"\x89PNG not really", "image/png").url
    message = Message.user("look at this")
    message.content_parts = [MessagePart(type="image_url", image_url=ImageUrl(url=url))]
    store.append(session_id, [message])


# -- transcripts -----------------------------------------------------------------------------------------------


def test_transcript_sizes_match_wc(mounted: Mount) -> None:
    """stat before read reports the size that read returns."""
    top = mounted.path / "transcripts"
    with mounted.store() as store:
        with_picture(store, "root")
        with_picture(store, "root/child")
    wait_until(lambda: "look at this" in (top / "root/child.md").read_text())
    listed = run("find", top, "-type", "f", "-printf", "%s %P\n").splitlines()
    assert sorted(line.split()[1] for line in listed) == ["pinned.md", "root.md", "root/child.md", "root/grandchild.md"]
    for line in listed:
        size, name = line.split()
        assert run("wc", "-c", top / name).split()[0] == size
        assert run("cat", top / name) == (top / name).read_bytes().decode()


def test_transcript_equals_the_api(mounted: Mount) -> None:
    with mounted.store() as store:
        assert (mounted.path / "transcripts/root.md").read_text() == store.transcript("root")
        assert (mounted.path / "transcripts/root/child.md").read_text() == store.transcript("child")


def test_links_to_attachments_resolve(mounted: Mount) -> None:
    """Both in the transcript of a root and of a child, which is one directory deeper."""
    with mounted.store() as store:
        with_picture(store, "root")
        with_picture(store, "root/child")
    for name in ("root.md", "root/child.md"):
        page = mounted.path / "transcripts" / name
        wait_until(lambda page=page: "](" in page.read_text())  # type: ignore[misc]
        links = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text())
        assert [(page.parent / unquote(link)).read_bytes() for link in links] == [b"\x89PNG not really"]


def test_grep_finds_lines_in_transcripts(mounted: Mount) -> None:
    found = run("grep", "-rn", "from the child", "transcripts", cwd=mounted.path)
    assert re.fullmatch(r"transcripts/root/child\.md:\d+:from the child\n", found)


def test_edit_through_the_mount_updates_views(mounted: Mount) -> None:
    """Size and text of the transcript, and the name in the views."""
    page = mounted.path / "transcripts/root.md"
    before = page.read_text()
    run("sed", "-i", 's/"The root"/"Quite another title"/', mounted.sessions / "root/session.json")
    wait_until(lambda: page.read_text().startswith("# Quite another title\n"))
    assert page.stat().st_size == len(page.read_bytes()) != len(before)
    titles = mounted.path / "views/by-title"
    wait_until(lambda: "Quite-another-title~root" in os.listdir(titles))
    assert (titles / "Quite-another-title~root").resolve() == (mounted.sessions / "root").resolve()
    wait_until(lambda: not os.path.lexists(titles / "The-root~root"))


def test_api_commits_update_views(mounted: Mount) -> None:
    page = mounted.path / "transcripts/root.md"
    page.read_bytes()
    with mounted.store() as store:
        store.append("root", [Message.user("said elsewhere")])
        wait_until(lambda: page.read_text().endswith("said elsewhere\n"))
        assert page.stat().st_size == len(page.read_bytes())
        store.save(make_session("fresh", title="Fresh"))
        wait_until(lambda: "fresh.md" in os.listdir(mounted.path / "transcripts"))
        wait_until(lambda: "Fresh~fresh" in os.listdir(mounted.path / "views/by-title"))
        store.delete("fresh")
        wait_until(lambda: "fresh.md" not in os.listdir(mounted.path / "transcripts"))
        wait_until(lambda: not os.path.lexists(mounted.path / "views/by-title/Fresh~fresh"))
        wait_until(lambda: not (mounted.path / "transcripts/fresh.md").exists())


def test_open_transcript_keeps_its_version(mounted: Mount) -> None:
    """Rule 4: a reader gets one version from open to close."""
    page = mounted.path / "transcripts/root.md"
    with page.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(10)
        run("sed", "-i", 's/"The root"/"Quite another, longer title"/', mounted.sessions / "root/session.json")
        text = head + file.read()
    assert len(text) == size
    assert text.startswith(b"# The root\n")
    wait_until(lambda: page.read_bytes().startswith(b"# Quite another"))


def test_transcript_is_consistent_while_an_agent_writes(mounted: Mount) -> None:
    """Every reader gets a complete transcript, without errors."""
    page = mounted.path / "transcripts/root.md"
    stop = threading.Event()

    def append() -> None:
        with mounted.store() as store:
            while not stop.is_set():
                store.append("root", [Message.user("and on it goes")])
                session = store.load_runtime("root")
                assert session is not None
                session.title = f"{len(session.title)}, and counting"
                store.save_runtime(session)

    writer = threading.Thread(target=append)
    writer.start()
    try:
        for _ in range(40):
            text = run("cat", page)
            count = int(re.search(r"^- messages: (\d+)$", text, re.MULTILINE)[1])  # type: ignore[index]
            assert text.count("\n## [") == count
            assert text.endswith("\n")
    finally:
        stop.set()
        writer.join()


# -- read-only -----------------------------------------------------------------------------------


def test_views_are_read_only(mounted: Mount) -> None:
    """EROFS, also for root."""
    link = mounted.path / "views/by-title" / name_of("The-root", mounted.path / "views/by-title")
    page = mounted.path / "transcripts/root.md"
    attempts: list[Callable[[], object]] = [
        lambda: page.write_text("x"),
        lambda: page.open("a").close(),
        lambda: os.truncate(page, 0),
        page.unlink,
        link.unlink,
        lambda: (mounted.path / "transcripts/new.md").write_text("x"),
        lambda: (mounted.path / "views/by-title/new").symlink_to("x"),
        lambda: (mounted.path / "views/projects/new").mkdir(),
        lambda: (mounted.path / "views/pinned").rmdir(),
        lambda: page.rename(mounted.path / "transcripts/other.md"),
        lambda: link.rename(mounted.path / "views/by-title/other"),
        lambda: link.rename(mounted.path / "views/pinned" / link.name),
        lambda: page.chmod(0o777),
        lambda: os.utime(page, (1, 1)),
    ]
    before = page.read_bytes()
    for attempt in attempts:
        with pytest.raises(OSError, match="Read-only file system") as refused:
            attempt()
        assert refused.value.errno == errno.EROFS
    assert page.read_bytes() == before
    assert os.path.lexists(link)


# -- the other views -------------------------------------------------------------------------------------------


def test_every_link_resolves_to_its_session(mounted: Mount) -> None:
    """`find -L` follows them all, and no link is broken."""
    views = mounted.path / "views"
    assert run("find", "-L", views, "-type", "l") == ""
    links = run("find", views, "-type", "l", "-printf", "%P\n").splitlines()
    for link in links:
        assert (views / link / "session.json").is_file()
    tops = [link.split("/")[0] for link in links]
    assert {top: tops.count(top) for top in set(tops)} == {
        **dict.fromkeys(["by-title", "by-date", "by-status", "by-model", "projects"], 4),
        "pinned": 1,
        "children-of": 2,
    }


def test_mv_between_projects_changes_the_project(mounted: Mount) -> None:
    projects = mounted.path / "views/projects"
    with mounted.store() as store:
        store.move_to_project("pinned", "shop")
    wait_until(lambda: "shop" in os.listdir(projects))
    # Writable only here: the kernel checks the mode before it sends a request, unless the caller has capabilities.
    writable = run("find", mounted.path / "views", mounted.path / "transcripts", "-type", "d", "-perm", "/222")
    assert sorted(writable.split()) == [f"{projects}/none", f"{projects}/shop"]
    name = name_of("The-root", projects / "none")
    run("setpriv", "--bounding-set=-all", "--inh-caps=-all", "mv", projects / "none" / name, projects / "shop")
    assert name in os.listdir(projects / "shop")
    assert name not in os.listdir(projects / "none")
    with mounted.store() as store:
        session = store.load("root")
        assert session is not None
        assert session.project_id == "shop"
        assert [entry.id for entry in store.entries(project="shop", order="created", descending=False)] == [
            "root",
            "pinned",
        ]
    assert '"project_id": "shop"' in (mounted.sessions / "root/session.json").read_text()
    run("mv", projects / "shop" / name, projects / "none/")
    assert '"project_id"' not in (mounted.sessions / "root/session.json").read_text()
    with pytest.raises(OSError, match="Read-only file system"):
        (projects / "none" / name).rename(projects / "shop/another-name")


def test_status_moves_a_session_to_another_directory(mounted: Mount) -> None:
    by_status = mounted.path / "views/by-status"
    assert os.listdir(by_status) == ["none"]
    with mounted.store() as store:
        store.update("root", lambda session: setattr(session, "last_run_status", "failed"))
    wait_until(lambda: sorted(os.listdir(by_status)) == ["failed", "none"])
    assert os.listdir(by_status / "failed") == ["The-root~root"]
    wait_until(lambda: "The-root~root" not in os.listdir(by_status / "none"))


def test_tar_and_rsync_of_the_whole_mount_terminate(mounted: Mount, place: Path) -> None:
    """No recursion and no endless file; links in the copy resolve within the copy."""
    with mounted.store() as store:
        with_picture(store, "root")
    run("tar", "-C", mounted.path, "-cf", place / "all.tar", ".")
    assert "./views/by-title/The-root~root" in run("tar", "-tf", place / "all.tar")
    run("rsync", "-a", f"{mounted.path}/", f"{place}/copy/")
    copy = place / "copy"
    page = copy / "transcripts/root.md"
    links = re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text())
    assert (page.parent / links[0]).read_bytes() == b"\x89PNG not really"
    assert (copy / "views/by-title/The-root~root/session.json").is_file()
    changed = run("rsync", "-ai", "--modify-window=-1", "--exclude", ".grovefs", f"{mounted.path}/", f"{copy}/")
    assert not [line for line in changed.splitlines() if line.startswith((">f", "cL"))], changed


def test_two_thousand_sessions_are_listed(place: Path, mount_home: Callable[..., Mount]) -> None:
    home = place / "many"
    with Store.open(home, background=False, durability="normal") as store:
        root = Session.new("r", "m")
        store.save(root)
        for i in range(2_000):
            store.save(make_session(f"s{i:04}", title=f"Number {i}", messages=1))
    mount = mount_home(home)
    assert len(os.listdir(mount.path / "views/by-title")) == 2_001
    assert len(os.listdir(mount.path / "transcripts")) == 2_001
    sizes = run("find", mount.path / "transcripts", "-name", "*.md", "-printf", "%s\n").split()
    counted = run("sh", "-c", f"cat {mount.path}/transcripts/*.md | wc -c")
    assert sum(map(int, sizes)) == int(counted)
    assert run("ls", "-l", mount.path / "views/by-title").count(" -> ../../sessions/") == 2_001
