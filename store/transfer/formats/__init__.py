"""Foreign session formats: one module per agent, all implementing `importer.Format`.

A format reads its source and yields sessions. It never writes: `store.transfer.imports`
saves what it yields.
"""
