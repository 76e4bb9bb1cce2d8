"""How sessions are found: queries, results, names, summaries, listings, token usage.

Reads the index and the files and changes neither, with one exception: `grep`, the
trigram index of `grovefs grep`, builds and updates its own tables and files. No imports here: start-up time counts.
"""
