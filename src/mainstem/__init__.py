"""Mainstem: reliable message streams, and their way into Apache Spark."""
