"""Import, export, backup and restore.

`formats` has one module per foreign format; `backup` writes and reads backup
directories.
"""
