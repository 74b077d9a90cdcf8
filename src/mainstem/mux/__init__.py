"""Byte-stream multiplexers: bymux and Jmux."""
