"""Operations on one session: save, append, put, delete, rename, fork, prune.

Each operation takes the session's lock, reads what is on disk now, rejects what is stale
or invalid, and makes one commit. Attachments, logs and records of a session are here too.

`save` stores a Session object that a program loaded and changed. `put` stores a text as it was
written, byte for byte: what a mount or an editor saved.

A stale text is merged: `save_candidates` collects the versions that its writer may have
started from, `base_of_save` decides which one it was, and `merging` merges.
"""
