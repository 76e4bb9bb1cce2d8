"""Sessions from elsewhere: one module per foreign format, all of one shape (`shape.Format`).

They read and never write; saving what they yield is the business of `store.importing`.
"""
