"""Private, except ``settings``: the media driver, the process between clients and the network."""
