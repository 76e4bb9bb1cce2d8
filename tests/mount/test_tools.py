"""Common editing tools on a real mount: a valid edit is saved, an invalid one is rejected, and nothing is lost.

All tests share one mount, each with its own session, so state left in the daemon by one affects the next.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

from store import Message, Store
from tests.builders import location_of, make_session
from tests.mount.conftest import Mount, daemons_of, grovefs, wait_until
from tests.mount.terminals import Terminal, terminal

FRESH = {"attachments", "children", "runtime.json", "session.json"}


# -- shared mount ----------------------------------------------------------------


@pytest.fixture(scope="module")
def shared() -> Iterator[Mount]:
    """One mount for the whole module; at the end its log has no traceback and the store is clean."""
    base = Path(tempfile.mkdtemp(prefix="grovefs-tools-", dir="/var/tmp"))  # editors make no backups below /tmp
    made = Mount(base / "home", base / "mnt", base / "log")
    made.path.mkdir()
    Store.open(made.home, background=False).close()
    result = grovefs("mount", "--home", made.home, "--log-file", made.log, made.path)
    try:
        assert result.returncode == 0, result.stderr
        yield made
    finally:
        if os.path.ismount(made.path):
            subprocess.run(["fusermount3", "-uz", str(made.path)], check=True)  # a failed test may have files open
        wait_until(lambda: not daemons_of(made.path))
    said = made.log.read_text() if made.log.exists() else ""
    assert "Traceback" not in said, said
    with made.store() as store:
        findings = [f for f in store.check().findings if f.is_damage]
    assert not findings, findings
    shutil.rmtree(base)


@dataclass(frozen=True)
class Bench:
    """A session in the mount, and a directory outside the mount for files of the tool."""

    mount: Mount
    id: str
    aside: Path

    @property
    def dir(self) -> Path:
        return self.mount.sessions / self.id

    @property
    def path(self) -> Path:
        return self.dir / "session.json"

    @property
    def state(self) -> tuple[bytes, int, int]:
        info = self.path.stat()
        return self.path.read_bytes(), info.st_size, info.st_mtime_ns

    def text_with(self, new: str) -> str:
        """The document with another title, which is given as JSON."""
        text = self.path.read_text()
        return text.replace(json.dumps(json.loads(text)["title"]), new)

    def check_saved(self, title: str, *, also: frozenset[str] = frozenset()) -> None:
        """File, sidecar, index, sessions.json and search have the new title, and no extra file is left."""
        assert json.loads(self.path.read_bytes())["title"] == title
        assert json.loads((self.dir / "runtime.json").read_bytes())["title"] == title
        assert json.loads((self.mount.path / "sessions.json").read_bytes())["sessions"][self.id]["title"] == title
        with self.mount.store() as store:
            assert self.id in {location_of(hit).id for hit in store.search(f'"{title}"', limit=100)}
        assert {n for n in os.listdir(self.dir) if not any(fnmatch(n, pattern) for pattern in also)} == FRESH

    def check_rejected(self, before: tuple[bytes, int, int], new: str) -> None:
        """Nothing has changed, and the rejected text is kept with the reason."""
        assert self.state == before
        assert f'"title": {new}' in (self.dir / "session.json.rejected").read_text()
        assert "was rejected" in (self.dir / "session.json.error").read_text()


@pytest.fixture
def bench(shared: Mount, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A separate session for each test, in the shared mount."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name.removeprefix("test_"))[:60].strip("-")
    with shared.store() as store:
        session = make_session(name, messages=3, title="The root", run_id="run-1")
        store.save(session)
        store.attach(name, b"\x89PNG not really", "image/png")
    (shared.sessions / name / "children").mkdir(exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix="grovefs-aside-", dir="/var/tmp"))
    yield Bench(shared, name, aside)
    shutil.rmtree(aside)


# -- the matrix ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tool:
    """A shell script that replaces $OLD by $NEW in ./session.json, or the file by $WANTED."""

    name: str
    script: str
    leaves: frozenset[str] = frozenset()  # names of files the tool leaves
    reports_failure: bool = True  # whether a rejected write reaches the exit code
    sets_mtime: bool = False  # whether it sets the mtime by path after a rejected write


def _tool(name: str, script: str, *leaves: str, reports_failure: bool = True, sets_mtime: bool = False) -> Tool:
    return Tool(name, script, frozenset(leaves), reports_failure, sets_mtime)


_SED = 'sed "s/$OLD/$NEW/"'
_VIM = 'vim -N -u NONE -i NONE -es {} -c "%s/$OLD/$NEW/" -c wq -c cq session.json'
_EMACS = """emacs -Q --batch session.json --eval '(progn (search-forward (getenv "OLD")) {}
    (replace-match (getenv "NEW") t t) (save-buffer))'"""
_PYTHON = f"{shlex.quote(sys.executable)} -c 'import os; new = open(os.environ[\"WANTED\"]).read()\n{{}}'"
_NODE = "node -e 'const fs = require(\"fs\"); const wanted = fs.readFileSync(process.env.WANTED); {}'"

