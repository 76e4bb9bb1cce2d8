"""Edit a session's document in an editor: edit.

What was typed is never lost: it lies in a file of its own until it is saved; what is refused is kept in the home, where
the mount keeps it too, or if that cannot be in that file, and it is said where. The store is not held while the editor
is open; whether the session changed meanwhile is seen when saving.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fusefs.cli.app import Home, Json, SessionName, app, open_store, print_json
from fusefs.cli.terminal import echo
from store import Conflict, InvalidContent, Location, NotFound, Store, StoreError, Version, layout
from store.commit.write_request import WriteRequest
from store.disk.rejects import REASON, REJECTED, excerpt
from store.documents import document as documents
from store.path_kinds import classify_path

NEWER_STANDS = "the newer version is kept"  # in the reason of every conflict
SHOWN_LINES, SHOWN_COLUMNS = 60, 200  # of what differs
MOST_COMPARED_BYTES = 8 << 20  # difflib takes its time
_INSTEAD = ("VISUAL", "EDITOR")


@app.command()
def edit(
    session: SessionName,
    home: Home,
    runtime: Annotated[
        bool, typer.Option("--runtime", help="Edit runtime.json, all but the messages, instead of session.json.")
    ] = False,
    rejected: Annotated[
        bool, typer.Option("--rejected", help="Go on with what was refused last, here or through a mount.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Open a session's document in $VISUAL or $EDITOR, and save it when the editor ends.

    A document that its agent could not load is refused, with the line in question, and you may go on editing. If
    someone else changed the session meanwhile, theirs stands and yours is kept beside it. Nothing changed, nothing
    saved. What is refused in the end is kept in the home, shown by a mount as session.json.rejected, and --rejected
    goes on with it. If it was refused because someone else had changed the session, you see first how what stands now
    differs; what you then save takes its place, and what it replaced is kept in a file.

    Example: EDITOR=nano grovefs edit fix-login
    """
    name = layout.RUNTIME if runtime else layout.SESSION
    with open_store(home) as store:
        location = store.resolve(session)
    draft = _EditDraft(home, location, name)
    draft.begin(rejected=rejected)
    saved = draft.edit()
    place = str(location)
    if as_json:
        print_json({"session": place, "document": name, "saved": saved})
    else:
        echo(f"{place}: saved" if saved else f"{place}: nothing was changed")


