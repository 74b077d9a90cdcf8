"""The limits of a server, each with its reason. What exceeds a limit is rejected or cut off, and never queued indefinitely."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem._internal.http_listener import ConnectionLimits


@dataclass(frozen=True, kw_only=True)
class Limits(ConnectionLimits):
    """The limits of one server, besides those on its connections."""

    # How long a connection stays open without a request.
    idle_seconds: float = 75.0
    # The request line, and each header field. Names and queries are short; a token has a few kilobytes at most.
    head_line_bytes: int = 8190
    head_fields: int = 64
    # A file is sent chunk by chunk, and a peer has chunk_seconds to receive each. So it must read at 70 kB/s or more.
    chunk_bytes: int = 4 << 20
    chunk_seconds: float = 60.0
    # The total size of the chunks that are being sent. Further transfers are rejected with 503, so that the client tries again.
    bytes_in_flight: int = 512 << 20
    # The size of one response: that of the longest segment that Aeron Archive writes.
    response_bytes: int = 1 << 30
    # Recordings or files per page of a list.
    page_entries: int = 1000
    # The maximum duration of a long poll. Proxies cut off requests without a response after a minute or two.
    wait_seconds: float = 50.0
    # A directory with more files is not listed: their names alone would take 100 MB.
    listed_files: int = 1_000_000
    # How long requests in flight can continue when the server closes.
    close_seconds: float = 5.0

    @property
    def transfers(self) -> int:
        """The number of files that can be sent at the same time."""
        return max(self.bytes_in_flight // self.chunk_bytes, 1)