TOOLS = [
    _tool("vim", _VIM.format("")),
    _tool("vim backupcopy=yes", _VIM.format('--cmd "set backupcopy=yes"'), "session.jso?~"),
    _tool("vim nowritebackup", _VIM.format('--cmd "set nowritebackup"')),
    _tool("vim backup", _VIM.format('--cmd "set backup"'), "session.json~"),
    _tool("emacs", _EMACS.format(""), "session.json~"),
    _tool("emacs precious", _EMACS.format("(setq file-precious-flag t)"), "session.json~", "tmp*"),
    _tool("ed", 'printf "%s\\n" ",s/$OLD/$NEW/" w q | ed -s session.json'),
    _tool("sed -i", 'sed -i "s/$OLD/$NEW/" session.json'),
    _tool("sed -i.bak", 'sed -i.bak "s/$OLD/$NEW/" session.json', "session.json.bak"),
    _tool("perl -pi", "perl -pi -e 's/$ENV{OLD}/$ENV{NEW}/' session.json"),
    _tool("perl -pi.orig", "perl -pi.orig -e 's/$ENV{OLD}/$ENV{NEW}/' session.json", "session.json.orig"),
    _tool("gawk", 'gawk -i inplace -v old="$OLD" -v new="$NEW" "{ gsub(old, new) } 1" session.json'),
    _tool("jq and mv", f"jq . session.json | {_SED} > t.json && mv t.json session.json"),
    _tool("sponge", f"{_SED} session.json | sponge session.json"),
    _tool("tee", 'tee session.json < "$WANTED" > /dev/null'),
    _tool("dd", 'dd if="$WANTED" of=session.json status=none'),
    _tool("dd conv=fsync", 'dd if="$WANTED" of=session.json bs=100 conv=fsync status=none'),
    _tool("cat", 'cat "$WANTED" > session.json'),
    _tool("printf", 'printf "%s\\n" "$(cat "$WANTED")" > session.json', reports_failure=False),
    _tool("cp", 'cp "$WANTED" session.json'),
    _tool("cp -a", 'cp -a "$WANTED" session.json'),
    _tool("cp -b", 'cp -b "$WANTED" session.json', "session.json~"),
    _tool("cp --remove-destination", 'cp --remove-destination "$WANTED" session.json'),
    _tool("install", 'install -m 600 "$WANTED" session.json'),
    _tool("mv from elsewhere", 'mv "$WANTED" session.json'),
    _tool("patch", 'diff -u session.json "$WANTED" > "$ASIDE/p"; patch -s session.json "$ASIDE/p"'),
    _tool(
        "git apply",
        'diff -u --label a/session.json --label b/session.json session.json "$WANTED" > "$ASIDE/p"; '
        'git apply "$ASIDE/p"',
    ),
    _tool("tar", 'tar -C "$ASIDE" -cf "$ASIDE/t.tar" session.json && tar -xf "$ASIDE/t.tar"'),
    _tool(
        "unzip",
        'zip -qj "$ASIDE/t" "$WANTED" && unzip -qo "$ASIDE/t"; rm "$ASIDE/t.zip"',
        reports_failure=False,
        sets_mtime=True,
    ),
    _tool("python w", _PYTHON.format('with open("session.json", "w") as f: f.write(new)')),
    _tool("python r+", _PYTHON.format('with open("session.json", "r+") as f: f.write(new); f.truncate()')),
    _tool("python replace", _PYTHON.format('open("t", "w").write(new); os.replace("t", "session.json")')),
    _tool("node", _NODE.format('fs.writeFileSync("session.json", wanted)')),
    _tool("node rename", _NODE.format('fs.writeFileSync("t", wanted); fs.renameSync("t", "session.json")')),
]