@dataclass
class _EditDraft:
    """One document on its way through an editor."""

    home: Path
    location: Location
    name: str
    base: Version | None = None
    original: bytes = b""
    path: Path = Path()
    replaced: bytes | None = None  # someone else's version that a save now takes the place of, knowingly

    def begin(self, *, rejected: bool) -> None:
        """A copy to work on, named so that an editor knows what it is."""
        self.path = Path(tempfile.mkdtemp(prefix="grovefs-edit-")) / self.name
        self._take(rejected=rejected)

    def _take(self, *, rejected: bool = False) -> None:
        with open_store(self.home) as store:
            self.base = store.version(self.location)
            raw = self._refused(store) if rejected else store.get_document(self.location, self.name)
            if rejected and raw is not None:
                raw = self._catch_up(store, raw)
        if raw is None:
            missing = "nothing refused is kept of" if rejected else "there is no"
            raise NotFound(f"{missing} {self.location.path(self.name)}; {self._advice()}")
        self.original = raw
        self.path.write_bytes(raw)

    def _refused(self, store: Store) -> bytes | None:
        path = store.names.rejects.path(self.location, f"{self.name}{REJECTED}")
        return (store.home / path).read_bytes() if path is not None else None

    def _catch_up(self, store: Store, raw: bytes) -> bytes:
        """What was refused for the sake of a newer version, as it may take the place of that now; which is shown."""
        path = store.names.rejects.path(self.location, f"{self.name}{REASON}")
        reason = (store.home / path).read_text(errors="replace") if path is not None else ""
        present = store.get_document(self.location, self.name)
        caught_up = documents.with_current_updated_at(raw, store.get_document(self.location, layout.SESSION) or b"")
        if present is not None and (NEWER_STANDS in reason or caught_up != raw):
            self.replaced = present
            self._compare(caught_up, present)
        return caught_up

    def _compare(self, raw: bytes, present: bytes) -> None:
        document = self.location.path(self.name)
        echo(f"{document} was changed by someone else, and what you typed was refused.", err=True)
        echo("If you save what is opened now, this happens to what stands there:\n", err=True)
        echo("\n".join(_difference(present, raw)) + "\n", err=True)

    def _advice(self) -> str:
        others = [path for path in self._files() if path.stat().st_size]
        if not others:
            self.discard()
            return "nothing was changed"
        return f"what you typed is in {', '.join(map(str, others))}"

    def _files(self) -> list[Path]:
        return sorted(self.path.parent.iterdir()) if self.path.parent.is_dir() else []

    def edit(self) -> bool:
        """Until it is saved, or given up, which ends the command; False if there was nothing to save."""
        while True:
            self._open()
            raw = self.path.read_bytes()
            if raw == self.original and not self._wants_as_it_is():
                self.discard()
                return False
            error = self._save(raw)
            if error is None:
                self._keep_replaced()
                self.discard()
                return True
            self._explain(raw, error)
            if not _wants("Open the editor again?"):
                self.give_up(raw)
            if isinstance(error, Conflict):
                self._begin_anew(raw)

    def _wants_as_it_is(self) -> bool:
        """Nothing changed is nothing to save, unless it was refused before for no fault of its own."""
        return self.replaced is not None and _wants("Save it in the place of what stands now?", default=False)

    def _keep_replaced(self) -> None:
        if self.replaced is not None:
            kept = self._free(".replaced")
            kept.write_bytes(self.replaced)
            echo(f"What it replaced is in {kept}.", err=True)

    def _open(self) -> None:
        try:
            run_editor(self.path)
        except StoreError as error:
            if self.path.exists() and self.path.read_bytes() != self.original:
                raise StoreError(f"{error}, so nothing was saved; what you typed is in {self.path}") from None
            self.discard()
            raise StoreError(f"{error}; nothing was changed") from None

    def _save(self, raw: bytes) -> StoreError | OSError | None:
        """As the mount would: what is refused is kept in the home, and gone with the next good save."""
        try:
            with open_store(self.home) as store:
                if store.get_document(self.location, self.name) is None:
                    return Conflict(f"session {self.location} was deleted meanwhile; `grovefs undelete` lists it")
                store.names.commit(WriteRequest(classify_path(self.location.path(self.name)), raw, self.base))
        except (StoreError, OSError) as error:
            return error
        return None

    def _explain(self, raw: bytes, error: StoreError | OSError) -> None:
        echo(f"{self.location.path(self.name)} was rejected; the previous version is unchanged.\n", err=True)
        echo(f"  {error}\n", err=True)
        for line in excerpt(raw, error) if isinstance(error, InvalidContent) else ():
            echo(line, err=True)

    def _begin_anew(self, raw: bytes) -> None:
        """The newer version is opened; what was typed lies beside it, to be taken over from there."""
        kept = self._free(".yours")
        kept.write_bytes(raw)
        self._take()
        echo(f"The newer version is opened. What you typed is in {kept}.", err=True)

    def _free(self, ending: str) -> Path:
        numbered = (self.path.with_name(f"{self.name}{ending}{number or ''}") for number in range(1000))
        return next(path for path in numbered if not path.exists())

    def discard(self) -> None:
        """It is saved, kept elsewhere, or was never changed. What a conflict has set aside stays."""
        self.path.unlink(missing_ok=True)
        for leftover in self._files():
            if leftover.name.endswith("~") or leftover.suffix in (".swp", ".bak"):  # what editors leave behind
                leftover.unlink()
        left = self._files()
        if any(".yours" in file.name for file in left):
            echo(f"What you typed before is kept in {self.path.parent}.", err=True)
        if not left:
            self.path.parent.rmdir()

    def give_up(self, raw: bytes) -> NoReturn:
        if self._is_kept(raw):
            self.discard()
            runtime = " --runtime" if self.name == layout.RUNTIME else ""
            again = f"`grovefs edit{runtime} --rejected {self.location}` goes on with it"
            echo(f"grovefs: not saved; what you typed is kept: {again}", err=True)
        else:
            echo(f"grovefs: not saved; what you typed is in {self.path}", err=True)
        raise typer.Exit(1)

    def _is_kept(self, raw: bytes) -> bool:
        """Not if the disk is full, say, or the session is gone."""
        try:
            with open_store(self.home) as store:
                return self._refused(store) == raw
        except (StoreError, OSError):
            return False


def run_editor(path: Path) -> None:
    """Wait for the editor to end. One that fails has saved nothing, as far as anybody can tell."""
    command = editor_command()
    try:
        code = subprocess.run([*command, str(path)], check=False).returncode
    except OSError as error:
        raise NotFound(f"the editor {command[0]!r} does not start: {error.strerror}; set $EDITOR") from None
    if code != 0:
        raise StoreError(f"the editor ended with code {code}")


def editor_command() -> Sequence[str]:
    """$VISUAL or $EDITOR, which may have arguments; else what Debian says, else vi."""
    named = next((os.environ[name] for name in _INSTEAD if os.environ.get(name, "").strip()), None)
    return shlex.split(named) if named else ["/usr/bin/editor" if Path("/usr/bin/editor").exists() else "vi"]


def _difference(present: bytes, typed: bytes) -> Iterator[str]:
    """Line by line, of what a person can look through."""
    if len(present) + len(typed) > MOST_COMPARED_BYTES:
        yield f"(too long to be compared here: {len(present)} bytes become {len(typed)})"
        return
    before, after = (text.decode(errors="replace").splitlines() for text in (present, typed))
    lines = [*unified_diff(before, after, "what stands now", "what you typed", lineterm="", n=1)]
    yield from (line if len(line) <= SHOWN_COLUMNS else f"{line[:SHOWN_COLUMNS]}…" for line in lines[:SHOWN_LINES])
    if len(lines) > SHOWN_LINES:
        yield f"… and {len(lines) - SHOWN_LINES} lines more"


def _wants(question: str, *, default: bool = True) -> bool:
    """On standard error, so that what is piped stays clean; the end of the input is a no."""
    print(f"{question} {'[Y/n]' if default else '[y/N]'} ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    return bool(answer) and (answer.strip().lower() in ("y", "yes") or (default and not answer.strip()))
