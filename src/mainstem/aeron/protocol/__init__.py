"""Private: Aeron's frames on the wire, sans I/O. ``layouts`` is the table, ``frames`` the codec."""
