"""The receiver agent: what runs in the thread that receives data and sends status messages and NAKs."""
