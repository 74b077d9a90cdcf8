"""Packet captures: records, packets and the frames in them, as rows."""
