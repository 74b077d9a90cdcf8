"""Shared by every benchmark: peers that run in their own processes, ratios taken pair by pair, one report format."""
