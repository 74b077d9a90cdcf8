"""The protocol's own delays."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The protocol's own delays, in nanoseconds. Each is below what the specification calls reasonable."""

    ack_delay_ns: int = 5_000_000
    """Maximum delay from processing a message to acknowledging it (the specification asks for less than 1 s)."""

    declare_delay_ns: int = 100_000_000
    """Maximum delay from sending a datagram to declaring it; half the round-trip time if that is less."""

    declare_floor_ns: int = 10_000_000
    """Minimum delay of a declaration, so that short round trips do not cause one frame per message."""

    grace_ns: int = 1_000_000_000
    """Minimum time from a declaration to giving up the messages it declared; twice the round-trip time if that is more."""

    ack_messages: int = 256
    """Number of messages after which an acknowledgment is sent immediately: at most a quarter of any reasonable sender's limit."""

    ack_bytes: int = 256 << 10
    """Number of bytes after which an acknowledgment is sent immediately: a sixteenth of a sender's default limit. Each
    acknowledgment costs the sender one packet to read and one to send."""


DEFAULT_TIMING = Timing()
