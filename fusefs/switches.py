"""Every trick that makes the mount fast can be turned off, to measure it or to doubt it.

GROVEFS_WITHOUT names them, with commas between; correctness does not depend on any of them.

    loop        requests are read without a scheduler pass each            fusefs/loop.py
    companion   the daemon runs where its caller does, or waits awake      fusefs/companion.py
    timeouts    names and attributes stay in the kernel's cache            fusefs/attrs.py
    pages       a file's bytes stay there when it is opened again          fusefs/files.py
    listings    what a directory holds is remembered until it changes      fusefs/tree.py
"""

from __future__ import annotations

import os

VARIABLE = "GROVEFS_WITHOUT"


def enabled(trick: str) -> bool:
    return trick not in os.environ.get(VARIABLE, "").split(",")
