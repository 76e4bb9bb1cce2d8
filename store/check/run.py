"""Check: every kind of damage, each found by one function, some of them mended.

A `check_` function yields findings and changes nothing; a finding that can be mended carries how. Only
what is derived is ever mended, or moved to the trash: no conversation is touched. Exit codes are those
of fsck(8).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import apsw

from store import layout
from store.check.finding import Finding, Report
from store.check.fulltext import Parity
from store.commit import session_reader
from store.commit.core import Core
from store.commit.journal import WHOLE_TREE, Commit
from store.commit.session_reader import LoadedSession
from store.commit.to_trash import to_trash
from store.disk import trash
from store.disk.file import File, NewFile
from store.documents import attachment_names
from store.documents.document import Document, identity_problem, parse_document
from store.documents.json_splice import splice
from store.documents.sidecar import overlay, sidecar_of
from store.errors import Busy, Corrupt, InvalidContent, StoreError
from store.home.sessions_json import SessionsJson, parse_export
from store.index import fulltext
from store.index.catalog import render_entry
from store.layout import Location


def run_checks(
    core: Core,
    exporter: SessionsJson,
    *,
    repair: bool,
    progress: Callable[[int, int], None] | None = None,
    more: Iterable[Iterator[Finding]] = (),
) -> Report:
    """Every check there is, and those of other parts of the home in `more`.

    Refused with BambooAtWork if something shall be mended while a server is at work.
    """
    findings: list[Finding] = []
    if repair:
        exporter.neighbour.check()

    def note(found: Iterator[Finding]) -> None:
        findings.extend(_repaired(finding) if repair else finding for finding in found)

    note(check_unfinished(core))
    on_disk = list(core.iter_on_disk())
    with Parity(core) as parity:
        for done, location in enumerate(on_disk):
            # Not `core.locked`, which would finish what a crash has left: that is for `repair` to do.
            with core.locks.session(location):
                if not _is_pending(core, location):
                    note(check_session(core, location, parity))
            if progress is not None:
                progress(done + 1, len(on_disk))
        note(check_words(core, parity))
    note(check_extra_rows(core, set(on_disk)))
    note(check_strays(core))
    note(check_temporaries(core))
    note(check_export(core, exporter))
    for found in more:
        note(found)
    return Report(findings, len(on_disk))


def _repaired(finding: Finding) -> Finding:
    if finding.repair is None:
        return finding
    try:
        finding.repair()
    except (StoreError, OSError, apsw.Error) as error:  # the disk is full, say: damage left, not the end of it
        return replace(finding, text=f"{finding.text}; it could not be mended: {error}")
    return replace(finding, repaired=True)


def check_unfinished(core: Core) -> Iterator[Finding]:
    """Commits that were begun and not ended, be it in the index alone; a live writer's own mark is none."""
    for root, child in core.journal.all_pending():
        location = Location(root, child if child not in ("", WHOLE_TREE) else None)
        if _is_being_written(core, location, child):
            continue
        reason = core.journal.index_failures.get((root, child), "a crash came in between")
        yield Finding("unfinished", location.dir, f"saved, but not yet indexed: {reason}", core.recover_all)


def _is_being_written(core: Core, location: Location, child: str) -> bool:
    """Whether the mark is one of a live writer, or gone by now."""
    locks, root = core.locks, location.root
    try:
        with locks.tree(root, timeout_s=0) if child == WHOLE_TREE else locks.session(location, timeout_s=0):
            return child not in core.journal.pending(root)
    except Busy:
        return True


def _is_pending(core: Core, location: Location) -> bool:
    pending = core.journal.pending(location.root)
    return (location.child or "") in pending or WHOLE_TREE in pending


