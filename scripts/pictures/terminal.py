"""Draw a terminal session as SVG: run commands on a mounted demo home in a pty and render what they print.

The commands are chosen to print no times or ids, so the picture is the same in every run. Its background is
part of the picture: it is readable on light and dark pages.

Usage: terminal.py FILE.svg
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent.parent
COLUMNS = 100
PROMPT = "\x1b[1;32m$\x1b[0m \x1b[1m{}\x1b[0m"
COMMANDS = [
    "ls mnt/sessions",
    'ls mnt/search/"race condition"',
    "grovefs search 'race role:assistant'",
    'sed \'s/"title": .*/"title": 5,/\' mnt/sessions/fix-login/session.json > edited.json',
    "cp edited.json mnt/sessions/fix-login/session.json",
    "head -n 8 mnt/sessions/fix-login/session.json.error",
    "grovefs grep -o 'Next file: .*_0042.c'",
]
# The template of rich without its web fonts, which README viewers do not load.
TEMPLATE = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
  <style>
    .{unique_id}-matrix {{
      font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
      font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
    }}
    {styles}
  </style>
  <defs>
    <clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
    </clipPath>
    {lines}
  </defs>
  {chrome}
  <g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
  </g>
</svg>
"""


@contextmanager
def demo_mount(directory: Path) -> Iterator[None]:
    """A demo home, mounted at `directory`/mnt."""
    home, mountpoint = directory / "home", directory / "mnt"
    subprocess.run([sys.executable, ROOT / "scripts/demo.py", home], check=True, stdout=subprocess.DEVNULL)
    grovefs = [sys.executable, "-c", "from fusefs.cli import main; main()"]
    subprocess.run([*grovefs, "mount", "--home", home, mountpoint], check=True, cwd=ROOT)
    try:
        yield
    finally:
        subprocess.run([*grovefs, "umount", mountpoint], check=True, cwd=ROOT)


def run_in_terminal(command: str, directory: Path) -> str:
    """What a command prints on a colour terminal."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    environment = {
        "PATH": f"{directory / 'bin'}:{os.environ['PATH']}",
        "HOME": str(directory),
        "GROVEFS_HOME": str(directory / "home"),
        "LC_ALL": "C.UTF-8",
        "TERM": "xterm-256color",
        "LS_COLORS": "di=1;34:ln=36",
    }
    with subprocess.Popen(
        ["bash", "--noprofile", "--norc", "-c", f'ls() {{ command ls --color=auto "$@"; }}\n{command}'],
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
        cwd=directory,
        env=environment,
    ):
        os.close(follower)
        output = b""
        with suppress(OSError):  # EIO: the last process has closed the terminal
            while data := os.read(leader, 65536):
                output += data
    os.close(leader)
    return output.decode().replace("\r\n", "\n")


def add_command(directory: Path) -> None:
    """Put a `grovefs` into `directory`/bin that runs this clone."""
    (directory / "bin").mkdir()
    script = directory / "bin/grovefs"
    script.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m fusefs.cli "$@"\n')
    script.chmod(0o755)


def record() -> str:
    """The whole session: each command behind a prompt, followed by its output."""
    # A daemon may still close its files after it was unmounted.
    with tempfile.TemporaryDirectory(prefix="grovefs-picture-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        add_command(directory)
        with demo_mount(directory):
            outputs = {command: run_in_terminal(command, directory) for command in COMMANDS}
    return "".join(f"{PROMPT.format(command)}\n{output}" for command, output in outputs.items())


def render(session: str) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(session))
    return console.export_svg(title="", code_format=TEMPLATE, unique_id="grovefs")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(render(record()))
