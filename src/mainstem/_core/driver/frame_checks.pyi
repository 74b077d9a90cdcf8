"""Checks of control frames, for the compiled paths alone: nothing here is called from Python."""
