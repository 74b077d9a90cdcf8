"""The media driver: the process between clients and the network."""
