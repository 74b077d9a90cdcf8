"""What a QUIC connection is set up with, whichever library carries it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_ALPN = "aqueduct"
"""The application protocol that both sides must name; the specification names none."""

CID_LENGTH = 8
"""Bytes of the connection ids that are issued here, so that a server can tell whose a packet is by looking at it."""


@dataclass(frozen=True, kw_only=True)
class QuicSettings:
    """Settings of one side. Sizes are in bytes, times in seconds.

    A server needs ``certificate`` and ``key`` (PEM files). A client verifies the server against ``ca`` (a PEM file), or
    against the system's authorities where it is None; ``verify=False`` takes any certificate, for tests only.
    """

    alpn: str = DEFAULT_ALPN
    certificate: str | Path | None = None
    key: str | Path | None = None
    ca: str | Path | None = None
    verify: bool = True
    server_name: str | None = None

    idle_timeout: float = 60.0
    """A connection on which nothing arrives for so long is lost."""

    keep_alive: float = 15.0
    """A ping goes out after so long without a packet; 0 sends none."""

    max_datagram_size: int = 1200
    """UDP payload: 1200 passes everywhere; more is faster where the path is known."""

    stream_window: int = 1 << 20
    """Flow control credit of one stream, beyond what was read."""

    connection_window: int = 16 << 20
    """Flow control credit of all streams together, beyond what was read."""

    max_streams: int = 1 << 14
    """Streams of each kind that the peer may have open. Each live channel needs one of the bidirectional kind."""

    max_connections: int = 1024
    """Connections that a server holds at once; handshakes beyond it are not answered."""

    retry: bool = False
    """A server answers first packets with a Retry, so that clients prove their address before they cost anything."""

    qlog_directory: str | Path | None = None
    """Where the library writes a qlog file for each connection."""

    secrets_log: str | Path | None = None
    """Where TLS secrets go, for packet analysers."""
