"""Short forms of session names: the beginning of a UUID that no other id has."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from fusefs.cli.short_names import shorten
from store import Store, Timestamp
from store.history.authors import Author, acting_as
from tests.builders import make_session
from tests.fusefs.cli.test_cli import grovefs, on_a_terminal
from tests.store.undo.test_version_lookup import retitle

ONE = "7d3c1f0e-6a51-4c0e-9a5e-0b8d5f1d2c11"
TWO = "019a2d7a-41c4-78b1-b7cc-a45d62a89cd5"
THREE = "019a2d7a-41c4-78b1-b7cc-a45d62a89cd6"
FOUR = "019a2d7a-52d5-78b1-b7cc-a45d62a89cd6"
COLUMNS = 80


def test_uuids_are_cut_where_no_other_id_begins_alike() -> None:
    known = [ONE, f"{ONE}/{TWO}", f"{ONE}/agent-1", FOUR, "fix-login"]
    assert shorten(known, known) == {
        ONE: "7d3c1f0e",
        f"{ONE}/{TWO}": "7d3c1f0e/019a2d7a-41c4",
        f"{ONE}/agent-1": "7d3c1f0e/agent-1",
        FOUR: "019a2d7a-52d5",
    }
    assert shorten([TWO, THREE], [TWO, THREE]) == {}
    assert shorten([TWO], [TWO, "019a2d7a"]) == {TWO: "019a2d7a-41c4"}


@pytest.fixture
def imported(home: Path) -> Path:
    """Sessions with ids as agents make them, long titles, and large numbers; sed changed each of them."""
    title, model = "Find out why the cart of the shop is empty after the login", "claude-opus-4-5-20251101"
    with Store.open(home, background=False, author="agent") as store:
        store.save(make_session(ONE, title=title, model=model))
        store.save(make_session(FOUR, title=title))
        store.save(make_session(TWO, title=title, kind="child", root_session_id=ONE, parent_session_id=ONE))
        used = {"input_tokens": 123_456_789, "output_tokens": 12_345_678, "cache_read_input_tokens": 1_234_567_890}
        store.usage.append(ONE, {"ts": Timestamp.now(), "model": model, **used})
        with acting_as(Author("mount", "sed", 4711, os.getuid())):
            for id in (ONE, FOUR, f"{ONE}/{TWO}"):
                retitle(store, id, f"{title} page")
    return home


def lines_of(home: Path, *arguments: str) -> list[str]:
    """What a terminal of 80 columns shows."""
    shown = on_a_terminal(home, *arguments, columns=COLUMNS)
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "").splitlines()
    assert all(cell_len(line) <= COLUMNS for line in lines)
    return lines


@pytest.mark.parametrize(
    ("command", "column"),
    [("ls", 1), ("search --sessions cart", 1), ("undo --since 1h --by sed --dry-run", 0)],
)
def test_a_row_is_one_line_and_its_name_can_be_copied(imported: Path, command: str, column: int) -> None:
    rows = lines_of(imported, *command.split())[1:4]
    names = {row.split()[column] for row in rows}
    assert names == {"7d3c1f0e", "019a2d7a-52d5", "7d3c1f0e/019a2d7a-41c4"}
    for name in names:
        assert grovefs(imported, "show", name).returncode == 0
    piped = [line.split("\t") for line in grovefs(imported, *command.split()).stdout.splitlines()[:3]]
    assert {row[column] for row in piped} == {ONE, FOUR, f"{ONE}/{TWO}"}


def test_a_wide_terminal_shows_whole_names(imported: Path) -> None:
    assert f"{ONE}/{TWO}" in on_a_terminal(imported, "ls", columns=200)


def test_large_numbers_are_rounded_on_a_narrow_terminal(imported: Path) -> None:
    shown = next(line for line in lines_of(imported, "stats") if line.startswith("claude-opus"))
    assert shown.split() == ["claude-opus-4-5-20251101", "1", "2", "1", "123M", "12M", "1.2G"]
