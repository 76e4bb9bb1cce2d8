"""How many requests came, and how long each kind took: counted where every handler passes, see errors.guarded."""

from __future__ import annotations

from collections import defaultdict

_BUCKETS = 64  # powers of two of 1.024 µs: more than any request could take


class Timings:
    """A histogram for each operation."""

    def __init__(self) -> None:
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * _BUCKETS)

    def note(self, operation: str, elapsed_ns: int) -> None:
        self._buckets[operation][(elapsed_ns >> 10).bit_length()] += 1

    def counts(self) -> dict[str, int]:
        return {operation: sum(buckets) for operation, buckets in sorted(self._buckets.items())}

    def snapshot(self) -> dict[str, dict[str, int]]:
        """By operation: how many took less than so many microseconds (and not less than half of it)."""
        return {
            operation: {f"<{1 << power} us": count for power, count in enumerate(buckets) if count}
            for operation, buckets in sorted(self._buckets.items())
        }
