"""The manual page grovefs(1), from the very texts that --help shows: man."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from shutil import which
from typing import Annotated, Any

import typer

from fusefs.cli import load
from fusefs.cli.app import app
from fusefs.cli.terminal import echo

_OPENING = re.compile(r"^[.']", re.MULTILINE)

EXIT_STATUS = """\
0: all is well. 1: refused, not found, or something was left as it was; the text says what. 2: the command line is
wrong. `grep` answers as grep(1) does, `check` as fsck(8) does: 0 clean, 1 mended, 4 damage left, 8 could not run.
130: interrupted."""
ENVIRONMENT = {
    "GROVEFS_HOME": "The directory that holds the sessions, where --home is not given.",
    "BAMBOO_DATA_DIR": "The same, where GROVEFS_HOME is not set. Without either it is ~/.grovefs.",
    "VISUAL, EDITOR": "What `grovefs edit` opens.",
    "NO_COLOR": "If set, no colours.",
}
FILES = {
    "HOME/sessions/ID/session.json": "A conversation.",
    "HOME/.grovefs/": "The index, the trash, and the log of the mount.",
    "~/.config/systemd/user/grovefs-*.service": "What `grovefs mount --install-unit` wrote.",
}


@app.command()
def man(
    install: Annotated[
        bool, typer.Option("--install", help="Put it into ~/.local/share/man, where man(1) finds it.")
    ] = False,
) -> None:
    """Show the manual page; piped, print it for man(1) to format.

    Example: grovefs man --install && man grovefs
    """
    page = render()
    if install:
        base = os.environ.get("XDG_DATA_HOME")
        path = (Path(base) if base else Path.home() / ".local/share") / "man/man1/grovefs.1"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page)
        echo(f"{path}: written")
    elif sys.stdout.isatty() and which("man"):
        raise typer.Exit(subprocess.run(["man", "-l", "-"], input=page, text=True).returncode)
    else:
        sys.stdout.write(page)


def render() -> str:
    """The page in roff, in plain ASCII: every formatter takes that."""
    command = typer.main.get_command(load())
    root: Any = command.make_context("grovefs", [], resilient_parsing=True)
    lines = [
        f'.TH GROVEFS 1 "" "grovefs {version("grovefs")}" "User Commands"',
        ".SH NAME",
        f"grovefs \\- {_text(_plain_help(command).splitlines()[0])}",
        ".SH SYNOPSIS",
        ".B grovefs",
        ".I COMMAND",
        "[OPTIONS] [ARGUMENTS]",
        ".SH DESCRIPTION",
        *_paragraphs(_plain_help(command)),
        ".SH OPTIONS",
        *_parameters(command, root),
        ".SH COMMANDS",
        *_commands(command, root),
        ".SH EXIT STATUS",
        _text(EXIT_STATUS),
        ".SH ENVIRONMENT",
        *_terms(ENVIRONMENT),
        ".SH FILES",
        *_terms(FILES),
        ".SH SEE ALSO",
        _text("grep(1), rsync(1), systemd.unit(5), fstab(5), mount(8), mount.fuse3(8)"),
    ]
    return "\n".join(lines) + "\n"


def _commands(group: Any, context: Any) -> Iterator[str]:
    """Every command, those of a group (`mail send`) behind it."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        if hasattr(command, "list_commands"):
            yield from _commands(command, inner)
            continue
        usage = " ".join([inner.command_path, *command.collect_usage_pieces(inner)])
        yield f".SS {_text(usage)}"
        yield from _paragraphs(_plain_help(command))
        yield from _parameters(command, inner)


def _plain_help(command: Any) -> str:
    return inspect.cleandoc(command.help or "").replace("\f", "")


def _parameters(command: Any, context: Any) -> Iterator[str]:
    """Arguments, then options; what is said of every command, --help, is said once."""
    found = sorted(command.get_params(context), key=lambda parameter: parameter.param_type_name != "argument")
    for parameter in found:
        if parameter.name == "help" and context.parent is not None:
            continue
        record = parameter.get_help_record(context)
        if record is not None and record[1]:  # an argument that speaks for itself has none, a hidden option neither
            yield from _terms({record[0]: record[1]})


def _terms(terms: dict[str, str]) -> Iterator[str]:
    for term, text in terms.items():
        yield from (".TP", f".B {_text(term)}", _text(text))


def _paragraphs(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("\b"):
            yield from (".PP", ".nf", _text(block.removeprefix("\b").strip("\n")), ".fi")
        elif block:
            yield from (".PP", _text(block))


def _text(text: str) -> str:
    """Text that means nothing to the formatter."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    safe = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in escaped)
    return _OPENING.sub(lambda match: f"\\&{match[0]}", safe)
