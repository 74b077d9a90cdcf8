"""The receiver agent, whose thread receives data and sends status messages and NAKs."""
