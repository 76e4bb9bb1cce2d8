"""What a session is: pydantic records for sessions, messages, tasks and timestamps.

Pure: nothing here reads or writes files. Records keep unknown members, so a file
written by a newer agent loses nothing when it is saved again.
"""
