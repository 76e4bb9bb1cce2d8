"""grovefs grep: the output of GNU `grep -rn`, reading only the files that can match."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from store import Store, layout
from store.search.grep import file_stamps, known_files
from store.search.grep.grep import choose, commands
from store.search.grep.options import parse
from store.search.grep.regex_trigrams import query_of
from store.search.grep.run import combine_exit_codes, environment
from store.search.grep.walk_order import in_walk_order
from tests.builders import make_document, make_session
from tests.store.search.grep.test_regex_trigrams import satisfies

ROOT = Path(__file__).parents[4]
WORDS = ["needle", "Needle", "hay", "stack", "希少な単語", "def main():", "foo.bar", "naïve", "🎉", "x" * 30]


def gnu(home: Path, line: list[str]) -> tuple[int, bytes, bytes]:
    """The expected result."""
    done = subprocess.run(["grep", "-rn", *line, "sessions"], cwd=home, capture_output=True, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def ours(home: Path, line: list[str], stdin: int = subprocess.DEVNULL) -> tuple[int, bytes, bytes]:
    """The result of the command, run as a user would."""
    command = [sys.executable, "-c", "from fusefs.cli import main; main()", "grep", "--home", str(home), *line]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, env=env, timeout=120, stdin=stdin)
    return done.returncode, done.stdout, done.stderr


def in_process(home: Path, line: list[str]) -> tuple[tuple[int, bytes, bytes], list[bytes] | None]:
    """The same without a new interpreter, and the files read; None for all."""
    before = Path.cwd()
    os.chdir(home)
    try:
        options = parse([os.fsencode(part) for part in line])
        files = choose(options)
        done = [
            subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env=environment())
            for command in commands(options, files)
        ]
    finally:
        os.chdir(before)
    code = combine_exit_codes([each.returncode for each in done])
    return (code, b"".join(d.stdout for d in done), b"".join(d.stderr for d in done)), files


def settle() -> None:
    """Wait until the files' times are old enough to be trusted."""
    time.sleep(0.06)


def make_home(home: Path, number: int = 30) -> None:
    """Sessions with one word each, attachments, logs, foreign files, symlinks and a FIFO."""
    with Store.open(home, background=False) as store:
        for i in range(number):
            store.save(make_session(f"s{i:02}", title=f"title {i} {WORDS[i % len(WORDS)]}"))
        store.attach("s01", b"\x89PNG\0\0 needle \xff\xfe", "image/png")
        store.attach("s02", b"plain needle\nin an attachment\n", "text/plain")
        store.usage.append("s03", {"needle": 1})
    (home / "sessions/notes.txt").write_text("a foreign needle\nwithout end")
    (home / "sessions/s04/deep/er").mkdir(parents=True)
    (home / "sessions/s04/deep/er/latin1").write_bytes(b"caf\xe9 needle\n")
    (home / "sessions/s04/empty").touch()
    (home / "sessions/s05/link").symlink_to("session.json")
    (home / "sessions/s05/linked").symlink_to("../s04")
    os.mkfifo(home / "sessions/s05/fifo")
    (home / os.fsdecode(b"sessions/s06/\xff needle \n name")).write_text("odd needle")


@pytest.fixture(scope="module")
def merged_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("grep") / "home"
    make_home(home, 120)
    settle()
    with Store.open(home, background=False) as store:
        store.trigrams.rebuild()
    return home


