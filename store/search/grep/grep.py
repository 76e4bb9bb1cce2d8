"""`grovefs grep`: run GNU grep on only those files that can match.

Output and exit code are byte for byte those of `grep -rn` with the same options, run in the home over
`sessions/`. GNU grep reads the files and prints. The files are passed in the order in which `grep -r`
would visit them (see `walk_order`). A search that cannot be narrowed runs `grep -rn`.

Runs in its own process, with the home as its working directory, and usually ends by exec of grep.
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

_MARGIN_BYTES = 64_000  # of the kernel's limit for arguments, left for what the kernel stores there itself
_MAX_SHARE = 0.5  # of all files: above, walking is cheaper than selecting
_ALWAYS_WORTH = 50  # files, whatever their share


def lacks_pattern(line: list[bytes]) -> bool:
    """Whether only the pattern is missing. Everything else that is wrong is reported by grep."""
    options = parse(line)
    return options.is_understood and options.is_complete and not options.has_pattern and b"-V" not in line


def commands(options: GrepOptions, files: Sequence[bytes] | None) -> list[list[bytes]]:
    """The grep commands to run, in order. `files` None means all files."""
    if files is None:
        return [_whole(options)]
    room = os.sysconf("SC_ARG_MAX") - sum(len(k) + len(v) + 10 for k, v in os.environb.items()) - _MARGIN_BYTES
    head = [b"grep", b"-nH", *options.arguments, b"--"]
    room -= sum(len(part) + 9 for part in head)
    runs: list[list[bytes]] = [[]]
    used = 0
    for path in files or [b"/dev/null"]:  # grep still has to report errors in the pattern
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


# -- selecting files -----------------------------------------------------------------------------------------


def choose(options: GrepOptions) -> list[bytes] | None:
    """The files to read, in walk order; None for all files.

    If a freshness server watches the home, index.db is known to be current, and only the selected files
    are examined. Otherwise the stamp of every file is compared first.
    """
    query = _query(options) if options.narrowable else ANY
    if query is ANY:
        return None
    for _ in range(3):  # a merge may remove the segments being read
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
            return ANY  # grep reports the error
        patterns.append(text.removesuffix(b"\n"))
    return query_of(patterns, options.syntax, fold=options.fold, charset=_charset())


def _charset() -> str:
    from _locale import CODESET, nl_langinfo

    return nl_langinfo(CODESET)


def _paths(query: Query, fresh_token: object) -> set[bytes] | None:
    known = KnownFiles(b"")
    try:
        return _paths_in(known, query, fresh_token)
    finally:
        known.close()


def _paths_in(known: KnownFiles, query: Query, fresh_token: object) -> set[bytes] | None:
    """The files that can match or are not indexed; None if they are too many to be worth selecting."""
    segments = [Segment(os.fsdecode(SEGMENTS) + name) for name in known.segments]
    try:
        documents = candidates(query, segments)
    finally:
        for segment in segments:
            segment.close()
    limit = known.count * _MAX_SHARE + _ALWAYS_WORTH
    if len(documents) + len(known.changed) > limit:
        return None
    paths = known.changed.union(known.paths_of(documents))
    if fresh_token is None or fresh_token != known.token:
        paths |= known.differing()
    return paths if len(paths) <= limit else None


def _is_included(path: bytes, filters: list[tuple[bool, bytes]]) -> bool:
    """Apply --include and --exclude to the file name as grep does: the last matching glob decides."""
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


def _resolve_pattern_files(options: GrepOptions) -> None:
    """Make the paths of -f independent of the working directory, and copy files that can be read only once."""
    for i, argument in enumerate(options.arguments):
        is_short, is_long = options.arguments[i - 1] == b"-f" and i > 0, argument.startswith(b"--file=")
        path = argument[7:] if is_long else argument
        if not (is_short or is_long) or path not in options.pattern_files:
            continue
        resolved = _resolved(path)
        options.pattern_files[options.pattern_files.index(path)] = resolved
        options.arguments[i] = b"--file=" + resolved if is_long else resolved


def _resolved(path: bytes) -> bytes:
    """The absolute path of a regular file; a copy in memory of a pipe or standard input."""
    from stat import S_ISREG

    try:
        if path != b"-" and S_ISREG(os.stat(path).st_mode):
            return os.path.abspath(path)
        source = 0 if path == b"-" else os.open(path, os.O_RDONLY)
        copy = os.memfd_create("patterns", 0)  # inherited by grep
        while data := os.read(source, 1 << 16):
            os.write(copy, data)
    except OSError:
        return path  # grep reports the error
    return b"/proc/self/fd/%d" % copy


def run(line: list[bytes], home: bytes) -> int:
    """Run `grovefs grep` with these arguments. Returns grep's exit code, or replaces this process by grep."""
    options = parse(line)
    _resolve_pattern_files(options)
    os.chdir(home)
    os.lstat(SESSIONS)  # if this is not a home, fail here and not in grep
    wanted = commands(options, choose(options))
    if len(wanted) == 1:
        exec_grep(wanted[0])
    return run_serially(wanted)
