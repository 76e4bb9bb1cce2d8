"""README.md and the help topics: every command block is run and must print what the page shows.

Each page has a fresh demo home. Only ids, times and sizes may differ. GROVEFS_README=write updates the pages.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pytest
from pictures.terminal import record, render

from tests.mount.conftest import daemons_of, wait_until
from tests.store.transfer.foreign import make_claude

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
TOPICS = sorted((ROOT / "fusefs/cli/topics").glob("*.md"))
PICTURE = ROOT / "scripts/pictures/terminal.svg"
MAX_LINES = 200  # of the README; longer texts are help topics
RUN, NOT_RUN = {"console", "python"}, {"text", "ini"}  # the info strings that a code fence may have
COLUMNS = 110
# "dumb" has no control sequences, so the text shown is the text printed. TABSIZE=0: ls aligns with spaces.
TERMINAL = {"TERM": "dumb", "COLUMNS": str(COLUMNS), "LINES": "50", "TABSIZE": "0"}
DEADLINE_S = 120.0  # for one command, on a busy machine
END = "\x1fdone\x1f"
# A help topic begins where the first block of the README ends.
TOPIC_SETUP = "./scripts/mount > /dev/null; export PATH=$PWD/.venv/bin:$PATH GROVEFS_HOME=$PWD/demo-home"
# One shell reads all commands from descriptor 9, so that its directory and its variables persist.
SHELL = f"""
exec 9<&"$1"
while IFS= read -r -d '' command <&9; do eval "$command" </dev/null 9<&-; printf '{END}\\n'; done
"""
FENCE = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1\n", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"(?:\A|\n(?<=\n\n))# .*\n(?=\$ )")  # a comment line between commands, after a blank line

# Ids, times and sizes, which differ between runs, and their replacements.
MASKS = [
    (r"\x1b\[[0-9;?]*[A-Za-z]", ""),  # colors
    (r"\b(mount|api|cli|revert): (\S+) \(\d+\)( +$| *)", r"\1: \2 <pid> "),  # the author of a version
    (r"\bby +(change|back to) *$", r"by \1"),
    (r"\d{4}-\d\d-\d\dT\d\d\.\d\d\.\d\d", "<time>"),  # in names of history/
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z| UTC)?", "<time>"),
    (r"\d{4}-\d\d-\d\d", "<day>"),
    (r"\d{4}/\d\d/\d\d", "<day>"),
    (r"[A-Z][a-z]{2} [ \d]\d +(\d\d:\d\d|\d{4})", "<time>"),  # in ls -l
    (r"^([-dl][rwxst-]{9}) +\d+ \S+ +\S+ +\d+", r"\1 <owner and size>"),
    (r"^total \d+", "total <size>"),
    (r"\d{20}-\S+-[0-9a-f]{8}", "<id>"),  # in the trash
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>"),
    (r"\bsed[A-Za-z0-9]{6}\b", "sed<id>"),
    (r"[\d.,]+ ([KMGT]i?B|bytes)", r"<size>"),
    (r"[\d,.]+ bytes/sec", "<size>"),
    (r"speedup is [\d.,]+", "speedup is <size>"),
    (r" +$", ""),
]


class Step(NamedTuple):
    """A command and the output that the page shows."""

    line: int
    command: str
    output: str


@dataclass
class Block:
    line: int
    kind: str
    text: str
    steps: list[Step] = field(default_factory=list)


def blocks(text: str) -> Iterator[Block]:
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        yield Block(line, match[2], match[3], list(steps(match[3], line)) if match[2] == "console" else [])


def steps(text: str, line: int) -> Iterator[Step]:
    """Split a block: `$ ` starts a command, `> ` continues it, other lines are output, except headings."""
    text = HEADING.sub(lambda heading: "\0\n" * heading[0].count("\n"), text)
    found: list[tuple[int, list[str], list[str]]] = []
    for number, content in enumerate(text.splitlines(), line):
        if content.startswith("$ "):
            found.append((number, [content[2:]], []))
        elif content.startswith("> ") and not found[-1][2]:
            found[-1][1].append(content[2:])
        elif content != "\0":
            found[-1][2].append(content)
    for number, command, output in found:
        yield Step(number, "\n".join(command), "".join(f"{content}\n" for content in output))


def masked(text: str) -> str:
    for pattern, instead in MASKS:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    return text


class Shell:
    """A shell on a terminal, in its own clone."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.clone = make_clone(place / "grovefs")
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        reads, self._commands = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", SHELL, "bash", str(reads)],
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=follower,
            pass_fds=[reads],
            cwd=self.clone,
            env=environment(place),
            start_new_session=True,
        )
        os.close(reads)
        os.close(follower)

    def run(self, command: str) -> str:
        os.write(self._commands, command.encode() + b"\0")
        shown, deadline = b"", time.monotonic() + DEADLINE_S
        while not shown.endswith(f"{END}\r\n".encode()):
            ready, _, _ = select.select([self._leader], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{command!r} never ended; it printed {shown.decode()!r}"
            shown += os.read(self._leader, 65536)
        text = shown.decode().replace("\r\n", "\n").removesuffix(f"{END}\n")
        return text.replace(str(self.place), "/home/me")

    def close(self) -> None:
        os.close(self._commands)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)  # if a command is still running
        self._process.wait(60)
        os.close(self._leader)
        mountpoint = self.clone / "mnt"
        subprocess.run(["fusermount3", "-uz", str(mountpoint)], capture_output=True, check=False)
        wait_until(lambda: not daemons_of(mountpoint), DEADLINE_S)


