"""The argument SESSION@V of commands that read the past, and its completion."""

from __future__ import annotations

from typing import Annotated

import typer

from fusefs.cli import completion

VERSION_HELP = "V: a version number, -1 (the one before), 2h, 10:32, a date, or a date and time."

VersionedName = Annotated[
    str,
    typer.Argument(
        metavar="SESSION[@V]",
        help=f"Session, or path of a state document; the newest version without @V. {VERSION_HELP}",
        autocompletion=completion.sessions,
    ),
]
RequiredVersion = Annotated[
    str,
    typer.Argument(
        metavar="SESSION@V",
        help=f"Session, or path of a state document. {VERSION_HELP}",
        autocompletion=completion.sessions,
    ),
]
