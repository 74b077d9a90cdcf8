"""Aeron's frames on the wire, without input or output (behaviour, section 13; transport specification)."""
