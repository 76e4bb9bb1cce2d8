"""One grove on many hosts: PostgreSQL holds the agreed history, every host an ordinary home as its replica.

A commit is agreed to after its new files are synced and before its journal entry is written: one
statement compares the unit's version and token, advances both, and adds a row to the log. The
statement is the point of no return: afterwards nothing is rolled back here, and if this host dies,
the log brings the commit. A stale host pulls the unit's rows and repeats its operation, so a stale
save is merged, or refused, as on one host. Followers apply the log to the other homes by ordinary
commits: index, search, feed and mount follow with no code of their own.

Reads never leave the host. Without an answer from the database nothing is written (Unreachable), or
the outcome is unknown (Unsure). A database that lost what it had acknowledged is noticed by its
tokens; the grove is then frozen. `store.commit.agreement` is all that the rest of the store knows of
this package. psycopg is imported here alone, and only in a joined home.
"""
