"""Private: recordings as rows of Arrow columns.

Spark's tasks and ``mainstem.open_recordings`` both use it, so their columns and values are the same.
"""
