"""The sender agent, whose thread sends data and reads status messages and NAKs."""
