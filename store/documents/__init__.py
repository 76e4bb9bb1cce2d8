"""Documents as bytes and text: parse, validate, splice, merge and render.

Pure: functions from bytes to bytes. A splice replaces only the members that changed,
so every other byte of a document stays as its author wrote it.
"""
