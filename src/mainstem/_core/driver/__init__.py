"""The duty cycles of sender and receiver, and what they run for each frame and datagram."""
