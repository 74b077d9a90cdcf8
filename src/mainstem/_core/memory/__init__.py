"""Shared memory: atomic primitives, buffers, counters, and the two rings between client and driver."""
