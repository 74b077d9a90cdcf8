"""Packet captures, read frame by frame: pcap and pcapng in; rows of Aeron, bymux and Jmux frames out."""
