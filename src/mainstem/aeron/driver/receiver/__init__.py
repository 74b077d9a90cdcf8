"""The receiver agent. Its thread receives data and sends status messages and NAKs."""
