"""Checks of one session's directory: names, documents, identity, parent, attachments, index row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from store import layout
from store.check import repairs
from store.check.context import CheckContext, is_pending
from store.check.finding import Finding, display_path
from store.check.fulltext import FulltextComparison
from store.commit import session_reader
from store.commit.core import Core
from store.commit.session_reader import DocumentPair, LoadedSession
from store.disk.file import DirEntry
from store.documents import attachment_names
from store.documents.document import Document, identity_problem, parse_document
from store.documents.json_splice import splice
from store.documents.sidecar import is_stale, overlay, sidecar_of
from store.errors import Busy, Corrupt, InvalidContent
from store.history.authors import OUTSIDE
from store.history.versions import SavedVersion
from store.index import fulltext
from store.index.catalog import render_entry
from store.layout import Location

_LEFTOVER = "temporary file left by a crash"


def check_sessions(context: CheckContext) -> Iterator[Finding]:
    """Every session under its lock, and then the words of the full-text index against all of them."""
    core = context.core
    with FulltextComparison(core) as comparison:
        for done, location in enumerate(context.on_disk):
            # Not `core.locked`: it would finish an interrupted commit, which is left to the repair.
            with core.locks.session(location):
                if not is_pending(core, location):
                    yield from check_session(core, location, comparison)
            if context.progress is not None:
                context.progress(done + 1, len(context.on_disk))
        yield from check_words(core, comparison)


def check_session(core: Core, location: Location, comparison: FulltextComparison) -> Iterator[Finding]:
    """Everything that can be wrong in one session's directory. The caller holds its lock."""
    try:
        yield from check_names(core, location)
    except PermissionError as error:
        yield Finding("unparsable", location.dir, f"cannot be listed: {error.strerror}; fix its permissions")
        return
    path = location.path(layout.SESSION)
    try:
        pair = session_reader.read(core.disk, location, core.limit_bytes)
        if pair.main is None:
            yield from check_incoming(core, location)
            return
        main = parse_document(pair.main.data, path)
    except (Corrupt, InvalidContent) as error:
        yield Finding("unparsable", path, str(error.problem))
        yield from check_damaged_row(core, location)
        return
    except Busy as error:
        yield Finding("unparsable", path, str(error))
        return
    except PermissionError as error:
        yield Finding("unparsable", path, f"cannot be read: {error.strerror}; fix its permissions")
        return
    side, findings = check_sidecar(core, pair, main)
    yield from findings
    yield from check_loaded(
        core, LoadedSession(pair, main, side, overlay(main.record, side.record if side else None)), comparison
    )


def check_loaded(core: Core, loaded: LoadedSession, comparison: FulltextComparison) -> Iterator[Finding]:
    yield from check_identity(loaded)
    yield from check_parent(core, loaded)
    attached = loaded.pair.location.path(layout.ATTACHMENTS)
    if core.disk.stat(attached) is not None and not _is_dir(core, attached):
        return  # its contents are unknown; `check_names` reports it
    yield from check_references(core, loaded)
    yield from check_row(core, loaded, comparison)


def check_names(core: Core, location: Location) -> Iterator[Finding]:
    for entry in core.disk.entries(location.dir):
        yield from _check_name(core, location, entry)
    attached = location.path(layout.ATTACHMENTS)
    if not _is_dir(core, attached):
        return
    for entry in core.disk.entries(attached):
        path = f"{attached}/{entry.name}"
        if layout.is_leftover(entry.name):
            yield Finding("temporary", path, _LEFTOVER, partial(repairs.trash_session_file, core, location, path))
        elif not entry.is_file and not entry.is_dir:  # git and rsync create directories here
            yield Finding("not-plain", display_path(path), "expected a regular file; links are not followed")


def _check_name(core: Core, location: Location, entry: DirEntry) -> Iterator[Finding]:
    path = location.path(entry.name)
    if layout.is_leftover(entry.name):
        yield Finding("temporary", path, _LEFTOVER, partial(repairs.trash_session_file, core, location, path))
    elif not layout.is_known_name(location, entry.name):
        yield Finding("foreign-file", display_path(path), "not part of a session; ignored")
    elif entry.name in (layout.ATTACHMENTS, layout.CHILDREN, layout.MAILBOX):
        if not entry.is_dir:
            yield Finding("not-plain", path, "expected a directory; links are not followed")
    elif entry.name != layout.SESSION and not entry.is_file:
        yield Finding("not-plain", path, "expected a regular file; links are not followed")


def check_incoming(core: Core, location: Location) -> Iterator[Finding]:
    """A directory without session.json has no row. It may still be receiving files, or it has lost a session."""
    if core.index.find(location) is not None:
        repair = partial(repairs.reindex, core, location)
        yield Finding("extra-row", location.dir, "indexed, but session.json does not exist", repair)
    below = location.path(layout.CHILDREN)
    names = core.disk.directories(below) if location.child is None and _is_dir(core, below) else []
    children = [name for name in names if not _is_empty(core, f"{below}/{name}")]
    if children:
        text = f"has {len(children)} child{'ren' if len(children) > 1 else ''}, but no session.json"
        yield Finding("orphan-child", location.dir, text)
    has_sidecar = core.disk.stat(location.path(layout.RUNTIME)) is not None
    lost = _lost_version(core, location) if has_sidecar else None
    if lost is not None:
        text = f"session.json disappeared; its last version is {lost.label}: history/{location.root}/ in a mount has it"
        yield Finding("session-lost", location.dir, text)
    elif has_sidecar or session_reader.has_attachments(core.disk, location):
        yield Finding("incoming", location.dir, "no session.json yet; its other files are kept")


