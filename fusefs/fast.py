"""The C extension `_fast`: loads it, and says why it cannot be used. tree/fast_path.py uses it.

The extension is not used if it was not built, if GROVEFS_WITHOUT contains `fast`, or if pyfuse3 was
imported before this module: the extension provides a function that pyfuse3 gets from libfuse
otherwise. Python then answers all requests.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from types import ModuleType

from fusefs.switches import enabled

FAST_HANDLE = 1 << 62  # a handle that the extension opened: this bit and a descriptor
NODE_HANDLE = 1 << 63  # in place of a directory's handle: this bit and a node
LAST_POSITION = 1 << 23  # in the position of a listing's last name: the extension answers that nothing follows

# Names that programs look for in every directory of a tree. The extension answers that they do not exist.
PROBED_NAMES = frozenset({".fdignore", ".git", ".gitignore", ".ignore", ".rgignore"})


def _load() -> tuple[ModuleType | None, str]:
    """The extension, or why it cannot be used."""
    name = "fusefs._fast"
    if not enabled("fast"):
        return None, "disabled by GROVEFS_WITHOUT"
    if "pyfuse3" in sys.modules and name not in sys.modules:
        return None, "pyfuse3 was imported before it"
    flags = sys.getdlopenflags()
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_GLOBAL)
    try:
        return import_module(name), ""
    except ImportError as error:
        return None, f"the C extension cannot be loaded ({error})"
    finally:
        sys.setdlopenflags(flags)


EXTENSION, PROBLEM = _load()
