"""The README is true: every block in it is run, in order, on a fresh demo home, and prints what it says there.

Only ids, times and sizes may differ. GROVEFS_README=write puts what was really printed into the README.
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

from tests.mount.conftest import daemons_of, wait_until

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
# What a block may be, by the word behind its fence: run, or not to be run by anybody here.
RUN, NOT_RUN = {"console", "python"}, {"text", "ini"}
COLUMNS = 110
# One that erases nothing, so that what is shown is what was printed; ls shall not print tabs.
TERMINAL = {"TERM": "dumb", "COLUMNS": str(COLUMNS), "LINES": "50", "TABSIZE": "0"}
DEADLINE_S = 120.0  # for one command, on a busy machine
END = "\x1fdone\x1f"
# Each command comes over descriptor 9, and is run by one shell, which so remembers where it is and what was exported.
SHELL = f"""
exec 9<&"$1"
while IFS= read -r -d '' command <&9; do eval "$command" </dev/null 9<&-; printf '{END}\\n'; done
"""
FENCE = re.compile(r"^(`{3,})(\w*)\n(.*?)^\1\n", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"(?:\A|\n(?<=\n\n))# .*\n(?=\$ )")  # a line for people, with a blank one before it

# Ids, times and sizes: the first groups that match are kept, the rest is the same everywhere.
MASKS = [
    (r"\x1b\[[0-9;?]*[A-Za-z]", ""),  # colours
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z| UTC)?", "<time>"),
    (r"\d{4}-\d\d-\d\d", "<day>"),
    (r"\d{4}/\d\d/\d\d", "<day>"),
    (r"[A-Z][a-z]{2} [ \d]\d +(\d\d:\d\d|\d{4})", "<time>"),  # of ls -l
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
    """A command of the README, and what it prints there."""

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
    """`$ ` begins a command, `> ` goes on with it, all else is what it prints: but for headings between them."""
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
    """A person at a terminal, in a clone of their own. What they see is what a command prints."""

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
            os.killpg(self._process.pid, signal.SIGTERM)  # what never ended, if something did not
        self._process.wait(60)
        os.close(self._leader)
        mountpoint = self.clone / "mnt"
        subprocess.run(["fusermount3", "-uz", str(mountpoint)], capture_output=True, check=False)
        wait_until(lambda: not daemons_of(mountpoint), DEADLINE_S)


def environment(place: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {**kept, "HOME": str(place), "LC_ALL": "C.UTF-8", "TZ": "UTC", **TERMINAL}


def make_clone(clone: Path) -> Path:
    """What `git clone` brings as far as it matters here, and the .venv that scripts/setup would make: ours."""
    shutil.copytree(ROOT / "scripts", clone / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, clone)
    programs = clone / ".venv/bin"
    programs.mkdir(parents=True)
    program = "from fusefs.cli import main; main()"
    for name, arguments in (("python", ""), ("python3", ""), ("grovefs", f"-c '{program}' ")):
        script = programs / name
        script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {arguments}"$@"\n')
        script.chmod(0o755)
    stamp = "echo $(cat pyproject.toml constraints.txt | sha256sum | cut -d' ' -f1) dev > .venv/.installed"
    subprocess.run(stamp, shell=True, cwd=clone, check=True)
    return clone


def play(text: str, place: Path) -> Iterator[tuple[int, str, str, str]]:
    """Run all of it; line, command, what stands there, and what was printed."""
    shell = Shell(place)
    try:
        expected = None
        for block in blocks(text):
            for step in block.steps:
                yield step.line, step.command, step.output, shell.run(step.command)
            if block.kind == "python":
                expected = block, shell.run(f"python3 - <<'END_OF_PROGRAM'\n{block.text}END_OF_PROGRAM")
            elif block.kind == "text" and expected is not None:
                yield block.line, "the program above", block.text, expected[1]
                expected = None
        assert expected is None, "a program without a block of text that says what it prints"
    finally:
        shell.close()


def differences(text: str, place: Path) -> list[str]:
    found = []
    for line, command, stands, printed in play(text, place):
        if masked(stands) != masked(printed):
            found.append(f"README.md:{line}: {command}\n--- it says\n{stands}--- it prints\n{printed}")
    return found


def test_every_block_of_the_readme_is_run_or_cannot_be() -> None:
    """`sh`, or a fence without a word, would be a block that nobody vouches for."""
    kinds = {block.kind for block in blocks(README.read_text())}
    assert "console" in kinds
    assert kinds <= RUN | NOT_RUN, kinds


def test_the_readme_prints_what_it_says(place: Path) -> None:
    """If the day ended meanwhile, yesterday is another day than the demo's: then once more."""
    if os.environ.get("GROVEFS_README") == "write":
        README.write_text(rewritten(README.read_text(), place))
        return
    began = time.gmtime().tm_yday
    wrong = differences(README.read_text(), place)
    if wrong and time.gmtime().tm_yday != began:
        again = place / "again"
        again.mkdir()
        wrong = differences(README.read_text(), again)
    assert not wrong, "\n".join(wrong)


def rewritten(text: str, place: Path) -> str:
    """The README with what was really printed."""
    lines = text.splitlines(keepends=True)
    changes = []
    for line, command, stands, printed in play(text, place):
        start = line - 1 + (0 if command == "the program above" else command.count("\n") + 1)
        if masked(stands) != masked(printed):
            changes.append((start, stands.count("\n"), re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed)))
    for start, count, printed in reversed(changes):
        lines[start : start + count] = [re.sub(r"[ \t]+$", "", row) + "\n" for row in printed.splitlines()]
    return "".join(lines)


SMALL = """\
```console
# To begin with
$ cd /tmp && pwd
/tmp
$ pwd
/tmp

# And then
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
def test_a_changed_output_is_noticed(place: Path, old: str, new: str) -> None:
    """In what a command prints, in what a program prints, and if a line is missing; days alone may differ."""
    assert len(differences(SMALL.replace(old, new) if old else SMALL, place)) == bool(old)


def test_masks_hide_ids_times_and_sizes_and_nothing_else() -> None:
    line = "-r--r--r-- 1 me me  618 Nov 16 11:17 draw-chart.md"
    assert masked(line) == masked("-r--r--r--  1 root root 44 Jan  2 09:00 draw-chart.md")
    assert masked(line) != masked(line.replace("chart", "chat"))
    assert masked("11 sessions: clean") != masked("12 sessions: clean")