def check_session(core: Core, location: Location, parity: Parity) -> Iterator[Finding]:
    """All that can be said of one session's directory. Its lock is held."""
    try:
        yield from check_names(core, location)
    except PermissionError as error:
        yield Finding("unparsable", location.dir, f"it cannot be looked into: {error.strerror}")
        return
    path = location.path(layout.SESSION)
    try:
        snapshot = session_reader.read(core.disk, location, core.limit_bytes)
        if snapshot.main is None:
            yield from check_incoming(core, location)
            return
        main = parse_document(snapshot.main.data, path)
    except (Corrupt, InvalidContent) as error:
        yield Finding("unparsable", path, str(error.problem))
        yield from check_damaged_row(core, location)
        return
    except Busy as error:
        yield Finding("unparsable", path, str(error))
        return
    except PermissionError as error:
        yield Finding("unparsable", path, f"it cannot be read: {error.strerror}")
        return
    side, found = check_sidecar(core, snapshot, main)
    yield from found
    loaded = LoadedSession(snapshot, main, side, overlay(main.record, side.record if side else None))
    yield from check_identity(loaded)
    yield from check_parent(core, loaded)
    attached = location.path(layout.ATTACHMENTS)
    if core.disk.stat(attached) is not None and not _is_dir(core, attached):
        return  # nobody can say what it holds; `check_names` tells of it
    yield from check_references(core, loaded)
    yield from check_row(core, loaded, parity)


def check_names(core: Core, location: Location) -> Iterator[Finding]:
    for entry in core.disk.entries(location.dir):
        path = location.path(entry.name)
        if layout.is_leftover(entry.name):
            yield Finding("temporary", path, "a temporary that a crash left behind", _to_trash(core, location, path))
        elif not layout.is_known_name(location, entry.name):
            yield Finding("foreign-file", _shown(path), "not part of a session; left alone")
        elif entry.name in (layout.ATTACHMENTS, layout.CHILDREN, layout.MAILBOX):
            if not entry.is_dir:
                yield Finding("not-plain", path, "a directory is expected; links are not followed")
        elif entry.name != layout.SESSION and not entry.is_file:
            yield Finding("not-plain", path, "a plain file is expected; links are not followed")
    attached = location.path(layout.ATTACHMENTS)
    if not _is_dir(core, attached):
        return
    for entry in core.disk.entries(attached):
        path = f"{attached}/{entry.name}"
        if layout.is_leftover(entry.name):
            yield Finding("temporary", path, "a temporary that a crash left behind", _to_trash(core, location, path))
        elif not entry.is_file:
            yield Finding("not-plain", _shown(path), "a plain file is expected; links are not followed")


def check_incoming(core: Core, location: Location) -> Iterator[Finding]:
    """A directory without session.json: files may still be on their way, so it has no row."""
    if core.index.find(location) is not None:
        mend = _reread(core, location)
        yield Finding("extra-row", location.dir, "indexed, but session.json is gone", mend)
    below = location.path(layout.CHILDREN)
    children = core.disk.directories(below) if location.child is None and _is_dir(core, below) else []
    if children:
        text = f"has {len(children)} child{'ren' if len(children) > 1 else ''}, but no session.json"
        yield Finding("orphan-child", location.dir, text)
    if session_reader.has_attachments(core.disk, location) or core.disk.stat(location.path(layout.RUNTIME)) is not None:
        yield Finding("incoming", location.dir, "no session.json yet; what is there waits for it")


def check_damaged_row(core: Core, location: Location) -> Iterator[Finding]:
    if core.index.find(location) is not None:
        mend = _reread(core, location)
        yield Finding("stale-row", location.dir, "the index knows a version that is gone", mend)


def check_sidecar(
    core: Core, snapshot: session_reader.DocumentPair, main: Document
) -> tuple[Document | None, list[Finding]]:
    location = snapshot.location
    path = location.path(layout.RUNTIME)
    if snapshot.side is None:
        return None, []
    remake = _replace_sidecar(core, location, snapshot.side, lambda: sidecar_of(main.raw, main.data))
    try:
        side = parse_document(snapshot.side.data, path)
    except InvalidContent as error:
        return None, [Finding("sidecar-corrupt", path, str(error.problem), remake)]
    flaw = identity_problem(side, location)
    if flaw is not None:
        return None, [Finding("identity", path, str(flaw), remake)]
    if side.data["messages"]:
        text = f"holds {len(side.data['messages'])} messages, which nobody reads"
        emptied = _replace_sidecar(
            core, location, snapshot.side, lambda: splice(side.raw, side.data, {**side.data, "messages": []})
        )
        return side, [Finding("sidecar-messages", path, text, emptied)]
    return side, []


