"""Every bound of an Aqueduct connection, with its reason.

A peer that passes one loses the connection, is held, or is not read; nothing grows without one of these in its way.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from mainstem._internal.validation import check_int

MAX_VERSION_LENGTH = 64
"""Bytes of a version's text: versions are short, and this is read first of all."""

MAX_UINT = (1 << 64) - 1
"""The largest variable-length integer."""

DEFAULT_MAX_HEADER_BYTES = 64 << 10
DEFAULT_MAX_ATTACHMENTS = 1024
DEFAULT_MAX_PAYLOAD = 16 << 20
DEFAULT_MAX_RANGE_BYTES = 16 << 10
DEFAULT_MAX_CHANNELS = 1 << 16
DEFAULT_MAX_OPEN_STREAMS = 1 << 17
DEFAULT_MAX_GAPS = 1 << 13
DEFAULT_MAX_FILTER_RANGES = 1 << 12
DEFAULT_MAX_BUFFERED_BYTES = 64 << 20
DEFAULT_RECEIVE_MESSAGES = 4096
DEFAULT_RECEIVE_BYTES = 1 << 20
DEFAULT_SEND_MESSAGES = 4096
DEFAULT_SEND_BYTES = 4 << 20
DEFAULT_UNRELIABLE_OUTSTANDING = 1 << 16

QUEUED_MESSAGE_OVERHEAD = 128
"""What a queued message costs beside its payload, in bytes: so that a flood of empty messages is a flood of bytes too.
"""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The bounds of one connection, which are part of the `Settings`. Sizes are in bytes.

    Raise ``max_channels`` together with ``Settings.max_streams``: each live channel owns one QUIC stream.

    Raises:
        ConfigurationError: A bound is not an integer >= 1; ``max_header_bytes`` and ``max_attachments`` may be 0.

    Example:
        >>> engine = AqueductEngine(is_client=False, limits=Limits(max_payload=1 << 20))
    """

    max_header_bytes: int = DEFAULT_MAX_HEADER_BYTES
    """Connection headers: read once, before the application has accepted."""

    max_attachments: int = DEFAULT_MAX_ATTACHMENTS
    """Channels in one message: each makes a half, a stream and a handle."""

    max_payload: int = DEFAULT_MAX_PAYLOAD
    """One message's payload: it is held whole before it is delivered."""

    max_range_bytes: int = DEFAULT_MAX_RANGE_BYTES
    """Acknowledgement ranges in one frame; what does not fit goes into the next frame."""

    max_channels: int = DEFAULT_MAX_CHANNELS
    """Live channels that the peer minted, and closed ones whose creating message has not come."""

    max_open_streams: int = DEFAULT_MAX_OPEN_STREAMS
    """QUIC streams that are open at once; the backend's own limits are usually lower."""

    max_gaps: int = DEFAULT_MAX_GAPS
    """Ranges in one receiver's set of message numbers: an honest gap is a stream in flight."""

    max_filter_ranges: int = DEFAULT_MAX_FILTER_RANGES
    """Ranges of remembered channels in each index space. Beyond it the oldest are forgotten, which costs a ghost
    receiver a round trip, and nothing else.
    """

    max_buffered_bytes: int = DEFAULT_MAX_BUFFERED_BYTES
    """All that waits in one connection: unread messages, held streams, half frames. Reading stops at it, and the
    connection ends at twice as much, which a peer can reach only past flow control.
    """

    receive_messages: int = DEFAULT_RECEIVE_MESSAGES
    """Unread messages of one receiver, after which its streams are held."""

    receive_bytes: int = DEFAULT_RECEIVE_BYTES
    """Unread bytes of one receiver, after which its streams are held."""

    send_messages: int = DEFAULT_SEND_MESSAGES
    """Queued and unacknowledged reliable messages of one sender."""

    send_bytes: int = DEFAULT_SEND_BYTES
    """Queued and unacknowledged bytes of one sender."""

    unreliable_outstanding: int = DEFAULT_UNRELIABLE_OUTSTANDING
    """Unreliable messages neither acknowledged nor given up, of one sender. It is larger than ``send_messages``: one
    lost datagram delays the news of all after it by the grace that it is given.
    """

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(Limits)}
        check_int({name: values.pop(name) for name in ("max_header_bytes", "max_attachments")}, min_value=0)
        check_int(values, min_value=1)


DEFAULT_LIMITS = Limits()
