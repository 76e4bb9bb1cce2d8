"""The house is in order: imports point one way, the rules are cited, README and package agree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent

# From the ground up: a module imports only those above it in this list.
STORE = [
    *["patterns", "trigrams", "grep_options", "walk_order", "stamps", "known", "grep_runs", "grep"],
    *["errors", "arguments", "timestamps", "words", "query"],
    *["record", "messages", "tasks", "budget", "runtime_state", "mirrors", "gist", "models"],
    *["layout", "places", "attachments", "labels", "transcript", "faults", "garbage", "codec", "secrets", "overlay"],
    *["documents", "anchors", "inbox", "artifacts"],
    *["project_index"],
    *["kernel", "atomic", "logs", "lock", "schema", "leisure", "upkeep"],
    *["pieces", "search", "feed", "index", "journal", "sessions", "rejects", "core"],
    *["waiting", "pages", "shelves", "naming", "usage"],
    *["trash", "prune", "commits", "mailbox", "state"],
    *["derived", "projects", "project_moves"],
    *["saves", "owners", "puts", "beside", "records"],
    *["parts"],
    *["removal", "pruning", "agents", "relocate", "forking", "arrivals", "namespace"],
    *["bamboo", "export", "findings", "parity", "check", "check_parts"],
    *["check_projects"],
    *["check_secrets"],
    *["check_trigrams", "check_plants"],
    *["find", "summaries", "trajectory", "keeper", "watch", "vouch", "opening"],
    *["health", "backend", "memory"],
    *["importers.source", "importers.shape", "importers.values", "importers.building", "importers.blocks"],
    *["importers.elements", "importers.lineage", "importers.branches", "importers.claude_code", "importers.codex"],
    *["importers.chatgpt", "importers.bamboo_home", "importers.oxios", "importers.a3s", "importers.formats"],
    *["importing", "exporting"],
    *["manifest", "units", "backup_tree", "backup_writer", "backup", "restore_choice", "restoring"],
    *["home", "store", "public"],
]


def imports_of(path: Path) -> set[str]:
    """Modules of ours that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def modules() -> list[Path]:
    return [path for path in (ROOT / "store").rglob("*.py") if path.stem != "__init__"]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "store").with_suffix("").parts)


def test_the_store_is_built_from_the_ground_up() -> None:
    """No module imports one that stands above it, so nothing imports in circles."""
    assert {name_of(path) for path in modules()} == set(STORE)
    for place, name in enumerate(STORE):
        path = ROOT / f"store/{name.replace('.', '/')}.py"
        used = {m.removeprefix("store.") for m in imports_of(path) if m.startswith("store.")}
        above = {m for m in used if m in STORE and STORE.index(m) >= place}
        assert not above, f"{name} imports {above}"


def test_the_store_knows_nothing_of_fuse() -> None:
    """`store` is plain synchronous Python."""
    for path in modules():
        assert not {m for m in imports_of(path) if m.split(".")[0] in ("fusefs", "pyfuse3", "trio")}, path


def test_every_rule_has_a_test_that_names_it() -> None:
    """The ten rules of store/__init__.py."""
    text = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    cited = {int(n) for n in re.findall(r"[Rr]ules? (\d+)", text)}
    cited |= {int(n) for group in re.findall(r"[Rr]ules ([\d, and]+)", text) for n in re.findall(r"\d+", group)}
    assert set(range(1, 11)) <= cited


# Only these may know pyfuse3: the rest of the mount is plain to test, and `check` runs where libfuse is absent.
KNOW_PYFUSE3 = {"errors", "loop", "attrs", "invalidate", "operations", "mount"}


def test_only_a_few_modules_know_pyfuse3() -> None:
    """The command line imports the mount only to mount."""
    for path in (ROOT / "fusefs").rglob("*.py"):
        if path.stem not in KNOW_PYFUSE3:
            assert "pyfuse3" not in {m.split(".")[0] for m in imports_of(path)}, path


def test_the_readme_lists_the_commands_there_are() -> None:
    """In its table, all of them and no others. (What it shows of them is run by tests/mount/test_readme.py.)"""
    code = "from typer.main import get_command; from fusefs.cli import load; print(*get_command(load()).commands)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    table = (ROOT / "README.md").read_text().partition("\n## Commands\n")[2].partition("\n## ")[0]
    listed = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall("`(.*?)`", row)}
    assert listed == set(result.stdout.split()), result.stderr


def test_the_wheel_has_every_package_and_file() -> None:
    """`pip install .` brings what a clone has: packages are listed by name, and nothing in them is left out."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    files = subprocess.run(["git", "ls-files", "store", "fusefs"], capture_output=True, text=True, cwd=ROOT, check=True)
    paths = [Path(line) for line in files.stdout.splitlines()]
    assert {".".join(path.parent.parts) for path in paths} == set(listed)
    assert [path for path in paths if path.suffix != ".py"] == []  # a data file would need package-data


def test_the_first_script_one_meets_explains_itself() -> None:
    """It is run by strangers: help is no wrong usage, and a wrong usage says where the help is."""
    told = subprocess.run(["scripts/mount", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stderr) == (0, "")
    assert "--stop" in told.stdout
    wrong = subprocess.run(["scripts/mount", "--bogus"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (wrong.returncode, wrong.stdout, "--help" in wrong.stderr) == (2, "", True)
