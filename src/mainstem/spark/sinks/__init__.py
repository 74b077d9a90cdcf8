"""Private: Spark sinks, DataFrames onto channels."""
