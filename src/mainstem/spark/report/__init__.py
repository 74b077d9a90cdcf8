"""Private: an analysis in a session of Spark."""
