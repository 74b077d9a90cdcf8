"""Aeron: the transport protocol over UDP and shared memory; client and driver meet only in shared memory."""
