"""The version of this distribution. This is the only place that defines it."""

__version__ = "0.1.0"