def _is_empty(core: Core, path: str) -> bool:
    """Whether a directory has nothing but empty directories: a process was killed while it created a session."""
    return all(entry.is_dir and not core.disk.entries(f"{path}/{entry.name}") for entry in core.disk.entries(path))


def _lost_version(core: Core, location: Location) -> SavedVersion | None:
    """The last version of a session.json that no GroveFS process deleted; None if one did, or there never was one."""
    versions = core.history.log(location.dir, limit=2)
    if versions and versions[0].main_bytes is None and versions[0].author.via == OUTSIDE.via:
        versions = versions[1:]  # that it disappeared was noticed
    return versions[0] if versions and versions[0].main_bytes is not None else None


def check_damaged_row(core: Core, location: Location) -> Iterator[Finding]:
    if core.index.find(location) is not None:
        repair = partial(repairs.reindex, core, location)
        yield Finding("stale-row", location.dir, "the index has a version that no longer exists", repair)


def check_sidecar(core: Core, pair: DocumentPair, main: Document) -> tuple[Document | None, list[Finding]]:
    """Return the sidecar, if it can be used, and its findings."""
    location, bad = pair.location, pair.side
    path = location.path(layout.RUNTIME)
    if bad is None:
        return None, []

    def recreate() -> None:
        repairs.replace_sidecar(core, location, bad, sidecar_of(main.raw, main.data))

    try:
        side = parse_document(bad.data, path)
    except InvalidContent as error:
        return None, [Finding("sidecar-corrupt", path, str(error.problem), recreate)]
    problem = identity_problem(side, location)
    if problem is not None:
        return None, [Finding("identity", path, str(problem), recreate)]
    if is_stale(side.record, main.record):
        text = "older than session.json, which another program wrote; ignored until the next save"
        return None, [Finding("sidecar-stale", path, text, recreate)]
    if not side.data["messages"]:
        return side, []

    def remove_messages() -> None:
        raw = splice(side.raw, side.data, {**side.data, "messages": []})
        repairs.replace_sidecar(core, location, bad, raw)

    text = f"contains {len(side.data['messages'])} messages, which are never read"
    return side, [Finding("sidecar-messages", path, text, remove_messages)]


def check_identity(loaded: LoadedSession) -> Iterator[Finding]:
    """The document's id must match its path (rule 9)."""
    problem = identity_problem(loaded.main, loaded.pair.location)
    if problem is not None:
        yield Finding("identity", loaded.pair.location.path(layout.SESSION), str(problem))


def check_parent(core: Core, loaded: LoadedSession) -> Iterator[Finding]:
    location = loaded.pair.location
    parent = loaded.session.parent_session_id
    if location.child is None or parent is None:
        return
    above = Location(location.root, None if parent == location.root else parent)
    if not layout.is_session_id(parent) or core.disk.stat(above.path(layout.SESSION)) is None:
        yield Finding("orphan-child", location.dir, f"its parent {parent!r} does not exist")


def check_references(core: Core, loaded: LoadedSession) -> Iterator[Finding]:
    """Messages that refer to attachments of this session that do not exist."""
    location = loaded.pair.location
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


def check_row(core: Core, loaded: LoadedSession, comparison: FulltextComparison) -> Iterator[Finding]:
    """The index row and the search rows must equal those computed from the files."""
    location = loaded.pair.location
    reindex = partial(repairs.reindex, core, location)
    row = core.index.find(location)
    if row is None:
        yield Finding("missing-row", location.dir, "not in the index", reindex)
        return
    facts = session_reader.facts_on_disk(core.disk, loaded, loaded.pair.version)
    texts = fulltext.texts_of(facts.entry.title, facts.summary, loaded.main.data["messages"])
    indexed, expected = ((render_entry(source.entry), source.append_offsets, source.preview) for source in (row, facts))
    if indexed != expected:
        yield Finding("stale-row", location.dir, "the index differs from the files", reindex)
    elif not fulltext.rows_match(core.db.reader, row.key, texts):
        rewrite = partial(repairs.rewrite_search_rows, core, location, row.key)
        yield Finding("search-rows", location.dir, "the search rows differ from the files", rewrite)
    else:
        comparison.expect(row.key, texts)


def check_words(core: Core, comparison: FulltextComparison) -> Iterator[Finding]:
    """The full-text index must contain every word at its place, and no other."""
    for location, key in comparison.differing():
        rewrite = partial(repairs.rewrite_search_rows, core, location, key)
        yield Finding("search-rows", location.dir, "the indexed words differ from the files", rewrite)


def _is_dir(core: Core, path: str) -> bool:
    try:
        with core.disk.open_dir(path):
            return True
    except (Corrupt, FileNotFoundError, PermissionError):
        return False
