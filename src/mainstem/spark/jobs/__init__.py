"""Private: programs for ``spark-submit``, which runs them by file path. They use the session that it started."""
