"""Aeron's frames on the wire, without input or output: ``frames`` is the one codec (docs/protocols/aeron.md, 13)."""
