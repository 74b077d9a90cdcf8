"""Private: recordings as rows of Arrow columns: which columns there are, where a condition can be true, and the reading.

Spark's tasks and ``mainstem.open_recordings`` read through it, so that both have the same columns with the same values.
"""
