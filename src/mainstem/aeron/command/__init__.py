"""Private: the records of the CnC file's two buffers, commands to the driver and its responses (behaviour, sections 5 and 6)."""
