"""Prices of tokens, from a file of the user's. Nothing is estimated. Pure.

    {"oak-large": {"input_tokens": 3, "output_tokens": 15,
                   "cache_creation_input_tokens": 3.75, "cache_read_input_tokens": 0.3},
     "birch-*": {"input_tokens": 0.8, "output_tokens": 4}}

A price is per million tokens, in any currency; null is a price that is not known. A name may contain `*` and `?`; an
exact name wins, then the longest pattern. A call has a cost only if every kind of tokens it used has a price: tokens
without a price are not free.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import orjson

from store.errors import InvalidContent, Problem

TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "thinking_tokens")

Prices = Mapping[str, Mapping[str, float]]  # model → kind of tokens → price per million


def parse_prices(raw: bytes, name: str) -> Prices:
    """Parse a price file. InvalidContent names the model whose prices are wrong."""
    try:
        prices = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidContent(name, Problem(f"not valid JSON: {error.msg}", error.lineno, error.colno)) from None
    for model, kinds in prices.items() if isinstance(prices, dict) else [(name, None)]:
        if not isinstance(kinds, dict) or not all(k in TOKENS and (v is None or is_price(v)) for k, v in kinds.items()):
            raise InvalidContent(name, Problem(f"expected an object with prices for {', '.join(TOKENS)}", field=model))
    return {model: {k: v for k, v in kinds.items() if v is not None} for model, kinds in prices.items()}


def prices_of(prices: Prices, model: str) -> Mapping[str, float] | None:
    """The prices of a model; None if the file has none."""
    if model in prices:
        return prices[model]
    matching = [pattern for pattern in prices if fnmatchcase(model, pattern)]
    return prices[max(matching, key=len)] if matching else None


def cost_of(tokens: Mapping[str, int], prices: Mapping[str, float] | None) -> float | None:
    """The cost of a call; None if a kind of tokens it used has no price. Thinking is part of the output."""
    used = {name: count for name, count in tokens.items() if count and name != "thinking_tokens"}
    if prices is None or not used or not used.keys() <= prices.keys():
        return None
    return sum(count * prices[name] / 1_000_000 for name, count in used.items())


def is_price(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
