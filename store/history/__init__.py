"""History of a home: every version of every kept file, in `.grovefs/history.db`.

Before a version is replaced it is in the history. A history that fails never stops a save.
"""
