"""One change is one commit: lock, write, journal, rename, sync, history, index.

`Journal.run` is the only way to change a document. It writes new files to tmp/ and syncs them, makes sure that the
history has what will be replaced, records the planned renames in index.db, renames (the sidecar first), syncs the
directory, records the new versions in the history, and removes the journal entry in the transaction that updates
index, search and feed. Recovery redoes what a journal entry names: when the lock is next taken or the home opened.
The rename of session.json is the point of no return. After it, an index that cannot be written is not an error: it is
retried and shown by `store.maintenance.status()`. A directory that cannot be synced is an error saying that the new
version is in place; a commit that a failing disk lets neither finish nor undo is an error saying that it will be
finished. `durability="normal"` leaves the syncs out: safe against kill -9, not power loss.
"""
