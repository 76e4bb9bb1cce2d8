"""Edit a session's document in an editor: edit.

The user's text is never lost. It is in a temporary file until it is saved. If the store rejects it, it is kept in the
home, as by the mount, or else stays in the temporary file, whose path is printed. The store is not open while the
editor runs; what others change meanwhile is merged when saving.
"""

from __future__ import annotations

import os
import re
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
from fusefs.cli.terminal import as_argument, echo
from store import Conflict, InvalidContent, InvalidName, Location, MergeConflict, NotFound, Store, StoreError, layout
from store.commit.write_request import WriteRequest
from store.disk.rejects import REASON, REJECTED, excerpt
from store.documents import document as documents
from store.errors import FileGone
from store.path_kinds import classify_path

CONFLICT = re.compile("newer version|since this copy was opened")  # in the reason of every conflict
SHOWN_LINES, SHOWN_COLUMNS = 60, 200  # of the diff
MAX_COMPARED_BYTES = 8 << 20  # difflib is slow
_EDITOR_VARIABLES = ("VISUAL", "EDITOR")


@app.command()
def edit(
    session: SessionName,
    home: Home,
    runtime: Annotated[
        bool,
        typer.Option("--runtime", help="Edit runtime.json (everything except the messages) instead of session.json."),
    ] = False,
    rejected: Annotated[
        bool, typer.Option("--rejected", help="Continue with the last rejected version, from here or from a mount.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Edit a session's document in $VISUAL or $EDITOR and save it when the editor exits.

    A document that its agent could not load is rejected with the line of the error, and you can edit it again. What
    others changed meanwhile is merged with your changes. Where both changed the same thing, the other version is
    kept, both values are shown, and you can edit again; your text is then in a file next to it. An unchanged
    document is not saved.

    A rejected document is kept in the home; a mount shows it as session.json.rejected, and --rejected continues
    with it. If it was rejected because of another change, --rejected first shows the difference to the current
    version. Saving then replaces the current version, which is kept in a file.

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
        print_json({"id": place, "document": name, "saved": saved})
    else:
        echo(f"{place}: saved" if saved else f"{place}: unchanged")


@dataclass
class _EditDraft:
    """A document being edited."""

    home: Path
    location: Location
    name: str
    original: bytes = b""  # as the editor got it
    base: bytes = b""  # the stored text that the edit starts from
    base_sidecar: bytes | None = None  # runtime.json at that time
    path: Path = Path()
    replaced: bytes | None = None  # the newer version that a save knowingly replaces

    def begin(self, *, rejected: bool) -> None:
        """Write a temporary copy. It keeps its name, so that editors recognise the file type."""
        self.path = Path(tempfile.mkdtemp(prefix="grovefs-edit-")) / self.name
        self._take(rejected=rejected)

    def _take(self, *, rejected: bool = False) -> None:
        with open_store(self.home) as store:
            present = store.get_document(self.location, self.name)
            self.base_sidecar = store.get_document(self.location, layout.RUNTIME)
            raw = self._rejected(store) if rejected else present
            if rejected and raw is not None:
                raw = self._catch_up(store, raw)
        if raw is None:
            missing = "there is no rejected version of" if rejected else "there is no"
            raise NotFound(f"{missing} {self.location.path(self.name)}; {self._advice()}")
        self.original, self.base = raw, present or b""
        self.path.write_bytes(raw)

    def _rejected(self, store: Store) -> bytes | None:
        path = store.names.rejects.path(self.location, f"{self.name}{REJECTED}")
        return (store.home / path).read_bytes() if path is not None else None

    def _catch_up(self, store: Store, raw: bytes) -> bytes:
        """Update a version that lost to a newer one so that it can replace that; show the difference."""
        path = store.names.rejects.path(self.location, f"{self.name}{REASON}")
        reason = (store.home / path).read_text(errors="replace") if path is not None else ""
        present = store.get_document(self.location, self.name)
        caught_up = documents.with_current_updated_at(raw, store.get_document(self.location, layout.SESSION) or b"")
        if present is not None and (CONFLICT.search(reason) or caught_up != raw):
            self.replaced = present
            self._compare(caught_up, present)
        return caught_up

    def _compare(self, raw: bytes, present: bytes) -> None:
        document = self.location.path(self.name)
        echo(f"{document} was changed by another writer, so your version was rejected.", err=True)
        echo("Saving your version changes the current one as follows:\n", err=True)
        echo("\n".join(_difference(present, raw)) + "\n", err=True)

    def _advice(self) -> str:
        others = [path for path in self._files() if path.stat().st_size]
        if not others:
            self.discard()
            return "nothing was changed"
        return f"your text is in {', '.join(map(str, others))}"

    def _files(self) -> list[Path]:
        return sorted(self.path.parent.iterdir()) if self.path.parent.is_dir() else []

    def edit(self) -> bool:
        """Edit until it is saved; False if nothing changed. Giving up exits the command."""
        while True:
            self._open()
            raw = self.path.read_bytes()
            if raw == self.original and not self._saves_unchanged():
                self.discard()
                return False
            try:
                is_changed = self._save(raw)
            except (StoreError, OSError) as error:
                self._explain(raw, error)
                has_newer = isinstance(error, Conflict) and not isinstance(error, FileGone)
            else:
                self._keep_replaced()
                self.discard()
                return is_changed
            if not _wants("Open the editor again?"):
                self.give_up(raw)
            if has_newer:
                self._reopen(raw)

    def _saves_unchanged(self) -> bool:
        """An unchanged text is saved only if it was rejected because of a newer version and the user confirms."""
        return self.replaced is not None and _wants("Replace the current version with it?", default=False)

    def _keep_replaced(self) -> None:
        if self.replaced is not None:
            kept = self._unused_path(".replaced")
            kept.write_bytes(self.replaced)
            echo(f"The replaced version is in {kept}.", err=True)

    def _open(self) -> None:
        try:
            run_editor(self.path)
        except StoreError as error:
            if self.path.exists() and self.path.read_bytes() != self.original:
                raise StoreError(f"{error}, so nothing was saved; your text is in {self.path}") from None
            self.discard()
            raise StoreError(f"{error}; nothing was changed") from None

    def _save(self, raw: bytes) -> bool:
        """Save as the mount does: a rejected text is kept in the home until the next successful save."""
        place = classify_path(self.location.path(self.name))
        with open_store(self.home) as store:
            if store.get_document(self.location, self.name) is None:
                raise FileGone(
                    f"session {self.location} was deleted or renamed meanwhile; `grovefs trash` lists deletions"
                )
            request = WriteRequest(place, raw, on_conflict="merge", base_text=self.base, base_sidecar=self.base_sidecar)
            result = store.names.commit(request)
            if result.is_changed and store.get_document(self.location, self.name) != raw:
                echo("Others changed the session meanwhile; it has their changes and yours.", err=True)
        return result.is_changed

    def _explain(self, raw: bytes, error: StoreError | OSError) -> None:
        state = "nothing was stored" if isinstance(error, FileGone) else "the previous version is unchanged"
        echo(f"{self.location.path(self.name)} was rejected; {state}.\n", err=True)
        echo(f"  {error}\n", err=True)
        lines = excerpt(raw, error) if isinstance(error, InvalidContent) else []
        if isinstance(error, MergeConflict):
            lines = [*error.explain(), ""]
        for line in lines:
            echo(line, err=True)

    def _reopen(self, raw: bytes) -> None:
        """Open the newer version and keep the user's text in a file next to it."""
        kept = self._unused_path(".yours")
        kept.write_bytes(raw)
        self._take()
        echo(f"Opening the newer version. Your text is in {kept}.", err=True)

    def _unused_path(self, ending: str) -> Path:
        numbered = (self.path.with_name(f"{self.name}{ending}{number or ''}") for number in range(1000))
        return next(path for path in numbered if not path.exists())

    def discard(self) -> None:
        """Delete the temporary file: it was saved, kept elsewhere, or unchanged. Texts set aside by a conflict stay."""
        self.path.unlink(missing_ok=True)
        for leftover in self._files():
            if leftover.name.endswith("~") or leftover.suffix in (".swp", ".bak"):  # backup files of editors
                leftover.unlink()
        left = self._files()
        if any(".yours" in file.name for file in left):
            echo(f"Your earlier text is in {self.path.parent}.", err=True)
        if not left:
            self.path.parent.rmdir()

    def give_up(self, raw: bytes) -> NoReturn:
        if self._is_kept(raw):
            self.discard()
            runtime = " --runtime" if self.name == layout.RUNTIME else ""
            again = f"`grovefs edit{runtime} --rejected {as_argument(str(self.location))}` continues with it"
            echo(f"grovefs: not saved; your text is kept: {again}", err=True)
        else:
            echo(f"grovefs: not saved; your text is in {self.path}", err=True)
        raise typer.Exit(1)

    def _is_kept(self, raw: bytes) -> bool:
        """Whether the home holds the text. It does not if, for example, the disk is full or the session was deleted."""
        try:
            with open_store(self.home) as store:
                return self._rejected(store) == raw
        except (StoreError, OSError):
            return False


def run_editor(path: Path) -> None:
    """Run the editor and wait. If it fails, it may not have saved the text."""
    command = editor_command()
    try:
        code = subprocess.run([*command, str(path)], check=False).returncode
    except OSError as error:
        raise NotFound(f"cannot start the editor {command[0]!r}: {error.strerror}; set $EDITOR") from None
    if code != 0:
        raise StoreError(f"the editor exited with code {code}")


def editor_command() -> Sequence[str]:
    """$VISUAL or $EDITOR, which may have arguments; else Debian's /usr/bin/editor, else vi."""
    named = next((os.environ[name] for name in _EDITOR_VARIABLES if os.environ.get(name, "").strip()), None)
    if named is None:
        return ["/usr/bin/editor" if Path("/usr/bin/editor").exists() else "vi"]
    try:
        return shlex.split(named)
    except ValueError as error:
        raise InvalidName(f"the editor {named!r} is not a command line: {str(error).lower()}; set $EDITOR") from None


def _difference(present: bytes, typed: bytes) -> Iterator[str]:
    """A unified diff, shortened to what a person reads."""
    if len(present) + len(typed) > MAX_COMPARED_BYTES:
        yield f"(too large to compare: {len(present)} bytes become {len(typed)})"
        return
    before, after = (text.decode(errors="replace").splitlines() for text in (present, typed))
    lines = [*unified_diff(before, after, "current version", "your version", lineterm="", n=1)]
    yield from (line if len(line) <= SHOWN_COLUMNS else f"{line[:SHOWN_COLUMNS]}…" for line in lines[:SHOWN_LINES])
    if len(lines) > SHOWN_LINES:
        yield f"… and {len(lines) - SHOWN_LINES} more lines"


def _wants(question: str, *, default: bool = True) -> bool:
    """Ask on standard error, which keeps piped output clean. End of input means no."""
    print(f"{question} {'[Y/n]' if default else '[y/N]'} ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    return bool(answer) and (answer.strip().lower() in ("y", "yes") or (default and not answer.strip()))
