"""Private: recordings as rows of Arrow columns.

Spark's tasks and ``mainstem.open_recordings`` use it, so both have the same columns and values.
"""
