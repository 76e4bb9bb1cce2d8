"""An open home: opening, recovery, housekeeping, watching for outside edits, closing.

`open_home` wires all other packages together. A home can be open in many processes at
once; a Bamboo server that works on the same home is detected and respected.
"""
