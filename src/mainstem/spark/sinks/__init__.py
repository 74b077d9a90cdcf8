"""Spark sinks: DataFrames onto channels."""
