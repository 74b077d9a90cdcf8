"""The sender agent: what runs in the thread that sends data and reads status messages and NAKs."""
