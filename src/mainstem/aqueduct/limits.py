"""The limits of an Aqueduct connection, with their reasons.

A peer that exceeds a limit loses the connection, is paused, or is not read. Nothing grows without one of these limits.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from mainstem._internal.validation import check_int

MAX_VERSION_LENGTH = 64
"""Maximum length in bytes of a version string, which is read before anything else."""

MAX_UINT = (1 << 64) - 1
"""The largest variable-length integer."""

QUEUED_MESSAGE_OVERHEAD = 128
"""Bytes added to the payload of each queued message, so that empty messages count toward the limits too."""


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
    """Size of the connection headers, which are read before the application accepts the connection."""

    max_attachments: int = 1024
    """Channels attached to one message. Each takes a half, a stream and a handle."""

    max_payload: int = 16 << 20
    """Size of a message's payload, which is buffered until it is complete."""

    max_range_bytes: int = 16 << 10
    """Size of the acknowledgment ranges in one frame. The rest goes into the next frame."""

    max_channels: int = 1 << 16
    """Live channels that the peer minted, plus closed ones whose creating message has not arrived."""

    max_open_streams: int = 1 << 17
    """QUIC streams open at once. The backend's own limits are usually lower."""

    max_gaps: int = 1 << 13
    """Ranges in one receiver's set of message numbers. Each legitimate gap is a stream in flight."""

    max_filter_ranges: int = 1 << 12
    """Ranges of remembered channels in each index space. When there are more, the oldest are forgotten, which only costs
    a ghost receiver a round trip.
    """

    max_buffered_bytes: int = 64 << 20
    """Data waiting in one connection: unread messages, paused streams and partial frames. Reading stops at this limit.
    At twice the limit, which a peer can only reach by ignoring flow control, the connection ends.
    """

    receive_messages: int = 4096
    """Unread messages of one receiver before its streams are paused."""

    receive_bytes: int = 1 << 20
    """Unread bytes of one receiver before its streams are paused. The limit is lower for a receiver that nobody reads."""

    send_messages: int = 1024
    """Queued and unacknowledged reliable messages of one sender."""

    send_bytes: int = 4 << 20
    """Queued and unacknowledged bytes of one sender, once its receiver has acknowledged as many."""

    unreliable_outstanding: int = 1 << 16
    """Unreliable messages of one sender that are neither acknowledged nor given up. It is larger than ``send_messages``
    because one lost datagram delays the outcome of all later ones by its grace period.
    """

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(Limits)}
        check_int({name: values.pop(name) for name in ("max_header_bytes", "max_attachments")}, min_value=0)
        check_int(values, min_value=1)


DEFAULT_LIMITS = Limits()
