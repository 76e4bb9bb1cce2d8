"""Request statistics: counts and durations per operation."""

from __future__ import annotations

_BUCKETS = 64  # powers of two of 1.024 µs: more than any request takes


class Timings:
    """A histogram of durations per operation."""

    def __init__(self) -> None:
        self._buckets: dict[str, list[int]] = {}

    def note(self, operation: str, elapsed_ns: int) -> None:
        buckets = self._buckets.setdefault(operation, [])
        if not buckets:
            buckets += [0] * _BUCKETS
        buckets[(elapsed_ns >> 10).bit_length()] += 1

    def counts(self) -> dict[str, int]:
        return {operation: sum(buckets) for operation, buckets in sorted(self._buckets.items())}

    def snapshot(self) -> dict[str, dict[str, int]]:
        """Number of requests per operation below each power of two of microseconds."""
        return {
            operation: {f"<{1 << power} us": count for power, count in enumerate(buckets) if count}
            for operation, buckets in sorted(self._buckets.items())
        }
