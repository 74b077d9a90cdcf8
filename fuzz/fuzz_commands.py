"""Commands of clients and responses of the driver: any record is malformed, or encodes to the same bytes.

The first byte selects the type. Values above the existing types are unknown types.
"""

from __future__ import annotations

from mainstem.aeron.command.commands import COMMANDS, AddCounter, AddPublication, RejectImage, decode_command
from mainstem.aeron.command.responses import RESPONSES, OnAvailableImage, OnError, OnPublicationReady, decode_response
from mainstem.errors import RemoteProtocolError

KINDS = [
    *((decode_command, kind) for kind in sorted(COMMANDS)),
    *((decode_response, kind) for kind in sorted(RESPONSES)),
]
KINDS += [(decode_command, 0x7FFF), (decode_response, 0x7FFF)]
_IDS = {"client_id": 5, "correlation_id": 6}
_MESSAGES = [
    AddPublication(**_IDS, stream_id=1001, channel="aeron:ipc"),
    AddCounter(**_IDS, type_id=1000, key=b"key", label="a counter"),
    RejectImage(**_IDS, image_correlation_id=9, position=64, reason="why"),
    OnError(offending_correlation_id=6, error_code=1, message="no"),
    OnAvailableImage(
        image_correlation_id=6,
        session_id=-3,
        stream_id=1001,
        subscription_registration_id=8,
        subscriber_position_id=40,
        log_file="/x",
        source_identity="h:1",
    ),
    OnPublicationReady(
        correlation_id=6,
        original_registration_id=6,
        session_id=-3,
        stream_id=1001,
        position_limit_id=4,
        channel_status_id=5,
        log_file="/dev/shm/x",
    ),
]
_NUMBERS = {kind: n for n, (_, kind) in enumerate(KINDS)}
SEEDS = [bytes([_NUMBERS[message.TYPE]]) + message.encode() for message in _MESSAGES]


def target(data: bytes) -> None:
    """Process one input."""
    if not data:
        return
    decode, kind = KINDS[data[0] % len(KINDS)]
    try:
        message = decode(kind, data[1:])
    except RemoteProtocolError:
        return
    if message is not None:
        assert decode(kind, message.encode()) == message, "a record does not come back as it was"
