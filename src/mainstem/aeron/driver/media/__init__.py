"""The driver's meeting with the network: addresses, channels, sockets and what they are grouped into."""
