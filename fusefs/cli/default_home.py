"""The home that commands use when no --home is given."""

from __future__ import annotations

import os
from pathlib import Path


def default_home() -> Path:
    """$GROVEFS_HOME, else $BAMBOO_DATA_DIR, else ~/.grovefs."""
    named = os.environ.get("GROVEFS_HOME") or os.environ.get("BAMBOO_DATA_DIR")
    return Path(named) if named else Path.home() / ".grovefs"
