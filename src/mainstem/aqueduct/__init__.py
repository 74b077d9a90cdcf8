"""Aqueduct: message channels sent through message channels, over QUIC."""
