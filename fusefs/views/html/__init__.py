"""html/: conversations, the list of sessions and statistics as web pages that need no server.

A page is one file: style and script are inline, and nothing is requested but images of the same mount.
What an agent wrote reaches a page only as text; see `conversation` for how that is guaranteed.
"""
