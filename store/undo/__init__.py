"""Going back: which version a person means, what differs between two, revert and undo.

A revert or undo is a new commit. It never removes a version, so it can be undone too.
"""
