"""Print the end of a conversation and follow it: tail."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, Any

import orjson
import typer

from fusefs.cli.app import Home, Json, SessionName, app, open_store
from fusefs.cli.terminal import echo
from fusefs.cli.transcript_terminal import render_transcript
from store import Corrupt, Location, NotFound, Session, Store
from store.documents.transcript import render_message

WAIT_S = 1.0  # polling interval: direct edits of the files are not in the change feed


@app.command()
def tail(
    session: SessionName,
    home: Home,
    lines: Annotated[int, typer.Option("--messages", "-n", min=0, help="Number of messages to print.")] = 10,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Print new messages as they arrive, until Ctrl-C or the session is deleted."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the last messages of a session; with -f follow it.

    With --json each message is one line.

    Example: grovefs tail -f fix-login
    """
    with open_store(home) as store:
        reader = _TailReader(store, store.resolve(session), as_json=as_json)
        try:
            reader.begin(lines)
            while follow:
                reader.wait()
        except KeyboardInterrupt:
            return
        except BrokenPipeError:  # the reader, such as `| head`, has exited
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@dataclass
class _TailReader:
    """Tracks which messages were printed and prints new ones."""

    store: Store
    location: Location
    as_json: bool
    shown: list[bytes] = field(default_factory=list)  # digests of the messages printed or skipped so far
    status: str | None = None

    def begin(self, count: int) -> None:
        self.cursor = self.store.feed.since().cursor
        self.version = self.store.version(self.location)
        session = self._load()
        self.status = session.last_run_status
        messages = _dumped(session)
        start = max(0, len(messages) - count)
        self.shown = list(map(_digest, messages[:start]))
        self._show(messages)

    def wait(self) -> None:
        """Wait for a change or the polling interval, then print new messages."""
        self.cursor = self.store.feed.wait(self.cursor, WAIT_S).cursor
        version = self.store.version(self.location)
        if version == self.version:
            return
        try:
            session = self._load()
        except Corrupt:  # being written in place: retried when it is complete
            return
        self.version = version
        self._show(_dumped(session))
        if session.last_run_status != self.status:
            self.status = session.last_run_status
            self._note(f"run status: {self.status or 'unknown'}")

    def _load(self) -> Session:
        session = self.store.load(str(self.location))
        if session is None:
            raise NotFound(f"session {self.location} was deleted; `grovefs trash` lists deletions")
        return session

    def _show(self, messages: Sequence[dict[str, Any]]) -> None:
        digests = list(map(_digest, messages))
        known = len(self.shown)
        if digests[:known] != self.shown:
            self._note("earlier messages were edited")
            known = next(
                (i for i, pair in enumerate(zip(digests, self.shown, strict=False)) if pair[0] != pair[1]), len(digests)
            )
        for index in range(known, len(messages)):
            self._print(messages[index], index)
        self.shown = digests
        sys.stdout.flush()

    def _print(self, message: dict[str, Any], index: int) -> None:
        if self.as_json:
            sys.stdout.buffer.write(orjson.dumps({"index": index, **message}) + b"\n")
            return
        text = render_message(message, index, lambda url: url, marked=sys.stdout.isatty()).lstrip("\n")
        if sys.stdout.isatty():
            sys.stdout.write(render_transcript(text))
        else:
            sys.stdout.buffer.write(f"{text}\n".encode(errors="replace"))

    def _note(self, text: str) -> None:
        """Print a note on standard error, apart from the conversation."""
        echo(f"-- {text} --", err=True)


def _dumped(session: Session) -> list[dict[str, Any]]:
    return [message.model_dump() for message in session.messages]


def _digest(message: dict[str, Any]) -> bytes:
    return blake2b(orjson.dumps(message, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
