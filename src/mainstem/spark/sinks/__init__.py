"""Private: Spark sinks, which send DataFrames to channels."""
