"""Aqueduct's frames in runs: the code that runs for each message."""
