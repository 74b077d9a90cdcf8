"""Private: Spark data sources, thin layers over parts of Mainstem that do not import Spark."""