def environment(place: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {**kept, "HOME": str(place), "LC_ALL": "C.UTF-8", "TZ": "UTC", **TERMINAL}


def make_clone(clone: Path) -> Path:
    """The files of a clone that the pages use, with a .venv that runs this checkout."""
    shutil.copytree(ROOT / "scripts", clone / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, clone)
    (clone / "fusefs").mkdir()
    shutil.copy(ROOT / "fusefs/_fast.c", clone / "fusefs")
    programs = clone / ".venv/bin"
    programs.mkdir(parents=True)
    program = "from fusefs.cli import main; main()"
    for name, arguments in (("python", ""), ("python3", ""), ("grovefs", f"-c '{program}' ")):
        script = programs / name
        script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {arguments}"$@"\n')
        script.chmod(0o755)
    stamp = (
        "echo $(cat pyproject.toml constraints.txt fusefs/_fast.c | sha256sum | cut -d' ' -f1) dev > .venv/.installed"
    )
    subprocess.run(stamp, shell=True, cwd=clone, check=True)
    return clone


def play(text: str, place: Path, setup: str) -> Iterator[tuple[int, str, str, str]]:
    """Run all blocks; yields line, command, the output shown, and the real output."""
    shell = Shell(place)
    try:
        if setup:
            shell.run(setup)
        expected = None
        for block in blocks(text):
            for step in block.steps:
                yield step.line, step.command, step.output, shell.run(step.command)
            if block.kind == "python":
                expected = block, shell.run(f"python3 - <<'END_OF_PROGRAM'\n{block.text}END_OF_PROGRAM")
            elif block.kind == "text" and expected is not None:
                yield block.line, "the program above", block.text, expected[1]
                expected = None
        assert expected is None, "a python block must be followed by a text block with its output"
    finally:
        shell.close()


def differences(text: str, place: Path, setup: str = "") -> list[str]:
    found = []
    for line, command, shown, printed in play(text, place, setup):
        if masked(shown) != masked(printed):
            found.append(f"line {line}: {command}\n--- the page shows\n{shown}--- it prints\n{printed}")
    return found


def has_commands(page: Path) -> bool:
    return any(block.kind in RUN for block in blocks(page.read_text()))


def test_the_readme_is_short() -> None:
    """The rest is in the help topics."""
    assert README.read_text().count("\n") <= MAX_LINES


@pytest.mark.parametrize("page", [README, *TOPICS], ids=lambda page: page.stem)
def test_every_block_is_run_or_is_plain_text(page: Path) -> None:
    """A fence with `sh`, or without an info string, would be a block that no test runs."""
    kinds = {block.kind for block in blocks(page.read_text())}
    assert kinds <= RUN | NOT_RUN, kinds


@pytest.mark.parametrize(
    "page",
    [p for p in (README, *TOPICS) if any(b.kind in RUN for b in blocks(p.read_text()))],
    ids=lambda page: page.stem,
)
def test_a_page_shows_what_its_commands_print(page: Path, place: Path) -> None:
    """Repeated once if the day ended meanwhile: then "yesterday" is no longer the demo's."""
    setup = "" if page == README else TOPIC_SETUP
    make_claude(place / ".claude")
    if os.environ.get("GROVEFS_README") == "write":
        page.write_text(rewritten(page.read_text(), place, setup))
        return
    began = time.gmtime().tm_yday
    wrong = differences(page.read_text(), place, setup)
    if wrong and time.gmtime().tm_yday != began:
        again = place / "again"
        make_claude(again / ".claude")
        wrong = differences(page.read_text(), again, setup)
    assert not wrong, f"{page.name}: " + "\n".join(wrong)


def run_mount(clone: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """scripts/mount of a clone, called from its parent directory."""
    return subprocess.run(
        [clone / "scripts/mount", *arguments],
        cwd=clone.parent,
        env={**environment(clone.parent), **variables},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def test_mounting_a_missing_source_fails_and_creates_nothing(place: Path) -> None:
    """One line; neither a home nor a mountpoint is created, and nothing is installed."""
    clone = make_clone(place / "grovefs")
    before = sorted(place.rglob("*"))
    result = run_mount(clone, "./.claude")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == f"{clone}/scripts/mount: ./.claude does not exist; nothing was imported or mounted\n"
    assert sorted(place.rglob("*")) == before


def test_mount_of_a_relative_source_and_a_home_next_to_the_clone(place: Path) -> None:
    """SOURCE is relative to the caller; only a home inside the clone is shown relative to the clone."""
    clone = make_clone(place / "grovefs")
    make_claude(place / ".claude")
    home = f"{clone}-home"
    try:
        shown = run_mount(clone, ".claude", GROVEFS_HOME=home).stdout.splitlines()
    finally:
        run_mount(clone, "--stop")
    assert shown[0].startswith("claude-code: 4 new")
    assert shown[1] == f"{home} is mounted at ./mnt; ./mnt/README.md describes its contents."


def test_the_picture_shows_what_its_commands_print() -> None:
    """scripts/pictures/make draws it again."""
    assert render(record()) == PICTURE.read_text()


def rewritten(text: str, place: Path, setup: str) -> str:
    """The page with the real outputs."""
    lines = text.splitlines(keepends=True)
    changes = []
    for line, command, shown, printed in play(text, place, setup):
        start = line - 1 + (0 if command == "the program above" else command.count("\n") + 1)
        if masked(shown) != masked(printed):
            changes.append((start, shown.count("\n"), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed)))
    for start, count, printed in reversed(changes):
        lines[start : start + count] = [re.sub(r"[ \t]+$", "", row) + "\n" for row in printed.splitlines()]
    return "".join(lines)


SMALL = """\
```console
# First
$ cd /tmp && pwd
/tmp
$ pwd
/tmp

# Then
$ cat <<EOF
> made on 2026-01-01, and
> $((40 + 2))
> EOF
made on 2020-12-31, and
42
```

```python
print("one" + "two")
```

```text
onetwo
```
"""


@pytest.mark.parametrize(
    ("old", "new"), [("42\n```", "43\n```"), ("onetwo", "one two"), ("$ pwd\n/tmp", "$ pwd"), ("", "")]
)
def test_a_changed_output_is_found(place: Path, old: str, new: str) -> None:
    """In the output of a command or a program, and a missing line; only dates may differ."""
    assert len(differences(SMALL.replace(old, new) if old else SMALL, place)) == bool(old)


def test_masks_hide_ids_times_and_sizes_and_nothing_else() -> None:
    line = "-r--r--r-- 1 me me  618 Nov 16 11:17 draw-chart.md"
    assert masked(line) == masked("-r--r--r--  1 root root 44 Jan  2 09:00 draw-chart.md")
    assert masked(line) != masked(line.replace("chart", "chat"))
    assert masked("11 sessions: clean") != masked("12 sessions: clean")
