"""One grove on many hosts: PostgreSQL holds the agreed history, every host keeps a home as its replica.

psycopg is imported only once a home has joined a grove.
"""
