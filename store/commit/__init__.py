"""One change is one commit: lock, write, journal, rename, sync, index.

`Journal.run` is the only way to change a document. It records the planned renames in
index.db before the first one and removes that entry in the transaction that updates the
index. Recovery redoes what a journal entry names, so a crash leaves the old state or the
new one.
"""