def check_identity(loaded: LoadedSession) -> Iterator[Finding]:
    flaw = identity_problem(loaded.main, loaded.snapshot.location)
    if flaw is not None:
        yield Finding("identity", loaded.snapshot.location.path(layout.SESSION), str(flaw))


def check_parent(core: Core, loaded: LoadedSession) -> Iterator[Finding]:
    location = loaded.snapshot.location
    parent = loaded.session.parent_session_id
    if location.child is None or parent is None:
        return
    above = Location(location.root, None if parent == location.root else parent)
    if not layout.is_session_id(parent) or core.disk.stat(above.path(layout.SESSION)) is None:
        yield Finding("orphan-child", location.dir, f"its parent {parent!r} does not exist")


def check_references(core: Core, loaded: LoadedSession) -> Iterator[Finding]:
    """Attachments that a message of this session refers to and that are not there."""
    location = loaded.snapshot.location
    missing = dict.fromkeys(
        url
        for message in loaded.session.messages
        for part in message.content_parts or ()
        if part.image_url is not None
        for url in [part.image_url.url]
        if (ref := attachment_names.parse_reference(url)) is not None
        and ref[0] == location.id
        and session_reader.find_attachment(core.disk, location, ref[1]) is None
    )
    for url in missing:
        yield Finding("dangling-attachment", location.path(layout.SESSION), f"{url} does not exist")


def check_row(core: Core, loaded: LoadedSession, parity: Parity) -> Iterator[Finding]:
    """The row and the search rows must be what the files would make of them now."""
    location = loaded.snapshot.location
    mend = _reread(core, location)
    row = core.index.find(location)
    if row is None:
        yield Finding("missing-row", location.dir, "not in the index", mend)
        return
    facts = session_reader.facts(core.disk, location, loaded.main, loaded.session, loaded.snapshot.version)
    texts = fulltext.texts_of(facts.entry.title, facts.summary, facts.messages)
    known, true = ((render_entry(say.entry), say.anchors, say.gist) for say in (row, facts))
    if known != true:
        yield Finding("stale-row", location.dir, "the index says something else than the files", mend)
    elif not fulltext.rows_match(core.db.reader, row.key, texts):
        rewrite = _rewrite_rows(core, location, row.key)
        yield Finding("search-rows", location.dir, "search says something else than the files", rewrite)
    else:
        parity.expect(row.key, texts)


def check_words(core: Core, parity: Parity) -> Iterator[Finding]:
    """Every word of every text must be found where it stands, and no other."""
    for location, key in parity.differing():
        rewrite = _rewrite_rows(core, location, key)
        yield Finding("search-rows", location.dir, "search finds other words than the files have", rewrite)


def check_extra_rows(core: Core, on_disk: set[Location]) -> Iterator[Finding]:
    for location, _ in list(core.index.stamps()):
        if location not in on_disk and _is_extra(core, location):
            yield Finding("extra-row", location.dir, "indexed, but the session is gone", _reread(core, location))
    strays = fulltext.count_strays(core.db.reader)
    if strays:
        text = f"{strays} search rows of what is not indexed"
        yield Finding("search-rows", layout.INDEX_DB, text, _remove_strays(core))


def _is_extra(core: Core, location: Location) -> bool:
    """Looked at alone with it: since the directories were listed others have made and deleted sessions."""
    with core.locks.session(location):
        is_known = location in core.index.tree(location.root)
        return is_known and core.disk.stat(location.dir) is None and not _is_pending(core, location)


