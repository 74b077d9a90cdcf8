"""Private: the records in the two buffers of the CnC file, commands to the driver and its responses.

See docs/protocols/aeron.md, 5 and 6.
"""
