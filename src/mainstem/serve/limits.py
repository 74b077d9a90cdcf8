"""The limits of a server, each with its reason. What passes one is refused or cut off, never queued without end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one server grants. The defaults fit a process with 1024 file descriptors."""

    # A connection needs a descriptor, and one more while it sends a file.
    connections: int = 384
    # An executor has one connection for each task that reads; a single machine must not take all of them.
    connections_per_address: int = 128
    # TLS's handshake, and the head of a request from its first byte to its last: a peer that dribbles is cut off.
    head_seconds: float = 10.0
    # A connection without a request.
    idle_seconds: float = 75.0
    # The request line, and each field of the head. Names and queries are short; a token is at most a few kilobytes.
    head_line_bytes: int = 8190
    head_fields: int = 64
    # A file is sent chunk by chunk, and a peer has chunk_seconds to take one: it reads at 70 kB/s at least.
    chunk_bytes: int = 4 << 20
    chunk_seconds: float = 60.0
    # Pieces that are being sent at one time, in bytes: more transfers than fit are refused with 503, to be tried again.
    bytes_in_flight: int = 512 << 20
    # Of one response: the longest segment that Aeron Archive writes.
    response_bytes: int = 1 << 30
    # Recordings or files on a page of a list.
    page_entries: int = 1000
    # A long poll; proxies cut requests that are silent for a minute or two.
    wait_seconds: float = 50.0
    # A directory of more files is not listed: its names alone take 100 MB.
    listed_files: int = 1_000_000
    # What a request that is not read from the disk may take, and requests that are under way when the server closes.
    close_seconds: float = 5.0

    @property
    def transfers(self) -> int:
        """How many files are sent at one time."""
        return max(self.bytes_in_flight // self.chunk_bytes, 1)
