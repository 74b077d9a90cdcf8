"""The limits of an Aqueduct connection, with their reasons.

A peer that exceeds a limit loses the connection, is paused, or is not read. Nothing grows without one of these limits.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from mainstem._internal.validation import check_int

MAX_VERSION_LENGTH = 64
"""Maximum length of a version string in bytes: versions are short, and they are read before anything else."""

MAX_UINT = (1 << 64) - 1
"""The largest variable-length integer."""

QUEUED_MESSAGE_OVERHEAD = 128
"""Bytes that a queued message counts in addition to its payload, so that a flood of empty messages reaches a limit too."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one connection, which are part of `Settings`. Sizes are in bytes.

    Raise ``max_channels`` together with ``Settings.max_streams``: each live channel owns one QUIC stream.

    Raises:
        ConfigurationError: A limit is not an integer >= 1; ``max_header_bytes`` and ``max_attachments`` may be 0.

    Example:
        >>> engine = AqueductEngine(is_client=False, limits=Limits(max_payload=1 << 20))
    """

    max_header_bytes: int = 64 << 10
    """Connection headers: read once, before the application has accepted."""

    max_attachments: int = 1024
    """Channels in one message: each makes a half, a stream and a handle."""

    max_payload: int = 16 << 20
    """One message's payload: it is buffered whole before it is delivered."""

    max_range_bytes: int = 16 << 10
    """Acknowledgment ranges in one frame; what does not fit goes into the next frame."""

    max_channels: int = 1 << 16
    """Live channels that the peer minted, and closed ones whose creating message has not come."""

    max_open_streams: int = 1 << 17
    """QUIC streams that are open at once; the backend's own limits are usually lower."""

    max_gaps: int = 1 << 13
    """Ranges in one receiver's set of message numbers: an honest gap is a stream in flight."""

    max_filter_ranges: int = 1 << 12
    """Ranges of remembered channels in each index space. Beyond it the oldest are forgotten, which costs a ghost
    receiver a round trip, and nothing else.
    """

    max_buffered_bytes: int = 64 << 20
    """All that waits in one connection: unread messages, paused streams, partial frames. Reading stops at it, and the
    connection ends at twice as much, which a peer can reach only past flow control.
    """

    receive_messages: int = 4096
    """Unread messages of one receiver, after which its streams are paused."""

    receive_bytes: int = 1 << 20
    """Unread bytes of one receiver, after which its streams are paused. A receiver that nobody reads may hold less."""

    send_messages: int = 1024
    """Queued and unacknowledged reliable messages of one sender."""

    send_bytes: int = 4 << 20
    """Queued and unacknowledged bytes of one sender, once its receiver has acknowledged as many."""

    unreliable_outstanding: int = 1 << 16
    """Unreliable messages of one sender that are neither acknowledged nor given up. It is larger than ``send_messages``:
    one lost datagram delays the news of all after it by its grace period.
    """

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(Limits)}
        check_int({name: values.pop(name) for name in ("max_header_bytes", "max_attachments")}, min_value=0)
        check_int(values, min_value=1)


DEFAULT_LIMITS = Limits()