LINES = [
    shlex.split(line)
    for line in r"""
needle
-i needle
-l needle
-c needle
-L needle
-v -l needle
-o needle
-h needle
-H needle
-hn needle
-w needle
-x 'plain needle'
-A1 'plain needle'
-B 2 'in an att'
-C1 needle
-2 'title 7'
-m1 needle
--max-count=1 title
-E '(needle|stack)s?'
-E 'title [0-9]+ hay'
-F foo.bar
-P 'needle(?= \w)'
-P '\bdef main\('
-e needle -e '希少'
'--regexp=希少な単語'
'希少'
'🎉'
'naïve'
-i 'NAÏVE'
'absent words'
-q needle
-q 'absent words'
-s needle
-a needle
-I needle
--binary-files=without-match needle
-z needle
--color=always needle
--colour=always -n hay
'--include=*.json' needle
'--exclude=*.json' needle
--include=runtime.json '--exclude=s*' title
--exclude 'r*' needle
'--include=*.json' '--include=*.txt' '--exclude=runtime*' needle
--exclude-dir=deep needle
--exclude-dir=sessions needle
-b needle
-T needle
-Z -l needle
--null needle
-rn needle
--files-with-matches needle
--files-w needle
--no-messages hay
.
ab
-E 'a|b'
-y NEEDLE
--no-ignore-case needle
-U needle
-- -needle
needle -l
-lie NEEDLE
--context needle
--context=1 needle
--label=x needle
'--group-separator=##' -A1 needle
--no-group-separator -A1 needle
-m0 needle
-E -F foo.bar
-G 'foo\.bar'
--line-buffered needle
-d skip needle
-L 'absent words'
'(unclosed'
-E '(unclosed'
-E 'a{2,1}'
'[a'
-P '(unclosed'
'\d'
--nonsense needle
-k needle
--col needle
-A x needle
-m x needle
-f /absent
--binary-files=odd needle
-f /dev/null
--count=3 needle
""".strip().splitlines()
]
LINES += [[""], ["needle\nstack"], ["-P", "a\nb"]]


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_every_option_gives_the_result_of_grep(merged_home: Path, line: list[str]) -> None:
    """Output, order, messages and exit code are those of `grep -rn` in the home."""
    found, _ = in_process(merged_home, line)
    assert found == gnu(merged_home, line)


@pytest.mark.parametrize(
    "line", [["needle"], ["-c", "hay"], ["-E", "(unclosed"], ["absent words"], ["-A1", "-i", "NEEDLE"]]
)
def test_command_gives_the_result_of_grep(merged_home: Path, line: list[str]) -> None:
    """The same for the whole command, from arguments to exit code."""
    assert ours(merged_home, line) == gnu(merged_home, line)


