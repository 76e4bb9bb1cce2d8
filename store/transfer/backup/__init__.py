"""Backup and restore: a copy of a home that can be verified and restored in part.

A backup unit (the files of one session, or one shared file) is copied as a whole or kept
as it was. The manifest names every file with its digest.
"""
