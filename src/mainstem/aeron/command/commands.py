"""Commands from clients to the driver (docs/protocols/aeron.md, 5). Each class is one record, and its fields are the layout."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar

from mainstem._internal.frozen import frozen
from mainstem.aeron.command import wire
from mainstem.errors import RemoteProtocolError

MAX_COUNTER_KEY_LENGTH = 112  # the space for the key in a counter's metadata record
MAX_COUNTER_LABEL_LENGTH = 380
MAX_REASON_LENGTH = 1023  # the space for the reason in an error frame on the wire
MAX_TOKEN_LENGTH = 4096
REVOKE = 1  # flag of RemovePublication: the stream ends for subscribers at once, without draining

CounterKey = Annotated[bytes, wire.Counted(MAX_COUNTER_KEY_LENGTH, text=False, align=4, truncates=True)]
CounterLabel = Annotated[str, wire.Counted(MAX_COUNTER_LABEL_LENGTH, text=True, truncates=True)]
# Accepts a reason of any length, so that the driver can refuse an overlong one as such.
Reason = Annotated[str, wire.Counted(wire.MAX_CHANNEL_LENGTH, text=True)]
Token = Annotated[bytes, wire.Counted(MAX_TOKEN_LENGTH, text=False)]


class CommandType(IntEnum):
    ADD_PUBLICATION = 0x01
    REMOVE_PUBLICATION = 0x02
    ADD_EXCLUSIVE_PUBLICATION = 0x03
    ADD_SUBSCRIPTION = 0x04
    REMOVE_SUBSCRIPTION = 0x05
    CLIENT_KEEPALIVE = 0x06
    ADD_DESTINATION = 0x07
    REMOVE_DESTINATION = 0x08
    ADD_COUNTER = 0x09
    REMOVE_COUNTER = 0x0A
    CLIENT_CLOSE = 0x0B
    ADD_RCV_DESTINATION = 0x0C
    REMOVE_RCV_DESTINATION = 0x0D
    TERMINATE_DRIVER = 0x0E
    ADD_STATIC_COUNTER = 0x0F
    REJECT_IMAGE = 0x10
    REMOVE_DESTINATION_BY_ID = 0x11
    GET_NEXT_AVAILABLE_SESSION_ID = 0x12


@frozen
class Command(wire.Message):
    """The fields of every command: the client id, and the correlation id that the response carries."""

    client_id: wire.I64
    correlation_id: wire.I64


COMMANDS: dict[int, type[Command]] = {}


@wire.record(COMMANDS, CommandType.ADD_PUBLICATION)
class AddPublication(Command):
    """A command that adds a concurrent publication, shared by all clients that add the same channel and stream."""

    stream_id: wire.I32
    channel: wire.Channel


@wire.record(COMMANDS, CommandType.ADD_EXCLUSIVE_PUBLICATION)
class AddExclusivePublication(Command):
    """A command that adds a publication with one writer and its own log."""

    stream_id: wire.I32
    channel: wire.Channel


@wire.record(COMMANDS, CommandType.REMOVE_PUBLICATION)
class RemovePublication(Command):
    """A command that removes a publication. Older clients send no flags."""

    registration_id: wire.I64
    flags: wire.U64 = 0

    @property
    def revoke(self) -> bool:
        """Whether the stream ends at once, without draining."""
        return bool(self.flags & REVOKE)


@wire.record(COMMANDS, CommandType.ADD_SUBSCRIPTION)
class AddSubscription(Command):
    """A command that adds a subscription. The prefix ``aeron-spy:`` in the channel makes it a spy."""

    registration_correlation_id: wire.I64 = -1
    stream_id: wire.I32
    channel: wire.Channel


@wire.record(COMMANDS, CommandType.REMOVE_SUBSCRIPTION)
class RemoveSubscription(Command):
    registration_id: wire.I64


@wire.record(COMMANDS, CommandType.CLIENT_KEEPALIVE)
class ClientKeepalive(Command):
    """A command that keeps the client alive. Only older clients send it."""


@wire.record(COMMANDS, CommandType.ADD_DESTINATION)
class AddDestination(Command):
    """A command that adds a destination to a publication whose channel has ``control-mode=manual``."""

    registration_id: wire.I64
    channel: wire.Channel


@wire.record(COMMANDS, CommandType.REMOVE_DESTINATION)
class RemoveDestination(Command):
    registration_id: wire.I64
    channel: wire.Channel


@wire.record(COMMANDS, CommandType.ADD_COUNTER)
class AddCounter(Command):
    type_id: wire.I32
    key: CounterKey
    label: CounterLabel


@wire.record(COMMANDS, CommandType.REMOVE_COUNTER)
class RemoveCounter(Command):
    registration_id: wire.I64


@wire.record(COMMANDS, CommandType.CLIENT_CLOSE)
class ClientClose(Command):
    """A command that ends the client and removes what it added."""


@wire.record(COMMANDS, CommandType.ADD_RCV_DESTINATION)
class AddReceiveDestination(Command):
    """A command that adds a destination to a subscription. The channel can be udp, ipc or a spy."""

    registration_id: wire.I64
    channel: wire.Channel


@wire.record(COMMANDS, CommandType.REMOVE_RCV_DESTINATION)
class RemoveReceiveDestination(Command):
    registration_id: wire.I64
    channel: wire.Channel


@wire.record(COMMANDS, CommandType.TERMINATE_DRIVER)
class TerminateDriver(Command):
    token: Token


@wire.record(COMMANDS, CommandType.ADD_STATIC_COUNTER)
class AddStaticCounter(Command):
    """A command that adds a counter without an owner.

    Adding a counter with the same type and registration id again returns the same counter.
    """

    registration_id: wire.I64
    type_id: wire.I32
    key: CounterKey
    label: CounterLabel


@wire.record(COMMANDS, CommandType.REJECT_IMAGE)
class RejectImage(Command):
    """A command that rejects an image. The image's sender receives the reason."""

    MIN_LENGTH: ClassVar[int] = 40  # the reference driver refuses a shorter record, even if the reason is empty
    image_correlation_id: wire.I64
    position: wire.I64
    reason: Reason


@wire.record(COMMANDS, CommandType.REMOVE_DESTINATION_BY_ID)
class RemoveDestinationById(Command):
    """A command that removes a destination by the correlation id of the command that added it."""

    resource_registration_id: wire.I64
    destination_registration_id: wire.I64


@wire.record(COMMANDS, CommandType.GET_NEXT_AVAILABLE_SESSION_ID)
class GetNextAvailableSessionId(Command):
    """A command that requests a session id that no publication on the stream uses (control protocol 1.0.0 or later)."""

    stream_id: wire.I32


UNKNOWN_COMMAND_TYPE_ID = 6  # the error code of docs/protocols/aeron.md, 6.1


def decode_command(type_id: int, payload: bytes | memoryview) -> Command:
    """Decode a record of the to-driver buffer.

    Raises RemoteProtocolError with code 6 for an unknown type and code 7 for a malformed record.
    """
    cls = COMMANDS.get(type_id)
    if cls is None:
        raise RemoteProtocolError(
            f"unknown command type {type_id:#x}", rule="command type", code=UNKNOWN_COMMAND_TYPE_ID
        )
    return cls.decode(payload)


def correlation_id_of(payload: bytes | memoryview) -> int | None:
    """Return the correlation id in a record of any type, even a malformed one. Return None if the record is too short."""
    try:
        return Command.decode(payload).correlation_id
    except RemoteProtocolError:
        return None
