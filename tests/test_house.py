"""The layout of the code: packages import downwards only, every rule is tested, the help lists every command."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# From the bottom up: a module imports only packages that come before its own, or its own.
STORE = [
    *["errors", "layout", "path_kinds"],
    *["model", "documents", "disk", "index", "history", "commit", "sessions", "workspace", "search", "namespace"],
    *["undo", "transfer", "home", "grove", "check"],
    *["backend", "memory_store", "groups", "grouped", "store", "public", "public_modules"],
]
FUSEFS = ["switches", "fast", "prices", "views", "tree", "requests", "daemon", "cli"]

# The modules of `store` that `fusefs` may import in addition to the public names of `store`.
SURFACE = {
    *["errors", "layout", "path_kinds"],
    *[
        "commit.write_request",
        *["history.authors", "home.history_upkeep"],
        "namespace.moves",
        "namespace.reader",
        "disk.disk",
        "disk.file",
        "disk.file_io",
        "disk.rejects",
        "disk.reserve",
        "disk.trash",
    ],
    "history.authors",
    *[
        "documents.display_names",
        "documents.document",
        "documents.search_text",
        "documents.secrets",
        "documents.transcript",
    ],
    *[
        "index.catalog",
        "search.browse",
        "search.filters",
        "search.query",
        "search.results",
        "search.page_facts",
        "search.prices",
        "search.transcripts",
        "search.usage",
    ],
    *["search.grep.grep", "sessions.deletions", "sessions.cleanup"],
    *[
        "undo.changes",
        "undo.versions_spec",
        "undo.word_diff",
        "workspace.agent_records",
        "workspace.projects",
        "workspace.state",
    ],
    *["grove.administration", "grove.join_plan", "grove.private_server", "grove.replica"],
    *["transfer.backup.backup", "transfer.backup.restore", "transfer.backup.tree"],
    *[
        "transfer.formats.importer",
        "transfer.imports",
        "transfer.import_places",
        "transfer.import_follow",
        "transfer.exports",
        "check.health",
    ],
}

MAX_TOP_MODULES = 10  # modules directly in store/


def imports_of(path: Path) -> set[str]:
    """The modules a file imports, also inside functions; `from a import b` counts as a.b if that is a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {
                f"{node.module}.{alias.name}" for alias in node.names if is_module(f"{node.module}.{alias.name}")
            }
            found |= submodules
            if len(submodules) < len(node.names):
                found.add(node.module)
    return found


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def modules(top: str) -> list[Path]:
    return [path for path in (ROOT / top).rglob("*.py") if path != ROOT / top / "__init__.py"]


def package_of(path: Path, top: str) -> str:
    """The package directly below `store` or `fusefs` that contains a file; a top-level module is its own."""
    return path.relative_to(ROOT / top).parts[0].removesuffix(".py")


@pytest.mark.parametrize(("top", "order"), [("store", STORE), ("fusefs", FUSEFS)])
def test_packages_import_downwards_only(top: str, order: list[str]) -> None:
    """A module that imports a package above its own is in the wrong place."""
    for path in modules(top):
        package = package_of(path, top)
        assert package in order, f"{path}: add its package to STORE or FUSEFS in tests/test_house.py"
        used = {name.split(".")[1] for name in imports_of(path) if name.startswith(f"{top}.")}
        above = {name for name in used if order.index(name) > order.index(package)}
        assert not above, f"{path.relative_to(ROOT)} imports {above}"


