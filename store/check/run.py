"""The list of all checks, their run, and the checks of the home as a whole.

Checks of one session are in `session`, of mail, records, state and projects in `workspace`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import apsw

from store import layout
from store.check import repairs
from store.check.context import CheckContext, is_pending
from store.check.finding import Finding, Report, display_path
from store.check.history import check_history, check_history_secrets
from store.check.secrets import check_secrets
from store.check.session import check_sessions
from store.check.trigrams import check_trigrams
from store.check.unexpected_files import check_unexpected_files
from store.check.workspace import check_mail, check_projects, check_records, check_state, check_trajectories
from store.commit.commit import WHOLE_TREE
from store.commit.core import Core
from store.disk import trash
from store.errors import Busy, Corrupt, InvalidContent, StoreError
from store.home.export_entries import parse_export
from store.home.open_home import OpenHome
from store.index import fulltext
from store.layout import Location


def check_unfinished(context: CheckContext) -> Iterator[Finding]:
    """Commits that a crash interrupted, or whose index update failed. A running commit is not reported."""
    core = context.core
    for root, child in core.journal.all_pending():
        location = Location(root, child if child not in ("", WHOLE_TREE) else None)
        if _is_being_written(core, location, child):
            continue
        reason = core.journal.index_failures.get((root, child), "interrupted by a crash")
        yield Finding("unfinished", location.dir, f"saved, but not yet indexed: {reason}", core.recover_all)


def _is_being_written(core: Core, location: Location, child: str) -> bool:
    """Whether the journal entry belongs to a running commit, or is gone by now."""
    locks, root = core.locks, location.root
    try:
        with locks.tree(root, timeout_s=0) if child == WHOLE_TREE else locks.session(location, timeout_s=0):
            return child not in core.journal.pending(root)
    except Busy:
        return True


def check_extra_rows(context: CheckContext) -> Iterator[Finding]:
    """Rows in the index or the full-text index whose session does not exist."""
    core, on_disk = context.core, set(context.on_disk)
    for location, _ in list(core.index.versions()):
        if location not in on_disk and _is_extra(core, location):
            repair = partial(repairs.reindex, core, location)
            yield Finding("extra-row", location.dir, "indexed, but the session does not exist", repair)
    strays = fulltext.count_strays(core.db.reader)
    if strays:
        repair = partial(repairs.remove_stray_search_rows, core)
        yield Finding("search-rows", layout.INDEX_DB, f"{strays} search rows belong to no indexed session", repair)


def _is_extra(core: Core, location: Location) -> bool:
    """Checked under the lock: sessions have been created and deleted since the directories were listed."""
    with core.locks.session(location):
        is_indexed = location in core.index.locations_in_tree(location.root)
        return is_indexed and core.disk.stat(location.dir) is None and not is_pending(core, location)


def check_strays(context: CheckContext) -> Iterator[Finding]:
    """Entries of sessions/ and children/ that are not session directories."""
    disk = context.core.disk
    roots = [root for root in disk.directories(layout.SESSIONS) if layout.is_session_dir(root)]
    for directory in [layout.SESSIONS, *(f"{layout.SESSIONS}/{root}/{layout.CHILDREN}" for root in roots)]:
        try:
            entries = disk.entries(directory)
        except (Corrupt, FileNotFoundError, PermissionError):  # not a directory: `check_names` reports it
            continue
        for entry in entries:
            path = display_path(f"{directory}/{entry.name}")
            if entry.is_symlink:
                yield Finding("not-plain", path, "symbolic link; links are not followed")
            elif not entry.is_dir or not layout.is_session_dir(entry.name):
                yield Finding("foreign-file", path, "not a session; ignored")


def check_temporaries(context: CheckContext) -> Iterator[Finding]:
    """Temporary files that no live process owns and no journal entry names."""
    core = context.core
    named = core.db.reader.execute("SELECT moves FROM marks").fetchall()
    for entry in core.disk.entries(layout.TMP):
        path = f"{layout.TMP}/{entry.name}"
        pid = entry.name.partition("-")[0]
        if any(path in str(moves) for (moves,) in named) or (pid.isdigit() and _is_alive(int(pid))):
            continue
        yield Finding("temporary", path, "temporary file without an owner", partial(core.disk.remove_tree, path))
    for entry in core.disk.entries(""):
        if layout.is_leftover(entry.name):
            repair = partial(trash.move_top_level, core.disk, entry.name)
            yield Finding("temporary", entry.name, "temporary file left by a crash", repair)


def check_sessions_json(context: CheckContext) -> Iterator[Finding]:
    """sessions.json may be behind by a moment, but it must exist and be readable."""
    repair = partial(repairs.export_sessions_json, context.sessions_json)
    try:
        file = context.core.disk.read(layout.INDEX_EXPORT)
        if file is None:
            yield Finding("export", layout.INDEX_EXPORT, "missing", repair)
        else:
            parse_export(file.data)
    except (Corrupt, InvalidContent) as error:
        yield Finding("export", layout.INDEX_EXPORT, str(error.problem), repair)


def check_duplicate_ids(context: CheckContext) -> Iterator[Finding]:
    """Sessions that Bamboo cannot find: sessions.json has one entry per id."""
    for location, reachable in context.sessions_json.entries.unreachable():
        text = f"has the same id as {reachable.dir}, so Bamboo finds only that one; rename one with `grovefs mv`"
        yield Finding("duplicate-id", location.dir, text)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# Every check, in the order they run. Interrupted commits are first: repairing them changes what the others find.
CHECKS: list[Callable[[CheckContext], Iterator[Finding]]] = [
    check_unfinished,
    check_sessions,
    check_extra_rows,
    check_strays,
    check_temporaries,
    check_sessions_json,
    check_duplicate_ids,
    check_mail,
    check_records,
    check_trajectories,
    check_state,
    check_projects,
    check_trigrams,
    check_unexpected_files,
    check_history,
]


def run_checks(
    home: OpenHome,
    *,
    repair: bool,
    secrets: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Run all checks; `repair` repairs each finding as soon as it is found, while the check holds its lock.

    Raises BambooAtWork if `repair` is set while a Bamboo server uses the home.
    """
    if repair:
        home.bamboo.check()
    context = CheckContext(home.core, home.services, home.sessions_json, progress)
    findings: list[Finding] = []
    for check in [*CHECKS, check_secrets, check_history_secrets] if secrets else CHECKS:
        findings.extend(_repaired(finding) if repair else finding for finding in check(context))
    return Report(findings, sum(_has_session(home.core, location) for location in context.on_disk))


def _has_session(core: Core, location: Location) -> bool:
    """Whether a directory is a session; also if it cannot be read, which is a finding."""
    try:
        return core.disk.stat(location.path(layout.SESSION)) is not None
    except OSError:
        return True


def _repaired(finding: Finding) -> Finding:
    if finding.repair is None:
        return finding
    try:
        finding.repair()
    except (StoreError, OSError, apsw.Error) as error:  # a full disk, for example: the other checks still run
        return replace(finding, text=f"{finding.text}; repair failed: {error}")
    return replace(finding, repaired=True)
