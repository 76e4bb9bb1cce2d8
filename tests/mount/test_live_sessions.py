"""People edit a session through the mount while its agent appends messages by the API."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from store import Message
from tests.mount.conftest import Mount, wait_until
from tests.mount.terminals import terminal

FILES = {"attachments", "children", "runtime.json", "session.json"}


@dataclass
class Agent:
    """Appends messages to a session, one after another, in a thread of its own."""

    mount: Mount
    session_id: str
    every_s: float
    said: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with self.mount.store() as store:
            while not self.stop.wait(self.every_s):
                text = f"answer {len(self.said)}"
                store.append(self.session_id, [Message.assistant(text)])
                self.said.append(text)

    def wait_for_answers(self, count: int) -> None:
        """Wait until the agent has appended this many more messages."""
        wanted = len(self.said) + count
        wait_until(lambda: len(self.said) >= wanted, timeout_s=60)


@contextmanager
def working_agent(mount: Mount, session_id: str, every_s: float) -> Iterator[Agent]:
    agent = Agent(mount, session_id, every_s)
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        yield agent
    finally:
        agent.stop.set()
        thread.join()


def contents(path: Path) -> list[str]:
    return [message["content"] for message in json.loads(path.read_bytes())["messages"]]


@pytest.fixture
def session(mounted: Mount) -> Path:
    """The document of a session that an agent works on."""
    return mounted.sessions / "root/session.json"


@pytest.mark.parametrize("options", ["", '--cmd "set backupcopy=yes"'])
def test_vim_does_not_undo_a_title_that_an_agent_changed_in_the_sidecar(
    mounted: Mount, place: Path, options: str
) -> None:
    """session.json stays the same, so vim does not ask; with backupcopy=yes it reads it again before it writes."""
    session = mounted.sessions / "root"
    with (
        mounted.store() as store,
        terminal(f"vim -N -u NONE -i NONE -n {options} session.json", session, place) as vim,
    ):
        vim.wait_for('"The root"')
        agent = store.load_runtime("root")
        assert agent is not None
        agent.title = "By the agent"
        store.save_runtime(agent)
        vim.type(':%s/"title": "[^"]*"/"title": "By vim"/', "Enter", ":w", "Enter")
        assert vim.wait_for("E949", "E512", "E667", "written") != "written", vim.screen()
        assert title_of(mounted) == "By the agent"
        reason = (session / "session.json.error").read_text()
        assert "also in runtime.json: title: changed by both sides" in reason
        assert all(title in reason for title in ("The root", "By the agent", "By vim"))
        vim.type("Enter", ":e!", "Enter", ':%s/"title": "[^"]*"/"title": "After all"/', "Enter", ":w", "Enter")
        vim.wait_for("written")
        wait_until(lambda: title_of(mounted) == "After all")
        vim.type(":q!", "Enter")


@pytest.mark.parametrize("options", ["", "--cmd 'set backupcopy=yes'", "--cmd 'set nowritebackup'"])
def test_vim_does_not_take_a_new_version_for_another_file(
    mounted: Mount, session: Path, place: Path, options: str
) -> None:
    """Vim compares the inode numbers of stat and open: a version committed between must not change them."""
    with (
        working_agent(mounted, "root", 0.2) as agent,
        terminal(f"vim -N -u NONE -i NONE {options} session.json", session.parent, place) as vim,
    ):
        vim.wait_for('"The root"')
        for number in range(3):
            agent.wait_for_answers(2)
            vim.type(f':%s/"title": "[^"]*"/"title": "By vim {number}"/', "Enter", ":w", "Enter")
            vim.wait_for("(y/n)?")
            agent.wait_for_answers(2)
            vim.type("y")
            assert vim.wait_for("E949", "E512", "E667", "written") == "written", vim.screen()
            wait_until(lambda title=f"By vim {number}": title_of(mounted) == title)  # type: ignore[misc]
            vim.type("Enter")
        vim.type(":q!", "Enter")
    assert title_of(mounted) == "By vim 2"
    assert contents(session) == ["msg-0", "msg-1", "msg-2", *agent.said]
    assert set(os.listdir(session.parent)) == FILES


# -- inode numbers ---------------------------------------------------------------------------------


def append(mount: Mount, text: str) -> None:
    """An agent appends a message, and the mount has noticed."""
    path = mount.sessions / "root/session.json"
    with mount.store() as store:
        store.append("root", [Message.user(text)])
    wait_until(lambda: contents(path)[-1] == text, timeout_s=60)


def identity(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_ino, info.st_ctime_ns


def test_versions_show_one_number_and_different_times(mounted: Mount, session: Path) -> None:
    """By stat, fstat and readdir, whoever replaced the document and in whatever way."""
    number, ctime_ns = identity(session)

    def check() -> None:
        nonlocal ctime_ns
        was, (now, ctime_ns) = ctime_ns, identity(session)
        listed = {entry.name: entry.inode() for entry in os.scandir(session.parent)}
        with session.open() as reader, session.open("r+") as writer:
            shown = [now, listed["session.json"], os.fstat(reader.fileno()).st_ino, os.fstat(writer.fileno()).st_ino]
        assert shown == [number] * 4
        assert ctime_ns > was
        assert len(set(listed.values())) == len(listed), "two files with one number"

    append(mounted, "by the API")
    check()
    session.write_text(session.read_text().replace("by the API", "in place"))
    check()
    temporary = session.with_name("temporary")
    temporary.write_text(session.read_text().replace("in place", "by rename"))
    temporary.rename(session)
    check()
    text = session.read_text()
    session.rename(session.with_name("kept"))
    session.write_text(text.replace("by rename", "after a rename away"))
    check()
    assert not os.path.samefile(session, session.with_name("kept"))
    session.unlink()
    session.write_text(text.replace("by rename", "after an unlink"))
    check()
    session.with_name("kept").unlink()


def test_tail_follows_the_name_of_a_document(mounted: Mount, session: Path, place: Path) -> None:
    """`tail -F` notices every new version, also while others are shown an unchanged number."""
    output = place / "output"
    number = session.stat().st_ino
    with (
        output.open("wb") as out,
        subprocess.Popen(
            ["tail", "-n", "+1", "-s", "0.1", "--max-unchanged-stats=1", "-F", session], stdout=out, stderr=out
        ) as tail,
    ):
        try:
            wait_until(lambda: "msg-2" in output.read_text(), timeout_s=60)
            for text in ("first answer", "second answer", "third answer"):
                append(mounted, text)
                assert session.stat().st_ino == number
                wait_until(lambda text=text: text in output.read_text(), timeout_s=60)  # type: ignore[misc]
            assert output.read_text().count("third answer") == 1, "one version was taken for two"
        finally:
            tail.terminate()


def test_cmp_compares_versions_of_equal_size_and_time(session: Path) -> None:
    """cmp compares no bytes of files with the same number, size and times: their ctime differs."""
    with session.open() as older:
        text, info = session.read_text(), os.fstat(older.fileno())
        temporary = session.with_name("temporary")
        temporary.write_text(text.replace("msg-2", "MSG-2"))
        os.utime(temporary, ns=(info.st_atime_ns, info.st_mtime_ns))
        temporary.rename(session)
        shown = subprocess.run(["stat", "-c", "%i %s", session], capture_output=True, text=True).stdout
        assert shown == f"{info.st_ino} {info.st_size}\n"
        assert session.stat().st_mtime_ns == info.st_mtime_ns
        assert subprocess.run(["cmp", "-s", "-", session], stdin=older).returncode == 1


def test_git_status_sees_each_version(mounted: Mount, session: Path, place: Path) -> None:
    """Its index compares stat results, the number and ctime among them."""
    git = f"git --git-dir={shlex.quote(str(place / 'repository'))} --work-tree=."
    commit = f"{git} -c user.name=n -c user.email=e commit -qam version"

    def run(script: str) -> str:
        return subprocess.run(
            ["bash", "-ec", script], cwd=session.parent, check=True, capture_output=True
        ).stdout.decode()

    run(f"{git} init -q; {git} add session.json; {commit}")
    assert not run(f"{git} status --porcelain -uno")
    for number in range(5):
        append(mounted, f"answer {number}")
        assert run(f"{git} status --porcelain -uno") == " M session.json\n"
        run(commit)
        assert not run(f"{git} status --porcelain -uno")


# -- hidden names ----------------------------------------------------------------------------------


def output_of(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_document_renamed_away_is_hidden_from_its_process_only(mounted: Mount, session: Path) -> None:
    """vim and Emacs save this way. All others see the version on disk, the agent's new ones too."""
    before = session.read_text()
    session.rename(session.with_name("kept"))
    assert not session.exists()
    assert "session.json" not in os.listdir(session.parent)
    assert output_of("cat", session) == before
    assert "session.json\n" in output_of("ls", session.parent)
    with mounted.store() as store:
        store.append("root", [Message.user("meanwhile")])
    wait_until(lambda: "meanwhile" in output_of("cat", session), timeout_s=60)
    assert not session.exists(), "its process has not seen that version"
    os.close(os.open(session, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    session.with_name("kept").unlink()
    wait_until(lambda: session.exists() and "meanwhile" in session.read_text(), timeout_s=60)


def test_unlinked_document_is_hidden_from_everybody(session: Path) -> None:
    """`rm F; cp backup F` is two processes."""
    text = session.read_text()
    session.unlink()
    assert subprocess.run(["test", "-e", session]).returncode == 1
    assert "session.json\n" not in output_of("ls", session.parent)
    session.write_text(text)
    assert output_of("cat", session) == text


def test_a10_readers_never_miss_a_document_that_is_saved_by_rename_away(session: Path, place: Path) -> None:
    """A reader finds one version or another in every moment of a hundred saves."""
    script = (
        "import os, sys\npath, stop = sys.argv[1:]\nreads = 0\n"
        "while not os.path.exists(stop) or reads < 100:\n    open(path).read(); os.stat(path); reads += 1\n"
        "    assert 'session.json' in os.listdir(os.path.dirname(path))\nprint(reads)"
    )
    readers = [
        subprocess.Popen([sys.executable, "-c", script, session, place / "stop"], stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    text, backup = session.read_text(), session.with_name("session.json~")
    for number in range(100):
        session.rename(backup)
        session.write_text(text.replace("msg-2", f"saved {number}"))
        backup.unlink()
    (place / "stop").touch()
    for reader in readers:
        _, errors = reader.communicate(timeout=60)
        assert reader.returncode == 0, errors
    assert "saved 99" in session.read_text()


def test_reader_of_a_version_renamed_away_sees_that_version_alone(mounted: Mount, session: Path) -> None:
    """vim makes a backup of the newest version, and reads it. A reader of an older one still gets that to its end."""
    backup = session.with_name("session.json~")
    with mounted.store() as store:
        for number in range(10):  # the mount may notice the append before the rename
            text = session.read_bytes()
            with session.open("rb", buffering=0) as reader:
                os.stat(session)
                store.append("root", [Message.user(f"meanwhile {number}" + "." * 9000)])
                session.rename(backup)
                assert len(backup.read_bytes()) == backup.stat().st_size
                assert read_to_the_end(reader.fileno()) == text
                assert os.fstat(reader.fileno()).st_size == len(text)
            assert backup.read_bytes() == (mounted.home / "sessions/root/session.json").read_bytes()
            backup.rename(session)
    assert len(contents(session)) == 13


def read_to_the_end(fd: int) -> bytes:
    return b"".join(iter(lambda: os.read(fd, 4096), b""))


# -- merged saves ----------------------------------------------------------------------------------


def test_two_loops_of_sed_lose_nothing(session: Path) -> None:
    """Each of two loops adds 40 keys of its own: all exit 0, and all keys are there."""
    script = 'for n in $(seq 40); do sed -i "s/^  \\"title\\":/  \\"$WHO-$n\\": 1,\\n&/" session.json || exit 1; done'
    loops = [
        subprocess.Popen(
            ["bash", "-c", script], cwd=session.parent, env=os.environ | {"WHO": who}, stderr=subprocess.PIPE
        )
        for who in ("one", "two")
    ]
    for loop in loops:
        _, errors = loop.communicate(timeout=300)
        assert loop.returncode == 0, errors
    document = json.loads(session.read_bytes())
    assert {f"{who}-{n}" for who in ("one", "two") for n in range(1, 41)} <= set(document)


def test_mv_from_another_filesystem_keeps_what_was_saved_meanwhile(mounted: Mount, session: Path, place: Path) -> None:
    """It unlinks the document and creates it again: neither the message nor the new title is lost."""
    script = f"jq '.title=\"By jq\"' session.json > {place}/n; read -r _; mv {place}/n session.json"
    with subprocess.Popen(["bash", "-c", script], cwd=session.parent, stdin=subprocess.PIPE) as process:
        wait_until((place / "n").exists, timeout_s=60)
        append(mounted, "meanwhile")
        process.communicate(b"\n", timeout=60)
    assert process.returncode == 0
    assert contents(session)[-1] == "meanwhile"
    assert json.loads(session.read_bytes())["title"] == "By jq"


def test_fixed_temporary_file_can_be_renamed_again_after_a_clash(mounted: Mount, session: Path) -> None:
    """What counts is the last truncation of the file, not its creation."""
    temporary = session.with_name(".session.json.tmp")

    def retitle(title: str) -> None:
        document = json.loads(session.read_bytes())
        with temporary.open("w") as file:
            file.write(json.dumps(document | {"title": title}, indent=2))

    retitle("Mine")
    with mounted.store() as store:
        store.update("root", lambda s: setattr(s, "title", "By the agent"))
    wait_until(lambda: "By the agent" in session.read_text(), timeout_s=60)
    with pytest.raises(OSError, match="Stale file handle"):
        temporary.rename(session)
    retitle("Mine again")
    temporary.rename(session)
    assert json.loads(session.read_bytes())["title"] == "Mine again"


def test_stale_buffer_can_be_saved_again_and_again(mounted: Mount, session: Path) -> None:
    """By truncating, by rename, and through one descriptor with fsync: the agent's messages all stay."""
    text, temporary = session.read_text(), session.with_name("temporary")
    for number in range(6):
        append(mounted, f"answer {number}")
        text = text.replace(f'"msg-{number % 3}', f'"msg-{number % 3}+')
        if number % 2:
            temporary.write_text(text)
            temporary.rename(session)
        else:
            session.write_text(text)
    with session.open("w") as file:
        for number in range(6, 9):
            append(mounted, f"answer {number}")
            text = text.replace(f'"msg-{number % 3}', f'"msg-{number % 3}+')
            file.seek(0)
            file.truncate()
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    assert contents(session) == ["msg-0+++", "msg-1+++", "msg-2+++", *(f"answer {number}" for number in range(9))]


def test_clash_is_refused_with_both_values(mounted: Mount, session: Path) -> None:
    text = session.read_text()
    with mounted.store() as store:
        store.update("root", lambda s: setattr(s, "title", "By the agent"))
    wait_until(lambda: "By the agent" in session.read_text(), timeout_s=60)
    with pytest.raises(OSError, match="Stale file handle"):
        session.write_text(text.replace("The root", "By hand"))
    assert "By the agent" in session.read_text()
    reason = session.with_name("session.json.error").read_text()
    assert "By the agent" in reason
    assert "By hand" in reason


def test_reject_and_overwrite_merge_nothing(filled: Path, mount_home: Callable[..., Mount]) -> None:
    for option in ("reject", "overwrite"):
        mount = mount_home(filled, "--on-conflict", option)
        path = mount.sessions / "root/session.json"
        text = path.read_text()
        append(mount, f"answer to {option}")
        with suppress(OSError):
            path.write_text(text.replace("The root", "By hand"))
        assert (f"answer to {option}" in path.read_text()) is (option == "reject")
        assert ("By hand" in path.read_text()) is (option == "overwrite")


def test_title_that_an_agent_set_in_the_sidecar_is_not_overwritten(mounted: Mount, session: Path) -> None:
    """The agent's title is in runtime.json alone: session.json is the version that the person has read."""
    program = (
        "import sys\npath, new = sys.argv[1:]\ntext = open(path).read()\nprint('read', flush=True)\n"
        "sys.stdin.readline()\nfile = open(path, 'w')\n"
        'file.write(text.replace(\'"title": "The root"\', new))\nfile.close()\n'
    )

    def edit(new: str, title: str) -> int:
        command = [sys.executable, "-c", program, str(session), new]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as person:
            assert person.stdin is not None
            assert person.stdout is not None
            person.stdout.readline()
            with mounted.store() as store:
                found = store.load("root")
                assert found is not None
                found.title = title
                store.save_runtime(found)
            person.stdin.write("\n")
        return person.returncode

    assert edit('"title": "Mine"', "Theirs") != 0
    error = Path(f"{session}.error").read_text()
    assert "title" in error
    assert "Theirs" in error
    assert "Mine" in error
    assert edit('"title": "The root", "note": 1', "Theirs too") == 0, "another member does not clash"
    assert title_of(mounted) == "Theirs too"
    session.write_text(session.read_text().replace('"title": "The root"', '"title": "Mine"'))
    assert title_of(mounted) == "Mine", "opened after the agent's change"


def title_of(mount: Mount) -> str:
    with mount.store() as store:
        found = store.load("root")
    assert found is not None
    return found.title