def test_there_are_no_import_cycles() -> None:
    """Not inside a package either."""
    graph = {name_of(path): imports_of(path) for top in ("store", "fusefs") for path in modules(top)}
    done: set[str] = set()

    def visit(name: str, chain: tuple[str, ...]) -> None:
        assert name not in chain, " → ".join([*chain[chain.index(name) :], name])
        if name in graph and name not in done:
            for other in sorted(graph[name]):
                visit(other, (*chain, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_fusefs_uses_a_small_part_of_the_store() -> None:
    """Modules that are not in the list can change freely."""
    used = {name.removeprefix("store.") for path in modules("fusefs") for name in imports_of(path) if "store." in name}
    assert used <= SURFACE, used - SURFACE
    assert used >= SURFACE, f"no longer used: {SURFACE - used}"


def test_store_has_few_top_level_modules() -> None:
    """A new module goes into a package."""
    assert len([path for path in (ROOT / "store").glob("*.py") if path.stem != "__init__"]) <= MAX_TOP_MODULES


def test_no_class_name_exists_twice() -> None:
    """Private classes included: a name in a traceback or a search must lead to one class."""
    found: dict[str, Path] = {}
    for path in [*modules("store"), *modules("fusefs")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                assert node.name not in found, f"{node.name}: {found[node.name]} and {path}"
                found[node.name] = path


def test_every_package_has_a_short_docstring_and_no_imports() -> None:
    """At most fifteen lines; imports would cost start-up time."""
    for path in [*(ROOT / "store").rglob("*/__init__.py"), *(ROOT / "fusefs").rglob("*/__init__.py")]:
        if path.parent in (ROOT / "store", ROOT / "fusefs", ROOT / "fusefs/cli"):
            continue
        tree = ast.parse(path.read_text())
        assert len(tree.body) == 1, path
        assert len(ast.get_docstring(tree) or "") > 40, path
        assert path.read_text().count("\n") <= 15, path


def test_store_does_not_import_fuse() -> None:
    """`store` is plain synchronous Python."""
    for path in modules("store"):
        assert not {m for m in imports_of(path) if m.split(".")[0] in ("fusefs", "pyfuse3", "trio")}, path


def test_every_rule_has_a_test_that_names_it() -> None:
    """The eleven rules of store/__init__.py."""
    text = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    cited = {int(n) for n in re.findall(r"[Rr]ules? (\d+)", text)}
    cited |= {int(n) for group in re.findall(r"[Rr]ules ([\d, and]+)", text) for n in re.findall(r"\d+", group)}
    assert set(range(1, 12)) <= cited


# Only these may import pyfuse3: the rest can be tested without a mount, and `grovefs check` runs without libfuse.
MAY_IMPORT_PYFUSE3 = {
    *[f"requests.{name}" for name in ("errnos", "request_loop", "attributes", "kernel_cache", "operations")],
    "requests.entry_numbers",
    "daemon.mount",
}


def test_few_modules_import_pyfuse3() -> None:
    """The command line imports the mount only in `grovefs mount`."""
    for path in modules("fusefs"):
        if name_of(path).removeprefix("fusefs.") not in MAY_IMPORT_PYFUSE3:
            assert "pyfuse3" not in {m.split(".")[0] for m in imports_of(path)}, path


def test_tree_imports_neither_trio_nor_pyfuse3() -> None:
    """Nodes, handles and write buffers are plain Python."""
    for path in (ROOT / "fusefs/tree").rglob("*.py"):
        assert not {m for m in imports_of(path) if m.split(".")[0] in ("pyfuse3", "trio")}, path


def test_the_command_topic_lists_all_commands() -> None:
    """`grovefs help commands` has a table with all of them and no others."""
    code = "from typer.main import get_command; from fusefs.cli import load; print(*get_command(load()).commands)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    page = (ROOT / "fusefs/cli/topics/commands.md").read_text()
    listed = {name for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE) for name in re.findall("`(.*?)`", row)}
    assert listed == set(result.stdout.split()), result.stderr


def test_wheel_contains_every_package_and_file() -> None:
    """`pip install .` installs the same files as a clone: every package is listed, and package-data
    and ext-modules cover the rest.
    """
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    files = subprocess.run(["git", "ls-files", "store", "fusefs"], capture_output=True, text=True, cwd=ROOT, check=True)
    paths = [Path(line) for line in files.stdout.splitlines()]
    assert {".".join(path.parent.parts) for path in paths if path.suffix == ".py"} == set(setuptools["packages"])
    data = setuptools["package-data"]
    covered = {p for package, globs in data.items() for g in globs for p in (ROOT / package.replace(".", "/")).glob(g)}
    compiled = {ROOT / source for extension in setuptools["ext-modules"] for source in extension["sources"]}
    assert {ROOT / path for path in paths if path.suffix != ".py"} == covered | compiled


def test_scripts_test_has_help() -> None:
    """It is printed at once: nothing is installed, checked or tested."""
    shown = subprocess.run(["scripts/test", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("usage: scripts/test [--coverage]")


def test_scripts_mount_has_help() -> None:
    """--help succeeds, and a wrong option refers to it."""
    shown = subprocess.run(["scripts/mount", "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--stop" in shown.stdout
    wrong = subprocess.run(["scripts/mount", "--bogus"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (wrong.returncode, wrong.stdout, "--help" in wrong.stderr) == (2, "", True)
