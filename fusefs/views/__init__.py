"""Virtual directories: search/, transcripts/, views/. All of one shape, told in shape.py."""
