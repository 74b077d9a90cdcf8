"""The sender agent. Its thread sends data and reads status messages and NAKs."""
