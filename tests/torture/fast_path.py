"""The C extension and the kernel's listings, attacked: sanitizers, and changes of directories while readers list."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from store import Store
from tests.builders import make_session
from tests.mount.listing_changes import ListingChanges
from tests.torture.attack import Case
from tests.torture.mounts import Mounted, mounted
from tests.torture.places import scratch

ROOT = Path(__file__).parent.parent.parent
CHANGES = 10_000
CHANGES_AT_ONCE = 500  # with one pair of mounts

# Runs in every Python process: the sanitized extension takes the place of the installed one.
_REPLACE_EXTENSION = """
import os, sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
flags = sys.getdlopenflags()
sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
spec = spec_from_file_location("fusefs._fast", {path!r}, loader=ExtensionFileLoader("fusefs._fast", {path!r}))
sys.modules["fusefs._fast"] = module_from_spec(spec)
sys.setdlopenflags(flags)
"""
_SANITIZED_TESTS = {
    "the extension by itself": ["tests/fusefs/test_fast.py", "tests/fusefs/requests/test_read_ahead.py"],
    "opens and listings": ["tests/mount/test_fast_path.py"],
    "caches": ["tests/mount/test_caches.py", "-k", "not without and not switches"],
    "readers and writers": ["tests/mount/test_concurrency.py", "-k", "own_write or five_hundred or renamed_session"],
}


# -- listings --------------------------------------------------------------------------------------


def listings(seed: int) -> Iterator[Case]:
    """Changes through this mount, another mount, the API and the disk, each compared with what is listed."""
    for number in range(CHANGES // CHANGES_AT_ONCE):
        yield Case(f"changes {number}", lambda number=number: change(seed + number, CHANGES_AT_ONCE))  # type: ignore[misc]


def change(seed: int, count: int) -> None:
    with ExitStack() as stack:
        mount = stack.enter_context(mounted(_fill))
        other = Mounted(mount.home, stack.enter_context(scratch()) / "mnt", mount.log.with_name("log-other"))
        other.path.mkdir()
        other.mount()
        stack.callback(other.ended)
        stack.callback(other.unmount)
        with ListingChanges(mount, other, random.Random(seed)) as changes:
            for _ in range(count):
                changes.change()
            changes.settle()
            print(changes.describe_delays(), file=sys.stderr)


def _fill(home: Path) -> None:
    with Store.open(home, background=False) as store:
        store.save(make_session("root", messages=3, title="The root"))
        store.save(make_session("pinned", pinned=True, title="Pinned"))
        store.attach("root", b"\x89PNG not really", "image/png")


# -- sanitizers ------------------------------------------------------------------------------------


def sanitized(seed: int) -> Iterator[Case]:
    """Tests of the mount with an extension built with AddressSanitizer and UndefinedBehaviorSanitizer."""
    with scratch() as place:
        environment = build_sanitized(place)
        for name, tests in _SANITIZED_TESTS.items():
            yield Case(name, lambda tests=tests: run_sanitized(place, environment, tests))  # type: ignore[misc]


def build_sanitized(place: Path) -> dict[str, str]:
    """Build the extension. Returns the environment in which Python uses it."""
    path = place / f"_fast{sysconfig.get_config_var('EXT_SUFFIX')}"
    command = ["cc", "-shared", "-fPIC", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer"]
    command += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", f"-I{sysconfig.get_path('include')}"]
    subprocess.run([*command, str(ROOT / "fusefs/_fast.c"), "-o", str(path), "-lfuse3"], check=True)
    (place / "sitecustomize.py").write_text(_REPLACE_EXTENSION.format(path=str(path)))
    libraries = [_library("libasan.so"), _library("libubsan.so")]
    options = f"detect_leaks=0:log_path={place}/report"  # Python itself frees little at its end
    return {
        **os.environ,
        "PYTHONPATH": f"{place}:{ROOT}",
        "PYTHONMALLOC": "malloc",
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": options,
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={place}/report",
    }


def _library(name: str) -> str:
    done = subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run_sanitized(place: Path, environment: dict[str, str], tests: list[str]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    reports = [report.read_text() for report in place.glob("report.*")]
    assert not reports, "\n".join(reports)[:8000]
    assert done.returncode == 0, done.stdout[-8000:]
