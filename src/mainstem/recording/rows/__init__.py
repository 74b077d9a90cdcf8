"""Private: recordings as rows: batches of columns, Arrow record batches, and what selects them.

Spark's tasks and ``mainstem.open_recordings`` both use it, so their columns and values are the same.
"""