def run(tool: Tool, directory: Path, bench: Bench, new: str) -> subprocess.CompletedProcess[str]:
    """Run a tool that sets the title, given as JSON, of the document in a directory."""
    wanted = bench.aside / "session.json"
    text = (directory / "session.json").read_text()
    old = json.dumps(json.loads(text)["title"])
    wanted.write_text(text.replace(old, new))
    environment = {"OLD": old, "NEW": new, "WANTED": str(wanted), "ASIDE": str(bench.aside), "HOME": str(bench.aside)}
    return subprocess.run(
        ["bash", "-c", tool.script],
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_tool_saves_valid_edits_and_reports_rejected_ones(bench: Bench, tool: Tool) -> None:
    """On a plain directory the invalid edit replaces the file; here it is rejected, and the next valid one is saved."""
    plain = bench.aside / "plain"
    plain.mkdir()
    shutil.copy(bench.path, plain)
    result = run(tool, plain, bench, "Broken")
    assert result.returncode == 0, result.stderr
    assert '"title": Broken' in (plain / "session.json").read_text()

    for number, bad in enumerate(["Broken", "5"]):
        before = bench.state
        result = run(tool, bench.dir, bench, bad)
        assert (result.returncode != 0) is tool.reports_failure, result.stderr
        if tool.sets_mtime:
            os.utime(bench.path, ns=(before[2], before[2]))
        bench.check_rejected(before, bad)
        title = f"Number {number} by {tool.name.replace('-', ' ')}"
        result = run(tool, bench.dir, bench, json.dumps(title))
        assert result.returncode == 0, result.stderr
        bench.check_saved(title, also=tool.leaves)


# -- editors on a terminal ----------------------------------------------------------------------------------


def test_vim_on_a_terminal(bench: Bench) -> None:
    """The editor shows the error and keeps the buffer; the corrected text is saved without a question."""
    before = bench.state
    with terminal("vim -N -u NONE -i NONE session.json", bench.dir, bench.aside) as vim:
        vim.wait_for('"The root"')
        vim.type(':%s/"The root"/Broken/', "Enter", ":w", "Enter")
        vim.wait_for("E512: Close failed")
        bench.check_rejected(before, "Broken")
        vim.type("Enter", ':%s/Broken/"By vim"/', "Enter", ":w", "Enter")
        vim.wait_for("written")
        bench.check_saved("By vim", also=frozenset({".session.json.swp"}))
        vim.type(':%s/"By vim"/"By vim again"/', "Enter", ":wq", "Enter")
    bench.check_saved("By vim again")


def test_nano_on_a_terminal(bench: Bench) -> None:
    """The editor shows the error and keeps the buffer; the corrected text is saved without a question."""
    before = bench.state
    with terminal("nano --ignorercfiles session.json", bench.dir, bench.aside) as nano:
        nano.wait_for('"The root"')
        _replace_in_nano(nano, '"The root"', "Broken")
        nano.type("C-s")
        nano.wait_for("Error writing session.json: Bad message")
        bench.check_rejected(before, "Broken")
        _replace_in_nano(nano, "Broken", '"By nano"')
        nano.type("C-s")
        nano.wait_for("Wrote")
        bench.check_saved("By nano")
        _replace_in_nano(nano, "By nano", "By nano again")
        nano.type("C-s")
        wait_until(lambda: b"By nano again" in bench.path.read_bytes())
        nano.type("C-x")
    bench.check_saved("By nano again")


def _replace_in_nano(nano: Terminal, old: str, new: str) -> None:
    nano.type("M-\\", "C-\\")
    nano.wait_for("Search (to replace)")
    nano.type(old, "Enter")
    nano.wait_for("Replace with")
    nano.type(new, "Enter")
    nano.wait_for("Replace this instance")
    nano.type("A")
    nano.wait_for("Replaced 1 occurrence")


def test_emacs_on_a_terminal(bench: Bench) -> None:
    """The editor shows the error and keeps the buffer; the corrected text is saved without a question."""
    before = bench.state
    with terminal("emacs -Q -nw session.json", bench.dir, bench.aside) as emacs:
        emacs.wait_for('"The root"')
        _replace_in_emacs(emacs, '"The root"', "Broken")
        emacs.type("C-x", "C-s")
        emacs.wait_for("Bad message")
        bench.check_rejected(before, "Broken")
        _replace_in_emacs(emacs, "Broken", '"By emacs"')
        emacs.type("C-x", "C-s")
        emacs.wait_for("Wrote")
        _replace_in_emacs(emacs, "By emacs", "By emacs again")
        emacs.type("C-x", "C-s")
        wait_until(lambda: b"By emacs again" in bench.path.read_bytes())
        emacs.type("C-x", "C-c")
    bench.check_saved("By emacs again", also=frozenset({"session.json~"}))


def _replace_in_emacs(emacs: Terminal, old: str, new: str) -> None:
    emacs.type("M-<", "M-x", "replace-string", "Enter", old, "Enter", new, "Enter")
    emacs.wait_for("Replaced 1 occurrence")


# -- directory trees -------------------------------------------------------------------------------------------


def sh(script: str, cwd: Path, **environment: str) -> str:
    """Run a script that must succeed; return its output."""
    result = subprocess.run(
        ["bash", "-ec", script], cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


GIT = "git -c user.name=me -c user.email=me@example.org -c init.defaultBranch=main"


def test_git_checkout_restores_an_older_version(bench: Bench) -> None:
    """git unlinks before it writes, which is taken as intended even if updated_at is older."""
    sh(f"{GIT} init -q; {GIT} add session.json runtime.json; {GIT} commit -qm one", bench.dir)
    with bench.mount.store() as store:
        store.update(bench.id, lambda s: setattr(s, "title", "Newer"))
    on_disk = bench.mount.home / "sessions" / bench.id
    for name in ("session.json", "runtime.json"):  # a change by another process is visible within a second
        wait_until(lambda name=name: (bench.dir / name).stat().st_mtime_ns == (on_disk / name).stat().st_mtime_ns)  # type: ignore[misc]
    sh(f"{GIT} commit -qam two", bench.dir)
    sh(f"{GIT} checkout -q HEAD~1", bench.dir)
    bench.check_saved("The root", also=frozenset({".git"}))
    sh(f'{GIT} checkout -q main; {GIT} fsck --strict; test -z "$({GIT} status --porcelain -uno)"', bench.dir)
    bench.check_saved("Newer", also=frozenset({".git"}))
    sh("rm -rf .git", bench.dir)


def test_git_repository_in_attachments(bench: Bench) -> None:
    """A repository inside attachments/, next to the files it tracks."""
    attachments = bench.dir / "attachments"
    sh(f"{GIT} init -q; echo one > note; {GIT} add .; {GIT} commit -qm one", attachments)
    sh(f"echo two > note; {GIT} commit -qam two; {GIT} checkout -q HEAD~1", attachments)
    assert (attachments / "note").read_text() == "one\n"
    sh(f'{GIT} fsck --strict; test -z "$({GIT} status --porcelain)"; rm -rf .git note', attachments)


def test_tar_round_trip(bench: Bench) -> None:
    """A session archived, deleted and extracted again is identical, to the byte and the nanosecond."""
    before, where = bench.state, bench.mount.sessions
    sh('tar --posix -cf "$OUT" "$ID"; rm -r "$ID"', where, OUT=str(bench.aside / "t"), ID=bench.id)
    assert not bench.dir.exists()
    sh('tar -xf "$OUT"; tar -df "$OUT"', where, OUT=str(bench.aside / "t"))
    assert bench.state == before
    bench.check_saved("The root")


def test_copy_round_trip(bench: Bench) -> None:
    """cp -a, diff -r, find and du agree."""
    out = bench.aside / "out"
    sh('cp -a . "$OUT"; diff -r . "$OUT"', bench.dir, OUT=str(out))
    listing = r"find . -printf '%P %y %m %s %T@\n' | grep -v ' d ' | sort"
    assert sh(listing, bench.dir) == sh(listing, out)
    size = sum(p.stat().st_size for p in out.rglob("*") if p.is_file())
    assert int(sh("du -s --apparent-size -B1 .", bench.dir).split()[0]) >= size
    before = bench.state
    sh('cp -a "$OUT/." .', bench.dir, OUT=str(out))
    assert bench.state == before


def test_empty_attachment_is_stored(bench: Bench) -> None:
    """Attachments may be empty: by touch, by cp, and by truncating one."""
    attachments = bench.dir / "attachments"
    (bench.aside / "empty").touch()
    sh('touch one; cp "$EMPTY" two; : > three', attachments, EMPTY=str(bench.aside / "empty"))
    assert {"one", "two", "three"} <= set(os.listdir(attachments))
    (attachments / "one").write_bytes(b"something")
    sh(": > one", attachments)
    wait_until(lambda: (attachments / "one").stat().st_size == 0)
    os.truncate(attachments / "one", 3)
    assert (attachments / "one").read_bytes() == b"\0\0\0"


# -- rare system calls ----------------------------------------------------------------------------


def renameat2(source: Path, target: Path, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(source), -100, os.fsencode(target), flags):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def test_rename_noreplace(bench: Bench) -> None:
    """RENAME_NOREPLACE fails with EEXIST if the target exists, and commits otherwise."""
    before, temporary = bench.state, bench.dir / "t"
    temporary.write_text(bench.text_with('"By rename"'))
    with pytest.raises(FileExistsError):
        renameat2(temporary, bench.path, 1)
    assert bench.state == before
    bench.path.rename(bench.dir / "away")
    renameat2(temporary, bench.path, 1)
    bench.check_saved("By rename", also=frozenset({"away"}))


def test_rename_exchange_of_a_document_and_a_file(bench: Bench) -> None:
    """RENAME_EXCHANGE commits the file's bytes, and the file gets the old ones; if rejected, both are unchanged."""
    old, temporary = bench.path.read_text(), bench.dir / "t"
    temporary.write_text(bench.text_with('"Exchanged"'))
    renameat2(temporary, bench.path, 2)
    assert temporary.read_text() == old
    bench.check_saved("Exchanged", also=frozenset({"t"}))
    before = bench.state
    temporary.write_text("{")
    with pytest.raises(OSError, match="Bad message"):
        renameat2(bench.path, temporary, 2)
    assert bench.state == before
    assert temporary.read_text() == "{"


def test_rename_exchange_of_foreign_files(bench: Bench) -> None:
    (bench.dir / "a").write_text("a")
    (bench.dir / "b").write_text("b")
    renameat2(bench.dir / "a", bench.dir / "b", 2)
    assert ((bench.dir / "a").read_text(), (bench.dir / "b").read_text()) == ("b", "a")
    with pytest.raises(OSError, match="Operation not permitted"):
        renameat2(bench.path, bench.dir / "runtime.json", 2)


def test_truncate_by_path(bench: Bench) -> None:
    """truncate(2) is a separate commit: valid or rejected."""
    text = bench.text_with('"Cut"')
    bench.path.write_text(text + "\n\n\n")
    os.truncate(bench.path, len(text))
    assert bench.path.read_text() == text
    before = bench.state
    for size in (0, 10, len(text) + 5):
        with pytest.raises(OSError, match="Bad message"):
            os.truncate(bench.path, size)
        assert bench.state == before
    result = subprocess.run(["truncate", "-s", "100", bench.path], capture_output=True, text=True)
    assert "Bad message" in result.stderr
    assert bench.state == before
    sh("truncate -s 0 session.json", bench.dir)  # truncation to zero without a write commits nothing
    assert bench.state == before
    bench.path.write_text(bench.text_with('"Corrected"'))
    bench.check_saved("Corrected")


def test_truncate_after_a_rejected_write_is_validated_separately(bench: Bench) -> None:
    """Only modes and times set for rejected content are rejected with it."""
    text = bench.path.read_text()
    bench.path.write_text(text + "\n\n")
    with pytest.raises(OSError, match="Bad message"):
        bench.path.write_text("{")
    os.truncate(bench.path, len(text))
    assert bench.path.read_text() == text
    with pytest.raises(OSError, match="Bad message"):
        bench.path.write_text("{")
    with pytest.raises(OSError, match="Bad message"):
        os.truncate(bench.path, 10)
    assert (bench.dir / "session.json.rejected").read_text() == text[:10]


def test_document_can_be_opened_through_proc_self_fd(bench: Bench) -> None:
    """/proc/self/fd resolves to the node itself, without a lookup."""
    text = bench.text_with('"Through proc"')
    fd = os.open(bench.path, os.O_RDONLY)
    with open(f"/proc/self/fd/{fd}", "w") as file:
        file.write(text)
    os.close(fd)
    bench.check_saved("Through proc")


def test_mapped_document_keeps_its_version(bench: Bench) -> None:
    """Rule 4, for readers by mmap."""
    before = bench.path.read_bytes()
    with bench.path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        bench.path.write_text(bench.text_with('"Mapped, and longer than before"'))
        assert mapped[:] == before
    bench.check_saved("Mapped, and longer than before")


def write_slowly(path: Path, text: str) -> int:
    """A descriptor to which the whole content is written, not yet closed."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(fd, text.encode())
    return fd


def close_stale(fd: int) -> None:
    with pytest.raises(OSError, match="Stale file handle"):
        os.close(fd)


def test_second_of_two_writers_is_stale(bench: Bench) -> None:
    """Rule 8: its content is kept as rejected, and neither writer sees a byte of the other."""
    first = write_slowly(bench.path, bench.text_with('"First"'))
    second = write_slowly(bench.path, bench.text_with('"Second"'))
    os.close(first)
    before = bench.state
    close_stale(second)
    bench.check_rejected(before, '"Second"')
    bench.path.write_text(bench.text_with('"Third"'))
    bench.check_saved("Third")


def test_writer_overtaken_by_the_api_is_stale(bench: Bench) -> None:
    """Rule 8, in place and by rename; content with an older updated_at is stale too."""
    old, temporary = bench.text_with('"Old"'), bench.dir / "t"
    fd = write_slowly(bench.path, old)
    temporary.write_text(old)
    with bench.mount.store() as store:
        store.update(bench.id, lambda s: setattr(s, "title", "By the API"))
    wait_until(lambda: "By the API" in bench.path.read_text())
    before = bench.state
    close_stale(fd)
    bench.check_rejected(before, '"Old"')
    with pytest.raises(OSError, match="Stale file handle"):
        temporary.rename(bench.path)
    assert temporary.read_text() == old
    close_stale(write_slowly(bench.path, old))
    bench.check_rejected(before, '"Old"')
    temporary.unlink()
    bench.path.write_text(bench.text_with('"Newer"'))
    bench.check_saved("Newer")


def test_rename_waiting_for_the_lock_is_stale(bench: Bench) -> None:
    """Rule 8: the holder of the session's lock commits a version that the renamed file was not based on."""
    temporary, theirs = bench.dir / "t", bench.text_with('"Theirs"').encode()
    temporary.write_text(bench.text_with('"Ours"'))
    with bench.mount.store() as store, ThreadPoolExecutor(1) as pool:
        location = store.location(bench.id)
        assert location is not None
        with store.names.core.locked(location):
            ours = pool.submit(temporary.rename, bench.path)
            time.sleep(0.5)  # long enough for the rename to reach the lock
            store.put_document(location, "session.json", theirs)
        with pytest.raises(OSError, match="Stale file handle"):
            ours.result(timeout=30)
    assert bench.path.read_bytes() == theirs
    temporary.unlink()


def test_read_write_descriptor_reads_one_version(bench: Bench) -> None:
    """Rule 4 holds for a read-write descriptor too; what it then writes is merged with the newer version."""
    before = bench.path.read_bytes()
    fd = os.open(bench.path, os.O_RDWR)
    first = os.pread(fd, 100, 0)
    with bench.mount.store() as store:
        store.update(bench.id, lambda s: setattr(s, "title", "Replaced under a reader that may write"))
    assert first + os.pread(fd, 100_000, 100) == before
    os.pwrite(fd, before.replace(b"msg-1", b"MSG-1"), 0)
    os.close(fd)
    assert b"Replaced under" in bench.path.read_bytes()
    assert b"MSG-1" in bench.path.read_bytes()
    bench.path.write_text(bench.text_with('"Corrected"'))
    bench.check_saved("Corrected")


def test_directory_cannot_take_the_name_of_a_document(bench: Bench) -> None:
    """Neither by mkdir nor by rename, not even while the document is unlinked."""
    (bench.dir / "foreign").mkdir()
    before = bench.state
    bench.path.rename(bench.dir / "away")
    (bench.dir / "runtime.json").rename(bench.dir / "away2")
    for name in ("session.json", "runtime.json"):
        with pytest.raises(PermissionError):
            (bench.dir / name).mkdir()
        with pytest.raises(PermissionError):
            (bench.dir / "foreign").rename(bench.dir / name)
    (bench.dir / "foreign").rmdir()
    (bench.dir / "away").rename(bench.path)
    (bench.dir / "away2").rename(bench.dir / "runtime.json")
    assert bench.state == before
    bench.check_saved("The root")


def test_append_after_a_rejected_fsync_continues_at_the_end(bench: Bench) -> None:
    """fsync rejects incomplete content; the following append completes it."""
    text = bench.text_with('"By halves, and longer than it was"')
    fd = os.open(bench.path, os.O_WRONLY | os.O_TRUNC | os.O_APPEND)
    os.write(fd, text[:700].encode())
    with pytest.raises(OSError, match="Bad message"):
        os.fsync(fd)
    assert os.fstat(fd).st_size == bench.path.stat().st_size
    os.write(fd, text[700:].encode())
    assert os.fstat(fd).st_size == len(text)
    os.close(fd)
    assert bench.path.read_text() == text
    bench.check_saved("By halves, and longer than it was")
    sh("{ printf '\\n'; printf ' '; printf '\\n'; } >> session.json", bench.dir)
    assert bench.path.read_text() == text + "\n \n"


def test_modes_times_and_owner(bench: Bench) -> None:
    """They are stored to the nanosecond, survive edits, and create no new version; the owner cannot change."""
    ns = 1_700_000_000_123_456_789
    os.chmod(bench.path, 0o640)
    os.utime(bench.path, ns=(ns, ns))
    os.chown(bench.path, os.getuid(), os.getgid())
    info = bench.path.stat()
    assert (info.st_mode & 0o7777, info.st_mtime_ns) == (0o640, ns)
    with pytest.raises(PermissionError):
        os.chown(bench.path, 12345, 12345)
    fd = write_slowly(bench.path, bench.text_with('"With times"'))
    os.utime(fd, ns=(ns + 1, ns + 1))
    os.fchmod(fd, 0o600)
    os.close(fd)
    info = bench.path.stat()
    assert (info.st_mode & 0o7777, info.st_mtime_ns) == (0o600, ns + 1)
    sh("touch -d @1600000000.5 session.json", bench.dir)
    assert bench.path.stat().st_mtime_ns == 1_600_000_000_500_000_000
    bench.check_saved("With times")


def test_times_of_directories(bench: Bench) -> None:
    """The mtime of a directory changes with its entries, and can be set."""
    os.utime(bench.dir, ns=(5, 1_600_000_000_000_000_005))
    assert bench.dir.stat().st_mtime_ns == 1_600_000_000_000_000_005
    (bench.dir / "foreign").write_text("x")
    wait_until(lambda: bench.dir.stat().st_mtime_ns > 1_700_000_000_000_000_000)
    os.chmod(bench.dir, 0o750)
    assert bench.dir.stat().st_mode & 0o7777 == 0o750
    (bench.dir / "foreign").unlink()


def test_symlinks(bench: Bench) -> None:
    """Foreign names may be links; a document or an attachment may neither be one nor become one."""
    before, link = bench.state, bench.dir / "link"
    link.symlink_to("session.json")
    assert link.read_bytes() == before[0]
    link.write_text(bench.text_with('"Through a link"'))
    assert link.is_symlink()
    assert "Through a link" in bench.path.read_text()
    before = bench.state
    with pytest.raises(PermissionError):
        link.rename(bench.path)
    with pytest.raises(PermissionError):
        (bench.dir / "attachments/link").symlink_to("nowhere")
    with pytest.raises(PermissionError):
        link.rename(bench.dir / "attachments/link")
    assert bench.state == before
    link.unlink()
    bench.check_saved("Through a link")


def test_recreated_scratch_file_does_not_show_old_bytes(bench: Bench) -> None:
    """vim unlinks its test file 4913 and its swap file and recreates them while the first is still open."""
    for name in ("4913", ".session.json.swp"):
        path = bench.dir / name
        first = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.write(first, b"the old bytes")
        path.unlink()
        second = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        assert os.fstat(second).st_size == 0
        os.write(second, b"new")
        assert path.read_bytes() == b"new"
        assert os.pread(second, 100, 0) == b"new"
        assert os.pread(first, 100, 0) == b"the old bytes"
        assert os.fstat(first).st_size == len(b"the old bytes")
        os.fchmod(first, 0o640)
        os.utime(first, ns=(1, 1))
        assert (os.fstat(first).st_mode & 0o7777, os.fstat(first).st_mtime_ns) == (0o640, 1)
        assert (path.stat().st_mode & 0o7777, path.stat().st_mtime_ns == 1) == (0o600, False)
        os.close(first)
        os.close(second)
        assert path.read_bytes() == b"new"
        path.unlink()
    assert set(os.listdir(bench.dir)) == FRESH


def test_document_renamed_into_a_new_session_is_read_as_committed(bench: Bench) -> None:
    """It becomes a fork, so the rename changes its bytes; the original bytes must not be visible at the new path."""
    other = bench.mount.sessions / f"{bench.id}-fork"
    other.mkdir()
    temporary = other / "t"
    temporary.write_bytes(bench.path.read_bytes())
    temporary.read_bytes()  # fill the page cache
    temporary.rename(other / "session.json")
    text = (other / "session.json").read_bytes()
    assert json.loads(text)["id"] == other.name
    wait_until(lambda: (other / "session.json").stat().st_size == len(text), timeout_s=0.3)


def test_document_moved_onto_another_session_is_rejected(bench: Bench) -> None:
    """The identity differs, so the move is rejected and the source still exists."""
    with bench.mount.store() as store:
        store.save(make_session(f"{bench.id}-2", title="Other"))
    before, other = bench.state, bench.mount.sessions / f"{bench.id}-2/session.json"
    kept = other.read_bytes()
    with pytest.raises(OSError, match="Bad message"):
        bench.path.rename(other)
    assert bench.state == before
    assert other.read_bytes() == kept


def test_writes_after_the_rename_do_not_change_the_document(bench: Bench) -> None:
    """A descriptor of the temporary file stays open after the rename. What it writes would be lost, so it fails."""
    text = bench.text_with('"Renamed while open"')
    with (bench.dir / "t").open("wb", buffering=0) as file:
        file.write(text.encode())
        (bench.dir / "t").rename(bench.path)
        assert bench.path.read_text() == text
        file.seek(0)
        with pytest.raises(OSError, match="Stale file handle"):
            file.write(b"garbage")
        assert bench.path.read_text() == text
    bench.check_saved("Renamed while open")


# -- hidden names: unlinked documents before they are deleted --------------------------------------------------


@pytest.fixture
def brief(filled: Path, mount_home: Callable[..., Mount]) -> Iterator[Mount]:
    """A mount that deletes hidden documents after half a second."""
    made = mount_home(filled, "--limbo-seconds", "0.5")
    yield made
    with made.store() as store:
        findings = [f for f in store.check().findings if f.is_damage]
    assert not findings, findings


def ids(mount: Mount) -> set[str]:
    with mount.store() as store:
        return {entry.id for entry in store.entries()}


def test_removed_document_that_is_not_replaced_is_deleted(brief: Mount) -> None:
    """It is hidden at once and later moved to the trash: its index rows are removed, other files stay."""
    path, on_disk = brief.sessions / "root/session.json", brief.home / "sessions/root/session.json"
    text = path.read_bytes()
    path.unlink()
    assert not path.exists()
    assert "session.json" not in os.listdir(path.parent)
    assert on_disk.read_bytes() == text
    assert "root" in ids(brief)
    wait_until(lambda: not on_disk.exists(), timeout_s=5)
    wait_until(lambda: ids(brief) == {"child", "grandchild", "pinned"})
    assert sorted(os.listdir(path.parent)) == ["attachments", "children", "runtime.json"]
    with brief.store() as store:
        (slot,) = [d for d in store.trash.deleted() if d.session_id == "root"]
        kept = [brief.home / kept for _, kept in slot.moves]
        assert [k.read_bytes() for k in kept] == [text]
        store.trash.undelete(slot.name)
    wait_until(path.exists)
    assert path.read_bytes() == text


def test_hidden_document_waits_for_a_slow_writer(brief: Mount) -> None:
    """Nothing is deleted while a new version is being written; if that is rejected, the old version is shown again."""
    path, on_disk = brief.sessions / "root/session.json", brief.home / "sessions/root/session.json"
    text = path.read_text()
    for new, outcome in (('"Slowly"', '"Slowly"'), ("Broken", '"Slowly"')):
        path.unlink()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        time.sleep(0.9)  # longer than the hiding time; a deletion that does not happen can only be waited for
        assert on_disk.exists()
        os.write(fd, text.replace('"The root"', new).encode())
        if new == "Broken":
            with pytest.raises(OSError, match="Bad message"):
                os.close(fd)
        else:
            os.close(fd)
        assert f'"title": {outcome}' in path.read_text()
    time.sleep(0.9)
    assert '"title": "Slowly"' in path.read_text()


def test_version_saved_while_hidden_is_not_deleted(brief: Mount) -> None:
    """Only the unlinked version may be deleted; a version an agent saves meanwhile is kept and shown."""
    path = brief.sessions / "root/session.json"
    path.unlink()
    with brief.store() as store:
        store.append("root", [Message.user("saved while hidden")])
    wait_until(path.exists, timeout_s=5)
    assert "saved while hidden" in path.read_text()
    assert "root" in ids(brief)


def test_rmdir_does_not_delete_a_version_saved_while_hidden(bench: Bench) -> None:
    """rmdir fails with ENOTEMPTY, and the new version is visible at once."""
    bench.path.unlink()
    for name in ("runtime.json", "attachments", "children"):
        sh(f"rm -r {name}", bench.dir)
    os.listdir(bench.dir)
    with bench.mount.store() as store:
        store.update(bench.id, lambda s: setattr(s, "title", "While hidden"))
    wait_until(lambda: "runtime.json" in os.listdir(bench.dir))
    with pytest.raises(OSError, match="Directory not empty"):
        bench.dir.rmdir()
    assert "session.json" in os.listdir(bench.dir)
    bench.check_saved("While hidden")


def test_rename_keeps_what_was_saved_while_the_document_was_hidden(bench: Bench) -> None:
    """Rule 8: the program that unlinked the document has not seen the agent's save, so both are merged."""
    temporary = bench.dir / "t"
    temporary.write_text(bench.text_with('"From before"'))
    bench.path.unlink()
    with bench.mount.store() as store:
        store.append(bench.id, [Message.user("saved while hidden")])
    temporary.rename(bench.path)
    assert "saved while hidden" in bench.path.read_text()
    bench.check_saved("From before")


def test_version_saved_while_hidden_moves_with_its_session(filled: Path, mount_home: Callable[..., Mount]) -> None:
    """On unmount only the unlinked version is deleted, also after the session was renamed."""
    made = mount_home(filled)
    (made.sessions / "root/session.json").unlink()
    with made.store() as store:
        store.append("root", [Message.user("saved while hidden")])
    (made.sessions / "root").rename(made.sessions / "other")
    assert "saved while hidden" in (made.sessions / "other/session.json").read_text()
    subprocess.run(["fusermount3", "-u", made.path], check=True)
    wait_until(lambda: not daemons_of(made.path))
    assert "saved while hidden" in (filled / "sessions/other/session.json").read_text()


def test_document_deleted_while_hidden_can_be_recreated(bench: Bench) -> None:
    """A document written after the deletion cannot be stale: there is no newer version."""
    text = bench.text_with('"Again"')
    bench.path.unlink()
    with bench.mount.store() as store:
        store.delete(bench.id)
    wait_until(lambda: not bench.dir.exists())
    for name in ("attachments", "children"):
        (bench.dir / name).mkdir(parents=True)
    bench.path.write_text(text)
    (bench.dir / "runtime.json").write_text(json.dumps({**json.loads(text), "messages": []}))
    bench.check_saved("Again")


def test_session_renamed_while_being_written(brief: Mount) -> None:
    """The writer fails because its session has moved, and the old path is no longer marked as being written."""
    path, other = brief.sessions / "root/session.json", brief.sessions / "other"
    fd = write_slowly(path, path.read_text().replace("The root", "Too late"))
    path.parent.rename(other)
    with pytest.raises(OSError):  # noqa: PT011
        os.close(fd)
    assert not path.exists()
    assert '"The root"' in (other / "session.json").read_text()
    other.rename(path.parent)
    path.unlink()
    wait_until(lambda: "root" not in ids(brief), timeout_s=5)
    with brief.store() as store:
        store.trash.undelete(next(d.name for d in store.trash.deleted() if d.session_id == "root"))


def test_pinned_session_renamed_away_is_restored(brief: Mount) -> None:
    """It cannot be unlinked. Renamed away and not replaced, it reappears after the hiding time."""
    path = brief.sessions / "pinned/session.json"
    text = path.read_bytes()
    with pytest.raises(PermissionError):
        path.unlink()
    path.rename(path.with_name("away"))
    assert not path.exists()
    wait_until(path.exists, timeout_s=5)
    assert path.read_bytes() == text == path.with_name("away").read_bytes()
    path.with_name("away").unlink()
    assert "cannot be removed" in brief.log.read_text()


def test_rename_away_and_back_changes_nothing(bench: Bench) -> None:
    """No new version: bytes, size and time are unchanged."""
    before = bench.state
    bench.path.rename(bench.dir / "away")
    assert sorted(os.listdir(bench.dir)) == ["attachments", "away", "children", "runtime.json"]
    (bench.dir / "away").rename(bench.path)
    assert bench.state == before
    bench.check_saved("The root")


def test_rejected_write_restores_the_hidden_version(bench: Bench) -> None:
    """After unlink and after rename away; with a new version by close and by rename."""
    before, away, temporary = bench.state, bench.dir / "away", bench.dir / "t"
    broken = bench.text_with("Broken")
    for take_away in (bench.path.unlink, lambda: bench.path.rename(away)):
        take_away()
        with pytest.raises(OSError, match="Bad message"):
            bench.path.write_text(broken)
        bench.check_rejected(before, "Broken")
        take_away()
        temporary.write_text(broken)
        with pytest.raises(OSError, match="Bad message"):
            temporary.rename(bench.path)
        bench.check_rejected(before, "Broken")
    away.unlink()
    temporary.unlink()


def test_kill_while_hidden_loses_nothing(filled: Path, mount_home: Callable[..., Mount]) -> None:
    """The document never moved on disk, so it is visible again after the crash."""
    made = mount_home(filled)
    path = made.sessions / "root/session.json"
    text = path.read_bytes()
    path.unlink()
    (daemon,) = daemons_of(made.path)
    os.kill(daemon, signal.SIGKILL)
    wait_until(lambda: not daemons_of(made.path))
    subprocess.run(["fusermount3", "-u", str(made.path)], check=True)
    assert (filled / "sessions/root/session.json").read_bytes() == text
    again = mount_home(filled)
    assert (again.sessions / "root/session.json").read_bytes() == text
    assert ids(again) == {"root", "child", "grandchild", "pinned"}
    with again.store() as store:
        assert store.check().is_clean


# -- mount options ---------------------------------------------------------------------------------------


def test_on_conflict_overwrite(filled: Path, mount_home: Callable[..., Mount]) -> None:
    """For restores: the last close wins, even with an older updated_at. Invalid content is still rejected."""
    made = mount_home(filled, "--on-conflict", "overwrite")
    path = made.sessions / "root/session.json"
    old = path.read_text()
    first, second = (
        write_slowly(path, old.replace("The root", "First")),
        write_slowly(path, old.replace("The root", "2nd")),
    )
    os.close(first)
    os.close(second)
    assert '"2nd"' in path.read_text()
    with made.store() as store:
        store.update("root", lambda s: setattr(s, "title", "By the API"))
    wait_until(lambda: "By the API" in path.read_text())
    path.write_text(old)
    assert path.read_text() == old
    with pytest.raises(OSError, match="Bad message"):
        path.write_text("{")
    with made.store() as store:
        assert store.check().is_clean


def test_read_only_mount_rejects_every_change(filled: Path, mount_home: Callable[..., Mount]) -> None:
    """Everything can be read, and nothing can be changed."""
    made = mount_home(filled, "--read-only")
    path = made.sessions / "root/session.json"
    text = path.read_bytes()
    changes: list[Callable[[], object]] = [
        lambda: path.write_text("{}"),
        lambda: os.truncate(path, 3),
        lambda: path.unlink(),
        lambda: path.rename(path.with_name("x")),
        lambda: os.chmod(path, 0o600),
        lambda: os.utime(path),
        lambda: (made.sessions / "new").mkdir(),
        lambda: (made.sessions / "root/foreign").touch(),
        lambda: (made.sessions / "root/link").symlink_to("x"),
        lambda: (made.sessions / "root").rename(made.sessions / "other"),
        lambda: (made.sessions / "root/children").rmdir(),
    ]
    for change in changes:
        with pytest.raises(OSError, match="Read-only file system") as refused:
            change()
        assert refused.value.errno == errno.EROFS
    assert path.read_bytes() == text
    assert sh("cat sessions.json; find . -type f -exec cat {} + | wc -c", made.path)


def test_foreign_directory_is_validated_when_it_becomes_a_session(bench: Bench) -> None:
    """`mv` gets EXDEV and copies: a fork gets its own id; an invalid document is rejected and stays."""
    kept, fork = bench.mount.sessions / f".{bench.id}", bench.mount.sessions / f"{bench.id}-fork"
    shutil.copytree(bench.dir, kept)
    assert subprocess.run(["mv", kept, fork], check=False).returncode == 0
    assert json.loads((fork / "session.json").read_bytes())["id"] == fork.name
    assert not kept.exists()
    kept.mkdir()
    (kept / "session.json").write_text("{")
    assert subprocess.run(["mv", kept, f"{fork}-2"], capture_output=True, check=False).returncode != 0
    assert (kept / "session.json").read_text() == "{"
    shutil.rmtree(kept)
    assert not Path(f"{fork}-2/session.json").exists()
    shutil.rmtree(f"{fork}-2", ignore_errors=True)
