"""Operations on one session: save, append, put, delete, rename, fork, prune.

Each operation takes the session's lock, reads what is on disk now, rejects what is stale
or invalid, and makes one commit. Attachments, logs and records of a session are here too.
"""
