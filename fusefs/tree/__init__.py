"""The mount in memory: nodes, handles, write buffers, names being written.

Plain Python without trio or pyfuse3. Only request handlers change it, between two awaits.
"""