def check_strays(core: Core) -> Iterator[Finding]:
    """What lies in sessions/ or children/ and is no session's directory."""
    places = [layout.SESSIONS]
    places += [
        f"{layout.SESSIONS}/{root}/{layout.CHILDREN}"
        for root in core.disk.directories(layout.SESSIONS)
        if layout.is_session_dir(root)
    ]
    for place in places:
        if not _is_dir(core, place):
            continue
        for entry in core.disk.entries(place):
            path = f"{place}/{entry.name}"
            if entry.is_symlink:
                yield Finding("not-plain", _shown(path), "a link; links are not followed")
            elif not entry.is_dir or not layout.is_session_dir(entry.name):
                yield Finding("foreign-file", _shown(path), "no session; left alone")


def check_temporaries(core: Core) -> Iterator[Finding]:
    """Leftovers of ours: no live process would have one this old, and no mark names it."""
    named = core.db.reader.execute("SELECT moves FROM marks").fetchall()
    for entry in core.disk.entries(layout.TMP):
        path = f"{layout.TMP}/{entry.name}"
        pid = entry.name.partition("-")[0]
        if any(path in str(moves) for (moves,) in named) or (pid.isdigit() and _is_alive(int(pid))):
            continue
        yield Finding("temporary", path, "a temporary that nobody owns", _remover(core, path))
    for entry in core.disk.entries(""):
        if layout.is_leftover(entry.name):
            yield Finding("temporary", entry.name, "a temporary that a crash left behind", _discard(core, entry.name))


def check_export(core: Core, exporter: SessionsJson) -> Iterator[Finding]:
    """sessions.json may lag by a moment; what it may not be is unreadable or someone else's."""
    try:
        file = core.disk.read(layout.INDEX_EXPORT)
        if file is None:
            yield Finding("export", layout.INDEX_EXPORT, "it is missing", _exporting(exporter))
        else:
            parse_export(file.data)
    except (Corrupt, InvalidContent) as error:
        yield Finding("export", layout.INDEX_EXPORT, str(error.problem), _exporting(exporter))


# -- mending: derived things only ---------------------------------------------------------------------


def _reread(core: Core, location: Location) -> Callable[[], None]:
    def mend() -> None:
        with core.locked(location):
            core.reread(location)

    return mend


def _remover(core: Core, path: str) -> Callable[[], None]:
    return lambda: core.disk.remove_tree(path)


def _exporting(exporter: SessionsJson) -> Callable[[], None]:
    def mend() -> None:
        if exporter.is_foreign():
            exporter.keep_unknown_keys()
        exporter.export()

    return mend


def _to_trash(core: Core, location: Location, path: str) -> Callable[[], None]:
    def mend() -> None:
        part = to_trash(location, "leftover", moved=[path])
        core.journal.run(Commit(location, part.files, part.moves, part.dirs), lambda db: None)

    return mend


def _discard(core: Core, name: str) -> Callable[[], None]:
    """What lies in the home itself belongs to no session, but goes to the trash all the same."""

    return lambda: trash.move_top_level(core.disk, name)


def _replace_sidecar(core: Core, location: Location, bad: File, render: Callable[[], bytes]) -> Callable[[], None]:
    """A new one in the place of the bad one, which is copied to the trash in the same commit."""

    def mend() -> None:
        path = location.path(layout.RUNTIME)
        part = to_trash(location, "bad sidecar", copied=[(path, bad)])
        commit = Commit(location, [*part.files, NewFile(path, [render()], bad)], dirs=part.dirs)
        core.journal.run(commit, lambda db: None)
        core.reread(location)

    return mend


def _rewrite_rows(core: Core, location: Location, key: int) -> Callable[[], None]:
    """All rows of a session anew: those whose digest is right may be wrong in another way."""

    def mend() -> None:
        with core.locked(location), core.db.write() as db:
            fulltext.purge_session(db, key)
            core.reread(location)

    return mend


def _remove_strays(core: Core) -> Callable[[], None]:
    def mend() -> None:
        with core.db.write() as db:
            fulltext.purge_strays(db)

    return mend


def _shown(path: str) -> str:
    """A path for people: a name that is no UTF-8 has its odd bytes replaced."""
    return path.encode(errors="replace").decode()


def _is_dir(core: Core, path: str) -> bool:
    try:
        with core.disk.open_dir(path):
            return True
    except (Corrupt, FileNotFoundError, PermissionError):
        return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
