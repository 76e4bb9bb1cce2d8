"""Optimizations of the mount that can be disabled, for measurements and debugging.

GROVEFS_WITHOUT is a comma-separated list of names. Correctness does not depend on any of them.

    fast        answer opens of unchanged versions in C                  fast.py
    loop        read requests without a scheduler pass each              requests/request_loop.py
    ahead       read directories ahead of a program that walks a tree    requests/read_ahead.py
    timeouts    let the kernel cache names and attributes                requests/attributes.py
    pages       keep cached pages when a file is opened again            requests/files.py
    listings    cache directory listings until a change, here and in the kernel
                                                                         tree/tree.py, fast.py
"""

from __future__ import annotations

import os

VARIABLE = "GROVEFS_WITHOUT"


def enabled(optimization: str) -> bool:
    return optimization not in os.environ.get(VARIABLE, "").split(",")
