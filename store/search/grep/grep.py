"""`grovefs grep`: GNU grep on exactly those files that can match.

What it prints, and its exit code, are byte for byte those of `grep -rn` with the same options, run in the home
over `sessions/`; GNU grep itself reads the files and prints. The files are given in the order in which `grep -r`
would come to them (see `store/walk_order.py`). Whatever cannot be narrowed down is done by `grep -rn` as it is.

For a process of its own, whose working directory is the home; it ends as grep.
"""

from __future__ import annotations

import os

from store.search.grep.known_files import (
    SEGMENTS,
    SESSIONS,
    IndexUnusable,
    KnownFiles,
    ask_freshness,
    existing_files,
)
from store.search.grep.options import GrepOptions, parse
from store.search.grep.regex_trigrams import ANY, query_of
from store.search.grep.run import exec_grep, run_serially
from store.search.grep.segments import Damaged, Segment, candidates
from store.search.grep.walk_order import in_walk_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.search.grep.regex_trigrams import Query

_MARGIN_BYTES = 64_000  # of the room for arguments, for what the kernel puts there too
_WORTH_IT = 0.5  # of all files: beyond, walking is cheaper than choosing


def commands(options: GrepOptions, files: Sequence[bytes] | None) -> list[list[bytes]]:
    """The greps to run, in order. `files` None: all there are."""
    if files is None:
        return [_whole(options)]
    room = os.sysconf("SC_ARG_MAX") - sum(len(k) + len(v) + 10 for k, v in os.environb.items()) - _MARGIN_BYTES
    head = [b"grep", b"-nH", *options.arguments, b"--"]
    room -= sum(len(part) + 9 for part in head)
    runs: list[list[bytes]] = [[]]
    used = 0
    for path in files or [b"/dev/null"]:  # with nothing to read grep still has something to say about the pattern
        used += len(path) + 9
        if used > room:
            runs.append([])
            used = len(path) + 9
        runs[-1].append(path)
    if len(runs) > 1 and options.in_one_run:
        return [_whole(options)]
    return [[*head, *run] for run in runs]


def _whole(options: GrepOptions) -> list[bytes]:
    if not options.is_understood:
        return [b"grep", b"-rn", *options.line, *([SESSIONS] if options.is_complete else [])]
    where = options.operands or ([SESSIONS] if options.has_pattern else [])
    return [b"grep", b"-rn", *options.arguments, *_globs(options), *([b"--", *where] if where else [])]


def _globs(options: GrepOptions) -> list[bytes]:
    return [(b"--include=" if include else b"--exclude=") + glob for include, glob in options.filters]


# -- which files ---------------------------------------------------------------------------------------------


def choose(options: GrepOptions) -> list[bytes] | None:
    """The files to read, in order; None for all of them.

    Where someone watches the home and vouches that what index.db knows is how it is, only the files that are to be
    read are looked at; else every file's stamp is compared first.
    """
    query = _query(options) if options.narrowable else ANY
    if query is ANY:
        return None
    for _ in range(3):  # segments are merged now and then, and the old ones removed
        try:
            paths = _paths(query, ask_freshness(b""))
        except Damaged:
            continue
        except IndexUnusable:
            return None
        if paths is None:
            return None
        wanted = [path for path in paths if _is_included(path, options.filters)]
        return in_walk_order(existing_files(wanted))
    return None


def _query(options: GrepOptions) -> Query:
    patterns = [*options.patterns]
    for path in options.pattern_files:
        try:
            with open(path, "rb") as file:
                text = file.read()
        except OSError:
            return ANY  # grep will say so
        patterns.append(text.removesuffix(b"\n"))
    return query_of(patterns, options.syntax, fold=options.fold, charset=_charset())


def _charset() -> str:
    from _locale import CODESET, nl_langinfo

    return nl_langinfo(CODESET)


def _paths(query: Query, vouched: object) -> set[bytes] | None:
    known = KnownFiles(b"")
    try:
        return _paths_in(known, query, vouched)
    finally:
        known.close()


def _paths_in(known: KnownFiles, query: Query, vouched: object) -> set[bytes] | None:
    segments = [Segment(os.fsdecode(SEGMENTS) + name) for name in known.segments]
    try:
        documents = candidates(query, segments)
    finally:
        for segment in segments:
            segment.close()
    if len(documents) + len(known.changed) > known.count * _WORTH_IT + 50:
        return None
    paths = known.changed.union(known.paths_of(documents))
    if vouched is None or vouched != known.token:
        paths |= known.differing()
    return paths if len(paths) <= known.count * _WORTH_IT + 50 else None


def _is_included(path: bytes, filters: list[tuple[bool, bytes]]) -> bool:
    """--include and --exclude, as grep applies them to the last part of a name: the last that matches decides."""
    if not filters:
        return True
    from ctypes import CDLL

    fnmatch = CDLL(None).fnmatch
    name = path.rpartition(b"/")[2]
    for include, glob in reversed(filters):
        if fnmatch(glob, name, 0) == 0:
            return include
    return not filters[0][0]


# -- running ---------------------------------------------------------------------------------------------------


def _keep_pattern_files(options: GrepOptions) -> None:
    """Files of patterns are named from where we were called, and some can be read only once: a pipe, say."""
    for i, argument in enumerate(options.arguments):
        is_short, is_long = options.arguments[i - 1] == b"-f" and i > 0, argument.startswith(b"--file=")
        path = argument[7:] if is_long else argument
        if not (is_short or is_long) or path not in options.pattern_files:
            continue
        kept = _kept(path)
        options.pattern_files[options.pattern_files.index(path)] = kept
        options.arguments[i] = b"--file=" + kept if is_long else kept


def _kept(path: bytes) -> bytes:
    from stat import S_ISREG

    try:
        if path != b"-" and S_ISREG(os.stat(path).st_mode):
            return os.path.abspath(path)
        source = 0 if path == b"-" else os.open(path, os.O_RDONLY)
        copy = os.memfd_create("patterns", 0)  # inherited by grep
        while data := os.read(source, 1 << 16):
            os.write(copy, data)
    except OSError:
        return path  # grep will say what is wrong
    return b"/proc/self/fd/%d" % copy


def run(line: list[bytes], home: bytes) -> int:
    """Run what stands behind `grovefs grep`; returns grep's exit code, or becomes grep."""
    options = parse(line)
    _keep_pattern_files(options)
    os.chdir(home)
    os.lstat(SESSIONS)  # an error of ours, not one of grep's, if this is no home
    files = choose(options)
    wanted = commands(options, files)
    if len(wanted) == 1:
        exec_grep(wanted[0])
    return run_serially(wanted)
