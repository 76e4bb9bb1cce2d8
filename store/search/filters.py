"""The filters of the query language as SQL conditions: role:, kind:, before: and others. Pure.

Conditions refer to `texts t`, `sessions s` and `state_documents d`.
"""

from __future__ import annotations

import re
import time
from typing import Any

from store.model.timestamp import NS_PER_SECOND, Timestamp, clip_ns

ROLES = ("system", "user", "assistant", "tool")
KINDS = ("root", "child", "state")
# Values that agents use for the last run. The field is free text, so other values can be correct.
STATUSES = ("completed", "error", "running", "suspended", "cancelled", "pending", "skipped")
YES, NO = ("1", "true", "yes"), ("0", "false", "no")

PARTIAL = ("model", "title")  # filters that match a part of the value

# A state document has no session, so no column may be NULL for it: NOT NULL is NULL, and the row would be lost.
FILTERS = {
    "role": "(t.role = lower(?))",
    "kind": "(CASE WHEN t.row < 0 THEN 'state' WHEN s.child = '' THEN 'root' ELSE 'child' END = lower(?))",
    "pinned": "(coalesce(s.pinned, 0) = ?)",
    # The time at which a message was said; titles, summaries and documents have that of their last change.
    "before": "(coalesce(t.created_ns, s.updated_ns, d.updated_ns) < ?)",
    "after": "(coalesce(t.created_ns, s.updated_ns, d.updated_ns) >= ?)",
    "model": "(instr(fold(coalesce(s.model, '')), fold(?)) > 0)",
    "title": "(instr(fold(coalesce(s.title, d.title)), fold(?)) > 0)",
    "status": "(fold(coalesce(s.status, '')) = fold(?))",
    "project": "(coalesce(s.project, '') = ?)",
    "host": "(coalesce(s.host, '') = ?)",
    "tool": "(instr(lower(coalesce(t.tools, '')), ' ' || lower(?) || ' ') > 0)",
}


def filter_condition(name: str, value: str) -> tuple[str, list[Any]]:
    """The SQL condition of a filter and the values it binds."""
    bound: Any = value
    if name == "pinned":
        bound = int(value.lower() in YES)
    elif name in ("before", "after"):
        bound = find_time(value) or 0  # an invalid date is 1970
    return FILTERS[name], [bound]


_ANY_PRECISION = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d)?)?)?)?)?")


_AGO = re.compile(r"(\d{1,6})([mhdw])")
_UNIT_S = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DAY_NS = 86_400 * NS_PER_SECOND


def find_time(text: str) -> int | None:
    """Nanoseconds of a date, a time, a prefix of one, or a relative date, in UTC; None for anything else.

    Relative dates are today, yesterday, and 30m, 12h, 7d, 2w: that long ago.
    """
    now_ns = time.time_ns()
    if text in ("today", "yesterday"):
        return now_ns - now_ns % _DAY_NS - (_DAY_NS if text == "yesterday" else 0)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return clip_ns(now_ns - int(ago[1]) * _UNIT_S[ago[2]] * NS_PER_SECOND)
    padded = text + "2000-01-01T00:00:00Z"[len(text) :] if _ANY_PRECISION.fullmatch(text) else text
    try:
        return clip_ns(Timestamp(padded).ns)
    except ValueError:
        return None
