"""index.db: the catalog, full text, transcript sizes and the change feed.

All of it is derived from the files and can be deleted; it is rebuilt when a home is
opened. Writes happen inside the transaction of the commit they belong to.
"""
