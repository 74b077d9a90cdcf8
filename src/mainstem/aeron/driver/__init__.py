"""Private, but for ``settings``: the media driver, the process between clients and the network."""
