"""The manual page grovefs(1), generated from the help texts: man."""

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
from fusefs.cli.commands.grep import HELP as GREP_HELP
from fusefs.cli.terminal import echo

_OPENING = re.compile(r"^[.']", re.MULTILINE)

EXIT_STATUS = """\
0: success. 1: rejected, not found, or incomplete; the message says what. 2: usage error. 130: interrupted. `grep` uses
the codes of grep(1), `check` those of fsck(8): 0 clean, 1 all damage repaired, 4 damage left, 8 could not run."""
ENVIRONMENT = {
    "GROVEFS_HOME": "Directory that holds the sessions, if --home is not given.",
    "BAMBOO_DATA_DIR": "The same, if GROVEFS_HOME is not set. The default is ~/.grovefs.",
    "VISUAL, EDITOR": "Editor run by `grovefs edit`.",
    "NO_COLOR": "Disables colours.",
}
FILES = {
    "HOME/sessions/ID/session.json": "A session: its messages and metadata.",
    "HOME/.grovefs/": "Index, trash, rejected documents, and the log of the mount.",
    "~/.config/systemd/user/grovefs-*.service": "Units written by `grovefs mount --install-unit`.",
}


@app.command()
def man(
    install: Annotated[
        bool, typer.Option("--install", help="Install it in ~/.local/share/man, where man(1) finds it.")
    ] = False,
) -> None:
    """Show the manual page; when piped, print its roff source.

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
    """The page in roff, in plain ASCII, which every formatter accepts."""
    command = typer.main.get_command(load())
    root: Any = command.make_context("grovefs", [], resilient_parsing=True)
    lines = [
        f'.TH GROVEFS 1 "" "grovefs {version("grovefs")}" "User Commands"',
        ".SH NAME",
        f"grovefs \\- {_text(_plain_help(command).splitlines()[0].rstrip('.'))}",
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
    """All commands. A group such as `mail` is described before its commands."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        if name == "grep":
            yield from _grep(command)
            continue
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        usage = " ".join([inner.command_path, *command.collect_usage_pieces(inner)])
        yield f".SS {_text(usage)}"
        yield from _paragraphs(_plain_help(command))
        if hasattr(command, "list_commands"):
            yield from _commands(command, inner)
        else:
            yield from _parameters(command, inner)


def _grep(command: Any) -> Iterator[str]:
    """`grovefs grep`, whose help is plain text because its options are those of GNU grep."""
    usage, _, text = GREP_HELP.partition("\n")
    yield f".SS {_text(usage.removeprefix('Usage: '))}"
    yield from _paragraphs(_plain_help(command))
    yield from (".PP", ".nf", _text(text.strip()), ".fi")


def _plain_help(command: Any) -> str:
    return inspect.cleandoc(command.help or "").replace("\f", "")


def _parameters(command: Any, context: Any) -> Iterator[str]:
    """Arguments, then options. --help and --home, which every command has, are listed once."""
    found = sorted(command.get_params(context), key=lambda parameter: parameter.param_type_name != "argument")
    for parameter in found:
        if parameter.name in ("help", "home") and context.parent is not None:
            continue
        record = parameter.get_help_record(context)
        if record is not None and record[1]:  # hidden options and arguments without a help text have none
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
    """Escape text so that the formatter prints it literally."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    safe = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in escaped)
    return _OPENING.sub(lambda match: f"\\&{match[0]}", safe)
