"""History of a home: every version of every kept file, in `.grovefs/history.db`.

Before a version is replaced it is in the history. A history that fails never stops a save.

A version is a step from the one before (`steps`). `planning` computes it before a commit and
`recording` stores it after; `reading` puts texts together again. `lineages` follow files that
are renamed. `thinning` and `purge` remove versions, `drafts` keeps what was typed before a
merge, `copies` brings versions back from a backup.
"""
