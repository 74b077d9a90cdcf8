"""Spark data sources; each is thin over a part of Mainstem that knows nothing of Spark."""
