"""What sessions share: mail between sessions, state documents, projects.

They keep the same promises as sessions: each write is validated, journaled and indexed
in one commit.
"""