def test_c_locale_is_passed_to_grep(merged_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python switches to UTF-8 in the C locale; grep must not."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for line in (["na.ve"], ["café"], ["-i", "NEEDLE"], ["单"]):
        assert ours(merged_home, line) == gnu(merged_home, line)


def test_usage_errors(merged_home: Path) -> None:
    """Wrong options are reported by grep; a missing pattern, `--help` and a wrong home by grovefs."""
    code, out, err = ours(merged_home, [])
    assert (code, out) == (2, b"")
    assert err.startswith(b"Usage: grovefs grep ")
    for line in (["-e"], ["--include"], ["-A"]):
        code, out, err = ours(merged_home, line)
        assert (code, out) == (2, b"")
        assert b"requires an argument" in err
    code, out, err = ours(merged_home, ["--help"])
    assert code == 0
    assert b"grovefs grep" in out
    code, out, err = ours(merged_home / "nowhere", ["needle"])
    assert (code, out) == (2, b"")
    assert err.startswith(b"grovefs: No such file")


def test_patterns_from_files_and_pipes(merged_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-f is relative to the caller's directory; a pipe is read once."""
    monkeypatch.chdir(tmp_path)
    Path("words").write_text("needle\nstack\n")
    expected = gnu(merged_home, ["-l", "-e", "needle", "-e", "stack"])
    assert ours(merged_home, ["-l", "-f", "words"]) == expected
    assert ours(merged_home, ["-l", "--file=words"]) == expected
    reads, writes = os.pipe()
    os.write(writes, b"needle\nstack\n")
    os.close(writes)
    assert ours(merged_home, ["-l", "-f", "-"], stdin=reads) == expected
    os.close(reads)


def test_only_files_that_can_match_are_opened(merged_home: Path) -> None:
    """Counted with strace, because reading every file would print the same."""
    line = ["-l", "title 77 "]
    trace = merged_home.parent / "trace"
    code = "from fusefs.cli import main; main()"
    command = ["strace", "-f", "-e", "trace=openat", "-o", str(trace), sys.executable, "-c", code, "grep"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, "--home", str(merged_home), *line], capture_output=True, env=env, timeout=120)
    assert done.stdout == gnu(merged_home, line)[1]
    opened = [entry for entry in trace.read_text().splitlines() if '"sessions/' in entry and "O_DIRECTORY" not in entry]
    assert len(opened) == done.stdout.count(b"\n") == 2


def test_binary_attachment_is_read_only_for_non_ascii_patterns(merged_home: Path) -> None:
    """Of binary files only printable ASCII is indexed."""
    _, files = in_process(merged_home, ["haystack"])
    assert files is not None
    assert not any(b"attachments" in path for path in files)
    _, files = in_process(merged_home, ["漢字"])
    assert files is not None
    assert sum(b".png" in path for path in files) == 1


def test_files_are_in_the_order_of_a_walk(tmp_path: Path) -> None:
    """A random selection, in the order in which grep -r visits them; also where fts sorts by inode."""
    rng = random.Random(3)
    (tmp_path / "sessions").mkdir()
    for i in rng.sample(range(10_050), 10_050):
        (tmp_path / f"sessions/{i}").mkdir()
    for i in range(0, 10_050, 50):
        for name in ("b", "a", "c"):
            (tmp_path / f"sessions/{i}/{name}").write_text("x")
    walked = subprocess.run(["grep", "-rl", "", "sessions"], cwd=tmp_path, capture_output=True).stdout.split()
    chosen = rng.sample(walked, 300)
    expected = [path for path in walked if path in set(chosen)]
    assert in_walk_order(chosen, os.fsencode(tmp_path) + b"/") == expected


def test_many_files_are_passed_in_several_runs(merged_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as fit in a command line. If the output depends on earlier output, one grep -r runs instead."""
    monkeypatch.setattr(
        os, "sysconf", lambda _: sum(len(k) + len(v) + 10 for k, v in os.environb.items()) + 64_000 + 300
    )
    for line in (["title 1"], ["-l", "needle"], ["-m1", "needle"], ["absent words"]):
        found, files = in_process(merged_home, line)
        assert found == gnu(merged_home, line)
        options = parse([os.fsencode(part) for part in line])
        assert files is None or len(files) < 8 or len(commands(options, files)) > 1
    for line in (["-A1", "title 1"], ["-q", "title 1"]):
        assert in_process(merged_home, line)[0] == gnu(merged_home, line)


def test_exit_codes_of_several_greps_are_combined() -> None:
    """An error in any run is an error; otherwise a match in any run is a match."""
    assert combine_exit_codes([1, 0, 1]) == 0
    assert combine_exit_codes([1, 1]) == 1
    assert combine_exit_codes([0, 2, 1]) == 2


def test_copied_names_equal_those_of_the_layout() -> None:
    """known_files repeats them, because importing the layout takes longer than a search."""
    assert known_files.SESSIONS.decode() == layout.SESSIONS
    assert known_files.INDEX_DB == layout.INDEX_DB
    assert known_files.SEGMENTS.startswith(layout.PRIVATE.encode() + b"/")


def test_slow_modules_are_not_imported(merged_home: Path) -> None:
    """Neither pydantic, typer, trio, orjson, re, dataclasses nor the store: start-up takes longer than a search."""
    code = (
        "import sys; before = set(sys.modules); "  # an editable installation has loaded some already
        "import os, fusefs.cli.commands.grep; from store.search.grep import grep; os.chdir(sys.argv[1]); "
        "assert grep.choose(grep.parse([b'absent words'])) == []; "  # also what is imported on the way
        "print([m for m in ('pydantic', 'typer', 'trio', 'pyfuse3', 'orjson', 'store.store', 'dataclasses', 're') "
        "if m in sys.modules.keys() - before])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(merged_home)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("line", [["-c", "hay"], ["-v", "e"], ["-L", "needle"], ["."], ["-E", "(open"], ["-c", "\\d"]])
def test_command_reads_all_files_where_nothing_can_be_narrowed(merged_home: Path, line: list[str]) -> None:
    """The same output, errors and exit code as `grep -rn`."""
    assert ours(merged_home, line) == gnu(merged_home, line)


def test_closed_pipe_ends_the_command(merged_home: Path) -> None:
    """`grovefs grep . | head -1`: killed by SIGPIPE like grep, without a message."""
    command = [sys.executable, "-c", "from fusefs.cli import main; main()", "grep", "--home", str(merged_home), "."]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) in (-13, 0)


# -- damage and outside edits ------------------------------------------------------------------------------


def copy_of(home: Path, target: Path) -> Path:
    shutil.copytree(home, target, symlinks=True, ignore=shutil.ignore_patterns("fifo"))
    return target


def agree(home: Path, *lines: list[str]) -> None:
    for line in lines or (["needle"], ["-l", "title 7"], ["-c", "hay"]):
        assert in_process(home, line)[0] == gnu(home, line)


def test_outside_edits_are_found(home: Path) -> None:
    """In place, by rename, created, deleted, in new directories: without a server every stamp is compared."""
    make_home(home)
    with Store.open(home, background=False) as store:
        settle()
        store.trigrams.rebuild()
        assert in_process(home, ["zyzzyva"])[1] == []
        with (home / "sessions/s07/session.json").open("a") as file:
            file.write("\nzyzzyva in place")
        (home / "sessions/s08/new.txt").write_text("zyzzyva, new")
        (home / "sessions/s10/children/x/attachments").mkdir(parents=True)
        (home / "sessions/s10/children/x/attachments/y").write_text("zyzzyva, deep")
        (home / "other").write_text("zyzzyva, moved")
        (home / "other").rename(home / "sessions/s09/runtime.json")
        (home / "sessions/s11/session.json").unlink()
        shutil.rmtree(home / "sessions/s12")
        (home / "sessions/s13").rename(home / "sessions/s99")
        found, files = in_process(home, ["zyzzyva"])
        assert found == gnu(home, ["zyzzyva"])
        assert found[1].count(b"\n") == 4
        assert files is not None
        assert len(files) < 10
        agree(home)


def test_file_replaced_by_another_type_is_skipped(home: Path) -> None:
    """By a symlink, a symlink to a directory, or a directory: grep -r skips them."""
    make_home(home)
    with Store.open(home, background=False) as store:
        settle()
        store.trigrams.rebuild()
    for number, target in ((0, "../s03/session.json"), (1, "../s03"), (10, "nowhere")):
        path = home / f"sessions/s{number:02}/session.json"
        path.unlink()
        path.symlink_to(target)
    path = home / "sessions/s20/session.json"
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("needle")
    agree(home, ["needle"], ["-i", "NEEDLE"], ["absent words"])


def test_unreadable_directory_is_reported(home: Path) -> None:
    """With grep's message and exit code 2, also without a candidate in it. Root drops its capabilities here."""
    make_home(home)
    with Store.open(home, background=False) as store:
        settle()
        store.trigrams.rebuild()
    (home / "sessions/s03").chmod(0)
    (home / "sessions/s04/session.json").chmod(0)
    (home / "sessions/s06").chmod(0o400)
    unprivileged = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    program = [sys.executable, "-c", "from fusefs.cli import main; main()", "grep", "--home", str(home)]
    try:
        for line in (["needle"], ["absent words"], ["-l", "title 7"]):
            ours = subprocess.run([*unprivileged, *program, *line], capture_output=True, cwd=ROOT)
            expected = subprocess.run([*unprivileged, "grep", "-rn", *line, "sessions"], capture_output=True, cwd=home)
            assert (ours.returncode, ours.stdout) == (expected.returncode, expected.stdout)
            assert sorted(ours.stderr.splitlines()) == sorted(expected.stderr.splitlines())
            assert ours.returncode == 2
    finally:
        (home / "sessions/s03").chmod(0o700)
        (home / "sessions/s06").chmod(0o700)


@pytest.mark.parametrize(
    "damage", ["missing", "truncated", "garbage", "empty", "no database", "corrupt database", "old schema"]
)
def test_damaged_index_reads_all_files(merged_home: Path, tmp_path: Path, damage: str) -> None:
    """The result is still that of grep."""
    home = copy_of(merged_home, tmp_path / "home")
    with Store.open(home, background=False) as store:
        settle()
        store.trigrams.rebuild()
    assert in_process(home, ["absent words"])[1] == []
    database = home / layout.INDEX_DB
    for segment in (home / ".grovefs/trigrams").iterdir():
        if damage == "missing":
            segment.unlink()
        elif damage in ("truncated", "garbage", "empty"):
            good = segment.read_bytes()
            segment.write_bytes(
                {"truncated": good[: len(good) // 2], "garbage": b"\xa5" * len(good), "empty": b""}[damage]
            )
    if damage == "no database":
        database.unlink()
    elif damage == "corrupt database":
        database.write_bytes(b"\xa5" * 100_000)
    elif damage == "old schema":
        subprocess.run(
            [sys.executable, "-c", f"import apsw; apsw.Connection({str(database)!r}).pragma('user_version', 1)"],
            check=True,
        )
    agree(home, ["needle"], ["absent words"], ["-i", "TITLE 7"])
    assert in_process(home, ["absent words"])[1] is None


# -- random operations ------------------------------------------------------------------------------------


texts = st.lists(st.sampled_from([*WORDS, "\n", " ", '"', "\\n"]), min_size=1, max_size=6).map("".join)
edits = st.one_of(
    st.tuples(st.just("save"), st.integers(0, 5), texts),
    st.tuples(st.just("append"), st.integers(0, 5), texts),
    st.tuples(st.just("delete"), st.integers(0, 5), texts),
    st.tuples(st.just("disk"), st.integers(0, 5), texts),
    st.tuples(st.just("foreign"), st.integers(0, 5), texts),
    st.tuples(st.just("remove"), st.integers(0, 5), texts),
    st.tuples(st.just("move"), st.integers(0, 5), texts),
    st.tuples(st.just("merge"), st.just(0), st.just("")),
    st.tuples(st.just("sweep"), st.just(0), st.just("")),
)
flags = st.lists(
    st.sampled_from(["-i", "-l", "-o", "-w", "-c", "-v", "-h", "-A1", "-m1", "-L", "-a", "--include=*.json", "-q"]),
    max_size=3,
)
searches = st.tuples(
    flags,
    st.sampled_from(["-G", "-E", "-F", "-P"]),
    st.sampled_from(
        [*WORDS, "nee.*e", "need[lk]e", "stack$", "希少", "hay|stack", "(hay)+", "na.ve", "NEEDLE", "zzz", "le\\b"]
    ),
)


def apply(store: Store, edit: tuple[str, int, str]) -> None:
    what, number, text = edit
    name = f"s{number}"
    place = store.home / "sessions" / name
    if what == "save":
        store.put_document(name, layout.SESSION, make_document(name, title=text), on_conflict="overwrite")
    elif what == "append" and store.load(name) is not None:
        store.append(name, [{"role": "user", "content": text}])
    elif what == "delete":
        store.delete(name)
    elif what == "disk" and (place / "session.json").exists():
        (place / "session.json").write_bytes(make_document(name, title=text))
    elif what == "foreign":
        (place / "notes").mkdir(parents=True, exist_ok=True)
        (place / f"notes/{len(text)}.txt").write_text(text)
    elif what == "remove":
        shutil.rmtree(place / "notes", ignore_errors=True)
    elif what == "move" and (place / "notes").exists():
        target = store.home / f"sessions/moved{number}"
        if not target.exists():
            (place / "notes").rename(target)
    elif what == "merge":
        settle()
        store.trigrams.merge()
    elif what == "sweep":
        store.trigrams.sweep()


def unknown_files(store: Store) -> set[bytes]:
    """Files whose current version is not indexed, found by comparing each."""
    reader = store._core.db.reader
    files = dict(reader.execute("SELECT path, stamp FROM grep_files"))
    listed = {path for (path,) in reader.execute("SELECT path FROM grep_changed")}
    present = [p for p in (store.home / "sessions").rglob("*") if p.is_file() and not p.is_symlink()]
    relative = {os.fsencode(p.relative_to(store.home)): file_stamps.pack(p.lstat()) for p in present}
    return {path for path, stamp in relative.items() if files.get(path) != stamp or path in listed}


@settings(
    max_examples=25, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(st.lists(edits, min_size=3, max_size=14), st.lists(searches, min_size=2, max_size=5))
def test_any_store_any_edit_any_pattern(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, int, str]],
    questions: list[tuple[list[str], str, str]],
) -> None:
    """The result is that of GNU grep, and only files that can match or have changed are read."""
    home = tmp_path_factory.mktemp("random") / "home"
    with Store.open(home, background=False) as store:
        for i in range(6):
            apply(store, ("save", i, WORDS[i]))
        settle()
        store.trigrams.rebuild()
        for i, step in enumerate(steps):
            apply(store, step)
            for more_flags, syntax, pattern in questions if i == len(steps) - 1 else questions[:1]:
                line = [*more_flags, syntax, "-e", pattern]
                found, files = in_process(home, line)
                assert found == gnu(home, line)
                if files is not None:
                    check_count(store, line, files)


SYNTAXES = {"-G": "basic", "-E": "extended", "-F": "fixed", "-P": "perl"}


def check_count(store: Store, line: list[str], files: list[bytes]) -> None:
    query = query_of([line[-1].encode()], SYNTAXES[line[-3]], fold="-i" in line)  # type: ignore[arg-type]
    changed = unknown_files(store)
    for path in files:
        data = (store.home / os.fsdecode(path)).read_bytes()
        is_text = b"\0" not in data
        assert path in changed or satisfies(query, data) or not is_text, path
    assert len(files) == len(set(files))
