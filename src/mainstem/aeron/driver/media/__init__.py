"""The driver's network side: addresses, channels, sockets and endpoints."""
