"""Save one imported session: decide between new, updated, merged and kept, and commit all its files at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import orjson

from store import layout
from store.commit import session_reader
from store.commit.agreement import repeats
from store.commit.commit import Commit
from store.commit.commits import Commits
from store.commit.core import Core
from store.commit.session_reader import DocumentPair
from store.disk.file import NewFile
from store.documents import document as documents
from store.documents import json_text, secrets, sidecar
from store.documents.document import Document, parse_document
from store.documents.json_splice import splice
from store.errors import InvalidContent, InvalidName, Problem
from store.index.prepared_messages import PreparedMessages
from store.layout import Location
from store.sessions import artifacts
from store.transfer.digests import HashedChunks
from store.transfer.formats.coerce import source_host
from store.transfer.formats.importer import SessionDraft, SourceFile
from store.transfer.import_merge import MergedImport, merge_import
from store.transfer.import_receipts import Receipt, digest_file, digest_members, digest_messages, load_receipt

ImportState = Literal["new", "updated", "unchanged", "kept", "deleted"]


class ImportOutcome(NamedTuple):
    """The result for one session. `reason` says why a session, or a part of it, was kept as it is."""

    location: Location
    state: ImportState
    path: str
    reason: str | None = None
    followed: str | None = None  # the file whose new lines can be appended to it


class _Decision(NamedTuple):
    state: ImportState
    reason: str | None = None
    merged: MergedImport | None = None  # None: the draft is written as it is
    is_base: bool = False  # nothing is written, but the next import compares with the draft


@dataclass(frozen=True)
class DraftSaver:
    core: Core
    commits: Commits

    @repeats
    def save(self, draft: SessionDraft, *, dry_run: bool, overwrite: bool, was_imported: bool = False) -> ImportOutcome:
        """Save a draft if it is new or has changed. Raises if the saved session could not be loaded.

        `was_imported`: the session here is known to be this one, also if it has lost its receipt.
        """
        if not dry_run:
            self.core.check_writable()
        main, side = self._checked(draft)
        receipt = self._receipt(draft, main, side)
        with self.core.locked(draft.location):
            pair = self.core.read(draft.location)
            known = load_receipt(self.core.disk, draft.location)
            if known is None and pair.main is not None:
                is_same = pair.main.data == main.raw
                decision = _decide_without_receipt(is_same=is_same, was_imported=was_imported, overwrite=overwrite)
            else:
                decision = self._decide(draft, main.raw, receipt, known, pair, overwrite=overwrite)
            if decision.state in ("new", "updated") and not dry_run:
                full = self._with_digests(draft, main, receipt)
                prepared = draft.messages.prepared if draft.messages is not None else None
                if decision.merged is not None:
                    (main, side), prepared = self._merged(pair, decision.merged), None
                self._commit(draft, full, known, pair, main, side, prepared, overwrite=overwrite)
            elif decision.is_base and not dry_run:
                self._commit_base(draft, self._with_digests(draft, main, receipt), known)
        followed = draft.cursor["file"]["path"] if draft.cursor else None
        return ImportOutcome(draft.location, decision.state, draft.path, decision.reason, followed)

    def _checked(self, draft: SessionDraft) -> tuple[Document, bytes]:
        layout.check_new(draft.location)
        path, limit = draft.location.path(layout.SESSION), self.core.limit_bytes
        if draft.data is not None and draft.messages is not None and draft.messages.is_valid:
            main = documents.validate_rendered(draft.main, draft.data, path, limit=limit)
        elif draft.data is not None:
            main = parse_document(draft.main, path, limit=limit)  # raises: a message is not valid
        else:
            main = _without_keys(draft.main, path, limit)
        problem = documents.identity_problem(main, draft.location)
        if problem is not None:
            raise InvalidContent(path, problem)
        documents.check_authority(main, path)
        for file in draft.files:
            _check_name(file.name)
            if file.name in layout.RECORDS:
                artifacts.parse_record(file.name, b"".join(file.read()), draft.location.path(file.name), limit=limit)
        if draft.data is not None:  # the same as below: there are no messages in it
            return main, json_text.render(draft.data)
        if draft.side is None:
            return main, sidecar.sidecar_of(main.raw, main.data)
        return main, _without_keys(draft.side, draft.location.path(layout.RUNTIME), limit).raw

    # -- the decision ----------------------------------------------------------------------------------

    def _decide(
        self,
        draft: SessionDraft,
        main: bytes,
        receipt: Receipt,
        known: Receipt | None,
        pair: DocumentPair,
        *,
        overwrite: bool,
    ) -> _Decision:
        """`main` is the session.json of the draft as it may be stored: `draft.main` may contain API keys."""
        if pair.main is None:
            added = {file.name: receipt.files[file.name] for file in draft.files}
            foreign = self.changed(draft.location, added, absent_ok=True)
            return _Decision("kept", f"{foreign} already exists here") if foreign else _Decision("new")
        assert known is not None
        if not known.is_from(receipt):
            return _Decision("kept", f"the session with this id was imported from {known.format} {known.source_id}")
        if overwrite:
            return _Decision("updated" if self.changed(draft.location, receipt.files) else "unchanged")
        if known.files == receipt.files:
            return _Decision("unchanged")
        source = orjson.loads(main)
        changed = self.changed(draft.location, {name: known.files[name] for name in layout.DOCUMENTS})
        if changed is None and _count_lost(pair.main.data, source, draft.moved) == 0:
            return _Decision("updated", self._kept_files(draft, known, receipt))
        if not all(message.get("id") for message in (*orjson.loads(pair.main.data)["messages"], *source["messages"])):
            return _Decision("kept", "both sides have changed, and messages without ids cannot be merged")
        if not known.can_merge:
            return _Decision("kept", f"{changed or 'the source'} has changed since an import by an older version")
        return self._decide_merge(draft, receipt, known, pair, source)

    def _decide_merge(
        self, draft: SessionDraft, receipt: Receipt, known: Receipt, pair: DocumentPair, source: dict[str, Any]
    ) -> _Decision:
        here = _members_of(pair)
        merged = merge_import(known, here, source, draft.moved)
        reasons = []
        if merged.clashes:
            names = ", ".join(merged.clashes[:3])
            reasons.append(f"{_messages(merged.clashes)} changed both here and in the source, kept as here: {names}")
        if merged.lost:
            reasons.append(f"no longer in the source, kept here: {_messages(range(merged.lost))}")
        kept = self._kept_files(draft, known, receipt)
        reason = "; ".join([*reasons, *([kept] if kept else [])]) or None
        is_same = {**merged.data, "updated_at": ""} == {**here, "updated_at": ""}
        if is_same and (merged.clashes or merged.lost):
            return _Decision("kept", reason)
        if is_same and len(self._changed_files(draft, receipt, known, overwrite=False)) == 1:  # only the receipt
            return _Decision("unchanged", reason, is_base=True)
        return _Decision("updated", reason, merged)

    def _kept_files(self, draft: SessionDraft, known: Receipt, receipt: Receipt) -> str | None:
        """Which files stay as they are here although the source changed them; None if there are none."""
        names = [file.name for file in draft.files if not self._may_write(file.name, draft.location, known, receipt)]
        return f"{', '.join(names[:3])} changed here and in the source; kept" if names else None

    def _may_write(self, name: str, location: Location, known: Receipt | None, receipt: Receipt) -> bool:
        """Whether a file here is as it was imported, absent, or equal to the new one."""
        found = self.core.disk.read(location.path(name))
        was = known.files.get(name) if known else None
        return found is None or digest_file(found.data) in (was, receipt.files[name])

    def changed(self, location: Location, files: dict[str, str], *, absent_ok: bool = False) -> str | None:
        """The first file that differs from its digest in a receipt; None if all match."""
        for name, digest in files.items():
            found = self.core.disk.read(location.path(name))
            if (found is None and not absent_ok) or (found is not None and digest_file(found.data) != digest):
                return name
        return None

    # -- the base of the next import -------------------------------------------------------------------

    def receipt_of(self, draft: SessionDraft) -> Receipt:
        """The receipt that a session gets if this draft is imported."""
        main, side = self._checked(draft)
        return self._with_digests(draft, main, self._receipt(draft, main, side))

    def _receipt(self, draft: SessionDraft, main: Document, side: bytes) -> Receipt:
        files = _digests(draft) | {layout.SESSION: digest_file(main.raw), layout.RUNTIME: digest_file(side)}
        return Receipt(draft.format, qualified_id(draft), files, session=str(draft.location))

    def _with_digests(self, draft: SessionDraft, main: Document, receipt: Receipt) -> Receipt:
        messages, members = _message_digests(draft, main), digest_members(main.data)
        return replace(receipt, messages=messages, members=members, cursor=draft.cursor)

    @repeats
    def set_base(self, draft: SessionDraft) -> None:
        """Let the next import compare with this draft, of which nothing is taken but files that nobody changed here."""
        receipt = self.receipt_of(draft)
        with self.core.locked(draft.location):
            known = load_receipt(self.core.disk, draft.location)
            if known is not None and known.is_from(receipt) and known != receipt:
                self._commit_base(draft, receipt, known)

    def _commit_base(self, draft: SessionDraft, receipt: Receipt, known: Receipt | None) -> None:
        files = self._changed_files(draft, receipt, known, overwrite=False)
        self.commits.run(Commit(draft.location, files, dirs=_dirs_of(files)), None, "saved")

    # -- the commit ------------------------------------------------------------------------------------

    def _merged(self, pair: DocumentPair, merged: MergedImport) -> tuple[Document, bytes]:
        """Both documents with the changes of the source spliced in; all else keeps its text (rule 5)."""
        assert pair.main is not None
        path, limit = pair.location.path(layout.SESSION), self.core.limit_bytes
        old = parse_document(pair.main.data, path, limit=limit)
        main = parse_document(splice(old.raw, old.data, merged.data), path, limit=limit)
        if pair.side is None:
            return main, sidecar.sidecar_of(main.raw, main.data)
        return main, sidecar.apply_changes_to_sidecar(pair.side.data, _members_of(pair), merged.data)

    def _commit(
        self,
        draft: SessionDraft,
        receipt: Receipt,
        known: Receipt | None,
        pair: DocumentPair,
        main: Document,
        side: bytes,
        prepared: PreparedMessages | None,
        *,
        overwrite: bool,
    ) -> None:
        files = self._changed_files(draft, receipt, known, overwrite=overwrite)
        over = parse_document(side, draft.location.path(layout.RUNTIME))
        record = sidecar.overlay(main.record, over.record)
        self.commits.commit_session(pair, main, record, side, "saved", kept=files, prepared=prepared)

    def _changed_files(
        self, draft: SessionDraft, receipt: Receipt, known: Receipt | None, *, overwrite: bool
    ) -> list[NewFile]:
        """The files of a draft that have changed in the source and not here, and the receipt."""
        written = dict(receipt.files)
        files = [
            self._new_file(draft.location, file.name, _recording_digest(file, written))
            for file in draft.files
            if known is None or known.files.get(file.name) != receipt.files[file.name] or overwrite
            if overwrite or self._may_write(file.name, draft.location, known, receipt)
        ]
        # Rendered after the files are written: a source file may have grown since its digest was computed.
        text = (replace(receipt, files=written).render(draft.path) for _ in range(1))
        return [*files, self._new_file(draft.location, layout.RECEIPT, text)]

    def _new_file(self, location: Location, name: str, parts: Iterable[bytes]) -> NewFile:
        path = location.path(name)
        return NewFile(path, parts, self.core.disk.read(path))


def _decide_without_receipt(*, is_same: bool, was_imported: bool, overwrite: bool) -> _Decision:
    if is_same:
        return _Decision("unchanged")
    if not was_imported:
        return _Decision("kept", "another session with this id exists here")
    if overwrite:
        return _Decision("updated")
    lost = f"its {layout.RECEIPT} is missing or damaged, so the source cannot be merged"
    return _Decision("kept", f"{lost}; --overwrite takes the source's version, and the history keeps this one")


def qualified_id(draft: SessionDraft) -> str:
    """The id of a session in its source, with the machine that it is on."""
    host = source_host.get()
    return f"{host}:{draft.source_id}" if host else draft.source_id


def _members_of(pair: DocumentPair) -> dict[str, Any]:
    """The session here: session.json with what the sidecar overrides."""
    loaded = session_reader.parse(pair)
    dump = loaded.session.model_dump(warnings=False)
    return {**sidecar.merged_main(loaded.main.data, dump, dump), "messages": loaded.main.data["messages"]}


def _messages(found: Sized) -> str:
    return f"{len(found)} message{'' if len(found) == 1 else 's'}"


def _message_digests(draft: SessionDraft, main: Document) -> dict[str, str]:
    return draft.messages.digests() if draft.messages is not None else digest_messages(main.data)


def _without_keys(raw: bytes, path: str, limit: int) -> Document:
    """Parse a document of the source and remove API keys from it."""
    document = parse_document(raw, path, limit=limit)
    clean = secrets.without_api_keys(raw, document.data)
    return document if clean == raw else parse_document(clean, path, limit=limit)


def _digests(draft: SessionDraft) -> dict[str, str]:
    try:
        return {file.name: file.digest() for file in draft.files}
    except OSError as error:  # from the source; an OSError from the home must end the import
        raise InvalidContent(str(error.filename), Problem(error.strerror or str(error))) from None


def _recording_digest(file: SourceFile, digests: dict[str, str]) -> Iterator[bytes]:
    """The chunks of a file; after the last one its digest is stored in `digests`."""
    hashed = HashedChunks(file.read())
    yield from hashed
    digests[file.name] = hashed.hexdigest()


def _check_name(name: str) -> None:
    """Raise InvalidName for a file outside the session directory, or for one that only the store writes."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise InvalidName(f"{name!r} is not a valid file name in a session")
    if name in (*layout.DOCUMENTS, layout.RECEIPT) or parts[0] == layout.CHILDREN:
        raise InvalidName(f"{name!r} is reserved and cannot be written by an import")


def _dirs_of(files: Iterable[NewFile]) -> list[str]:
    return list(dict.fromkeys(file.path.rpartition("/")[0] for file in files))


def _count_lost(here: bytes, source: dict[str, Any], moved: frozenset[str]) -> int:
    """The number of stored messages that the source lacks."""
    have, get = orjson.loads(here)["messages"], source["messages"]
    if any("id" not in message for message in (*have, *get)):
        return max(0, len(have) - len(get))
    present = {message["id"] for message in get} | moved
    return sum(message["id"] not in present for message in have)
