"""Responses from the driver to all clients (docs/protocols/aeron.md, 6). Each class is one record; its fields are the layout."""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated

from mainstem._internal.frozen import frozen
from mainstem.aeron.command import wire
from mainstem.aeron.command.error_code import ErrorCode

ADDRESS_IPV4 = 1
ADDRESS_IPV6 = 2

# The driver's error messages can include a complete stack trace.
MAX_MESSAGE_LENGTH = 1 << 16

Message = Annotated[str, wire.Counted(MAX_MESSAGE_LENGTH, text=True)]
AlignedText = Annotated[str, wire.Counted(wire.MAX_TEXT_LENGTH, text=True, align=4)]


class ResponseType(IntEnum):
    ON_ERROR = 0x0F01
    ON_AVAILABLE_IMAGE = 0x0F02
    ON_PUBLICATION_READY = 0x0F03
    ON_OPERATION_SUCCESS = 0x0F04
    ON_UNAVAILABLE_IMAGE = 0x0F05
    ON_EXCLUSIVE_PUBLICATION_READY = 0x0F06
    ON_SUBSCRIPTION_READY = 0x0F07
    ON_COUNTER_READY = 0x0F08
    ON_UNAVAILABLE_COUNTER = 0x0F09
    ON_CLIENT_TIMEOUT = 0x0F0A
    ON_STATIC_COUNTER = 0x0F0B
    ON_PUBLICATION_ERROR = 0x0F0C
    ON_NEXT_AVAILABLE_SESSION_ID = 0x0F0D


@frozen
class Response(wire.Message):
    """The common base class. Clients select their responses by the ids in them."""


RESPONSES: dict[int, type[Response]] = {}


@wire.record(RESPONSES, ResponseType.ON_ERROR)
class OnError(Response):
    offending_correlation_id: wire.I64
    error_code: wire.I32
    message: Message

    @property
    def code(self) -> ErrorCode:
        """The error code; UNKNOWN for a number from another version."""
        return ErrorCode(self.error_code)


@wire.record(RESPONSES, ResponseType.ON_AVAILABLE_IMAGE)
class OnAvailableImage(Response):
    """A response that announces a readable stream, with its log and the subscriber's position counter."""

    image_correlation_id: wire.I64
    session_id: wire.I32
    stream_id: wire.I32
    subscription_registration_id: wire.I64
    subscriber_position_id: wire.I32
    log_file: AlignedText
    source_identity: wire.Text


@wire.record(RESPONSES, ResponseType.ON_PUBLICATION_READY)
class OnPublicationReady(Response):
    """A response that announces a writable publication, with its log and its limit counter.

    ``original_registration_id`` differs from the command's id if the publication is shared.
    """

    correlation_id: wire.I64
    original_registration_id: wire.I64
    session_id: wire.I32
    stream_id: wire.I32
    position_limit_id: wire.I32
    channel_status_id: wire.I32
    log_file: wire.Text


@wire.record(RESPONSES, ResponseType.ON_EXCLUSIVE_PUBLICATION_READY)
class OnExclusivePublicationReady(OnPublicationReady):
    """A response like `OnPublicationReady`, for an exclusive publication."""


@wire.record(RESPONSES, ResponseType.ON_OPERATION_SUCCESS)
class OnOperationSuccess(Response):
    correlation_id: wire.I64


@wire.record(RESPONSES, ResponseType.ON_UNAVAILABLE_IMAGE)
class OnUnavailableImage(Response):
    image_correlation_id: wire.I64
    subscription_registration_id: wire.I64
    stream_id: wire.I32
    channel: wire.Text


@wire.record(RESPONSES, ResponseType.ON_SUBSCRIPTION_READY)
class OnSubscriptionReady(Response):
    """A response that announces a subscription. ``channel_status_id`` is -1 for IPC."""

    correlation_id: wire.I64
    channel_status_id: wire.I32


@wire.record(RESPONSES, ResponseType.ON_COUNTER_READY)
class OnCounterReady(Response):
    """A response that announces an allocated counter.

    For a client's heartbeat counter, the correlation id is the client id.
    """

    correlation_id: wire.I64
    counter_id: wire.I32


@wire.record(RESPONSES, ResponseType.ON_UNAVAILABLE_COUNTER)
class OnUnavailableCounter(Response):
    registration_id: wire.I64
    counter_id: wire.I32


@wire.record(RESPONSES, ResponseType.ON_CLIENT_TIMEOUT)
class OnClientTimeout(Response):
    client_id: wire.I64


@wire.record(RESPONSES, ResponseType.ON_STATIC_COUNTER)
class OnStaticCounter(Response):
    correlation_id: wire.I64
    counter_id: wire.I32


@wire.record(RESPONSES, ResponseType.ON_PUBLICATION_ERROR)
class OnPublicationError(Response):
    """A response that reports that a receiver rejected a publication's stream."""

    registration_id: wire.I64
    destination_registration_id: wire.I64
    session_id: wire.I32
    stream_id: wire.I32
    receiver_id: wire.I64
    group_tag: wire.I64
    address_type: wire.I16
    source_port: wire.U16
    source_address: wire.Bytes16
    error_code: wire.I32
    message: Message

    @property
    def code(self) -> ErrorCode:
        """The error code; UNKNOWN for a number from another version."""
        return ErrorCode(self.error_code)

    @property
    def source(self) -> str:
        """The receiver as ``ip:port`` or ``[v6]:port``; empty if the record contains no address."""
        if self.address_type == ADDRESS_IPV4:
            return f"{IPv4Address(self.source_address[:4])}:{self.source_port}"
        if self.address_type == ADDRESS_IPV6:
            return f"[{IPv6Address(self.source_address)}]:{self.source_port}"
        return ""


@wire.record(RESPONSES, ResponseType.ON_NEXT_AVAILABLE_SESSION_ID)
class OnNextAvailableSessionId(Response):
    correlation_id: wire.I64
    session_id: wire.I32


def decode_response(type_id: int, payload: bytes | memoryview) -> Response | None:
    """Decode a record of the to-clients buffer. Return None for an unknown type, which a newer driver may send.

    Raises RemoteProtocolError (code 7) for a malformed record.
    """
    cls = RESPONSES.get(type_id)
    return None if cls is None else cls.decode(payload)
