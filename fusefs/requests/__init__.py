"""Kernel requests in, errno out: the only package with pyfuse3 handlers.

Handlers are thin: they find the node, call the store in a worker thread, then update the
tree and invalidate kernel caches. Any exception becomes an errno in one place, `errnos`.
"""
