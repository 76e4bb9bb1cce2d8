"""Where sessions of agents are found: also where a directory is a link or cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from store import NotFound, Store
from store.disk.disk import Disk
from store.disk.file import DirEntry
from store.transfer.import_places import find_agents, find_below
from tests.store.transfer.foreign import claude_line, write_lines

ID = "aaaaaaaa-0000-4000-8000-000000000001"


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """Two projects of Claude Code, on another disk."""
    place = tmp_path / "disk/projects"
    for name, id in (("-a", ID), ("-b", ID.replace("1", "2"))):
        line = claude_line("user", f"u{name}", {"role": "user", "content": f"hello {name}"}, "00:00")
        write_lines(place / name / f"{id}.jsonl", [line])
    return place


@pytest.fixture
def linked(projects: Path, tmp_path: Path) -> Path:
    """A home directory whose ~/.claude/projects is a link."""
    (tmp_path / "user/.claude").mkdir(parents=True)
    (tmp_path / "user/.claude/projects").symlink_to(projects)
    return tmp_path / "user"


def test_usual_place_may_be_a_link(linked: Path, projects: Path) -> None:
    found = find_agents({"HOME": str(linked)}).found
    assert [(each.format, each.path, each.files) for each in found] == [("claude-code", str(projects), 2)]


def test_link_in_a_named_source_is_named_in_the_error(linked: Path) -> None:
    """Links in a source are not followed: it may come from somebody else."""
    with pytest.raises(NotFound, match=r"projects is a link, and links are not followed: import .*/\.claude/projects"):
        find_below(str(linked / ".claude"))
    assert find_below(str(linked / ".claude/projects")).found


def test_unreadable_directory_is_reported(store: Store, projects: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are imported; the next import tries again."""
    listed = Disk.entries

    def entries(disk: Disk, path: str) -> list[DirEntry]:
        if path == "-a":
            raise PermissionError(13, "Permission denied", path)
        return listed(disk, path)

    with monkeypatch.context() as patched:
        patched.setattr(Disk, "entries", entries)
        summary = store.imports.run(str(projects))
    assert summary.counts == {"new": 1}
    assert [str(problem) for problem in summary.problems] == [
        f"{projects}/-a: Permission denied; nothing in it was imported"
    ]
    again = store.imports.run(str(projects))
    assert (again.counts, again.problems) == ({"new": 1, "unchanged": 1}, [])
