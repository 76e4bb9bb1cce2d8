"""The user's price file: $GROVEFS_PRICES, else grovefs/prices.json in $XDG_CONFIG_HOME (~/.config)."""

from __future__ import annotations

import os
from pathlib import Path

from store.search.prices import Prices, parse_prices


def default_path() -> Path:
    named = os.environ.get("GROVEFS_PRICES")
    config = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(named) if named else Path(config) / "grovefs/prices.json"


def load_prices(path: Path | None = None) -> Prices | None:
    """The prices in a file; None if the default file does not exist. InvalidContent names what is wrong in it."""
    chosen = path or default_path()
    if path is None and not chosen.exists():
        return None
    return parse_prices(chosen.read_bytes(), str(chosen))
