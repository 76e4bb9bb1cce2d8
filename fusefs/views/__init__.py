"""Virtual directories and files: transcripts/, html/, search/, views/, history/, status files.

Each view serves lookup, list and read from the store and does not depend on FUSE.
"""
