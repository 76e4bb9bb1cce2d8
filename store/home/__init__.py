"""An open home: opening, recovery, housekeeping, watching for outside edits, closing.

`open_home` owns the lifecycle, `services` wires the packages below together. A home can
be open in many processes at once. The first one to open it recovers from a crash while the
others wait. A Bamboo server that uses the same home is detected, and writes are rejected.
"""
