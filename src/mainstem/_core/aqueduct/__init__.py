"""Aqueduct's frames in runs: what happens once for each message."""
