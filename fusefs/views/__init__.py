"""Virtual directories and files: transcripts/, search/, views/, status files.

Each view answers lookup, list and read from the store and knows nothing of FUSE.
"""
