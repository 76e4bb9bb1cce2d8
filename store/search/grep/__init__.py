"""`grovefs grep`: find the files that can match with a trigram index, then run GNU grep.

The command imports only this package (no pydantic, typer, re or dataclasses), because
start-up takes longer than the search. `maintenance` builds the index, `freshness`
certifies to a running grep that the index is current.
"""
