"""Private: Spark data sources; each is thin over a part of Mainstem that does not import Spark."""
