"""Private: Aeron's frames on the wire, without I/O. ``layouts`` is the table, ``frames`` the codec."""
