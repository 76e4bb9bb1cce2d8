"""`grovefs projects`: output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

from store import ProjectSession, Store
from store.workspace.projects import project_key
from tests.fusefs.cli.test_cli import grovefs


def test_projects_are_listed_shown_and_rebuilt(home: Path) -> None:
    with Store.open(home, background=False) as store:
        store.projects.save(ProjectSession("k", "p"), {"title": "Parent"})
        store.projects.save(
            ProjectSession("k", "p", "c"), {"title": "Child", "status": "running", "subagent_type": "coder"}
        )
    assert grovefs(home, "projects", "list").stdout == "k\t2\n"
    assert grovefs(home, "projects", "list", "k").stdout == "p\t\t\tParent\np/c\tcoder\trunning\tChild\n"
    assert json.loads(grovefs(home, "projects", "list", "--json").stdout) == [{"key": "k", "sessions": 2}]
    for name in ("p/c", "c"):
        assert json.loads(grovefs(home, "projects", "show", "k", name).stdout)["title"] == "Child"
    (home / "projects/k/index.json").unlink()
    assert grovefs(home, "projects", "rebuild", "k").returncode == 0
    assert (home / "projects/k/index.json").exists()


def test_projects_are_found_by_workspace_path_and_key(home: Path, tmp_path: Path) -> None:
    assert grovefs(home, "projects", "key", str(tmp_path)).stdout == f"{project_key(tmp_path)}\n"
    with Store.open(home, background=False) as store:
        store.projects.save(ProjectSession(project_key(tmp_path), "p"), {"title": "By its path"})
    assert "By its path" in grovefs(home, "projects", "list", str(tmp_path)).stdout
    assert "By its path" in grovefs(home, "projects", "list", "--", project_key(tmp_path)).stdout


def test_missing_projects_and_sessions_are_one_line_errors(home: Path) -> None:
    with Store.open(home, background=False) as store:
        store.projects.save(ProjectSession("k", "p"), {})
    for arguments in (("list", "nowhere"), ("show", "k", "nobody"), ("rebuild", "nowhere")):
        result = grovefs(home, "projects", *arguments)
        assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert not (home / "projects/nowhere").exists()
