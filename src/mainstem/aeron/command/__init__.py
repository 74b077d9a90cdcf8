"""Private: the records of the CnC file's two buffers, commands to the driver and its responses.

See docs/protocols/aeron.md, 5 and 6.
"""
