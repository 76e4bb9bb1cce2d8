"""What a filesystem may do to a name: open, create, remove, rename, change attributes.

Maps each path to the rules of its kind. The mount calls this package and adds no rules
itself.
"""
