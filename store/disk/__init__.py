"""The only code that changes files: durable writes, locks, the trash, rejected writes.

Every path is opened relative to the home and never follows a symbolic link out of it.
Whatever reports success here is on disk in durability mode "full".
"""
