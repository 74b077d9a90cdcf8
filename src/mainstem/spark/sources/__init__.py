"""Private: Spark data sources, as thin layers over parts of Mainstem that do not import Spark."""
