"""How sessions are found: queries, results, names, summaries, listings, token usage.

Reads the index and the files; changes neither. `grep` is the trigram index of
`grovefs grep`. No imports here: start-up time counts.
"""
