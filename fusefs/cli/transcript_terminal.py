"""A transcript on a terminal: Markdown rendered, times in the local zone, reasoning and results dimmed.

The text is a marked transcript, so a message cannot pretend to be another one or a tool call.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from fusefs.cli.terminal import clean
from store.documents.transcript import BLOCK_MARKS, FACT_MARK, PIECE_MARK, BlockKind

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_ROLES = {"user": "bold green", "assistant": "bold cyan", "tool": "bold yellow", "system": "bold blue"}
_HEADING = re.compile(r"\[\d+\] (\w+)")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) (UTC|[+-]\d\d:\d\d)\b")
_KINDS: dict[str, BlockKind] = {mark: kind for kind, mark in BLOCK_MARKS.items()}
_BLOCK = re.compile(f"\n([{''.join(_KINDS)}])")


def render_transcript(text: str) -> str:
    """A whole marked transcript, or one message of it, in the colours and the width of this terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    head, *pieces = f"\n{text}".split(f"\n##{PIECE_MARK}")
    with console.capture() as capture:
        if head.strip():
            _print_header(console, head.strip("\n"))
        for piece in pieces:
            _print_piece(console, piece.rstrip("\n"))
    return capture.get()


def _print_header(console: Console, head: str) -> None:
    from rich.text import Text

    title, *facts = head.split("\n")
    console.print(Text(clean(title.removeprefix("# ")), "bold underline"))
    for fact in facts:
        console.print(Text(clean(local_times(fact)), "dim"))


def _print_piece(console: Console, piece: str) -> None:
    from rich.text import Text

    heading, *blocks = _BLOCK.split(piece)
    role = _HEADING.match(heading)
    style = _ROLES.get(role[1], "bold") if role else "bold"
    console.print()
    console.print(Text(clean(local_times(heading.replace(FACT_MARK, " "))), style))
    for mark, text in zip(blocks[::2], blocks[1::2], strict=True):
        console.print()
        console.print(_rendered(_KINDS[mark], clean(text)))


def _rendered(kind: BlockKind, text: str) -> RenderableType:
    from rich.markdown import Markdown
    from rich.text import Text

    if kind == "prose":
        return Markdown(text, hyperlinks=False, code_theme="ansi_dark")
    if kind == "call":
        first, _, rest = text.partition("\n")
        return Text.assemble((first, "bold magenta"), ("\n" if rest else ""), rest)
    return Text(text, "dim italic" if kind in ("reasoning", "ocr") else "dim" if kind == "result" else "")


def local_times(line: str) -> str:
    """A line with its times in the local time zone."""
    return _TIME.sub(lambda found: _local(found[0]), line)


def _local(text: str) -> str:
    moment = datetime.fromisoformat(text.replace(" UTC", "+00:00").replace(" ", "T", 1).replace(" ", ""))
    try:
        return f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    except (OverflowError, ValueError):  # at the ends of the calendar
        return text
