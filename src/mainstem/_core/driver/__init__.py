"""The duty cycles of sender and receiver, and the code that they run for each frame and datagram."""
