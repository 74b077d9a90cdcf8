"""Private: Aeron's frames on the wire, without input or output: ``layouts`` is the table, ``frames`` the codec."""
