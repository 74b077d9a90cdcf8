"""Private: programs for ``spark-submit``, which is given the path of a file: the session is the one that it started."""
