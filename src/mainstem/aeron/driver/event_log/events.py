"""The events of the driver's event log: one row each, with the names, numbers and words of the reference driver."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from mainstem.aeron.command import commands, responses

if TYPE_CHECKING:
    from mainstem.aeron.command.wire import Message

_COMMAND = "the conductor read a client's command"
_RESPONSE = "the conductor sent a response"
_STREAM = "sessionId={session_id} streamId={stream_id}"
_PLACES = "localData: {local}, remoteData: {remote}, ttl: {ttl}"
_NAK = "address={address} {nak} channel={channel}"
_DESTINATION = "registration_id=registrationCorrelationId client_id correlation_id channel"
_IMAGE = (
    "session_id stream_id subscriber_position_id subscription_registration_id image_correlation_id=correlationId "
    "source_identity log_file=logFileName"
)
_READY = (
    "session_id stream_id position_limit_id=publicationLimitCounterId channel_status_id=channelStatusCounterId "
    "correlation_id original_registration_id=registrationId log_file=logFileName"
)


class Event(Enum):
    """An event: its number, when it is logged, and its line.

    The number is the reference's; events that it does not have get None. The settings accept it in place of the name. A line is a
    format for the fields that `EventLog.note` gets. The line of a command or response lists the record's fields instead: the word
    for each is its name in camel case, or the word after ``=``. ``frame_text`` formats frames.

    Every command and response is an event already. To add another, add a row here, at the end if the reference does not have it,
    and call ``note`` where it happens: of `Resources` in the conductor, of `EventLog` elsewhere. ``note`` drops events that were
    not chosen. ``make generate`` documents the event; test it in tests/unit/aeron/driver/event_log/test_event_log.py. An event
    without a number needs nothing else. One with a number is also compared with the reference's, in test_event_names.py and
    tests/interop/test_event_log.py.
    """

    def __init__(self, number: int | None, when: str, line: str, record: type[Message] | None = None) -> None:
        self.number = number
        self.when = when
        self.line = line
        self.record = record

    FRAME_IN = 1, "a socket received a datagram", ""
    FRAME_OUT = 2, "a socket sent a datagram", ""
    CMD_IN_ADD_PUBLICATION = 3, _COMMAND, "stream_id client_id correlation_id channel", commands.AddPublication
    CMD_IN_REMOVE_PUBLICATION = (
        4,
        _COMMAND,
        "registration_id client_id correlation_id revoke",
        commands.RemovePublication,
    )
    CMD_IN_ADD_SUBSCRIPTION = (
        5,
        _COMMAND,
        "stream_id registration_correlation_id client_id correlation_id channel",
        commands.AddSubscription,
    )
    CMD_IN_REMOVE_SUBSCRIPTION = 6, _COMMAND, "registration_id client_id correlation_id", commands.RemoveSubscription
    CMD_OUT_PUBLICATION_READY = 7, _RESPONSE, _READY, responses.OnPublicationReady
    CMD_OUT_AVAILABLE_IMAGE = 8, _RESPONSE, _IMAGE, responses.OnAvailableImage
    CMD_OUT_ON_OPERATION_SUCCESS = 12, _RESPONSE, "correlation_id", responses.OnOperationSuccess
    CMD_IN_KEEPALIVE_CLIENT = 13, _COMMAND, "client_id correlation_id", commands.ClientKeepalive
    REMOVE_PUBLICATION_CLEANUP = 14, "a publication's log was deleted", _STREAM + " channel={channel}"
    REMOVE_SUBSCRIPTION_CLEANUP = 15, "a subscription was removed", "streamId={stream_id} id={id} channel={channel}"
    REMOVE_IMAGE_CLEANUP = 16, "an image's log was deleted", _STREAM + " id={id} channel={channel}"
    CMD_OUT_ON_UNAVAILABLE_IMAGE = (
        17,
        _RESPONSE,
        "stream_id image_correlation_id=correlationId subscription_registration_id channel",
        responses.OnUnavailableImage,
    )
    SEND_CHANNEL_CREATION = 23, "a publication's socket was opened", _PLACES
    RECEIVE_CHANNEL_CREATION = 24, "a subscription's socket was opened", _PLACES
    SEND_CHANNEL_CLOSE = 25, "a publication's socket was closed", _PLACES
    RECEIVE_CHANNEL_CLOSE = 26, "a subscription's socket was closed", _PLACES
    CMD_IN_ADD_DESTINATION = 30, _COMMAND, _DESTINATION, commands.AddDestination
    CMD_IN_REMOVE_DESTINATION = 31, _COMMAND, _DESTINATION, commands.RemoveDestination
    CMD_IN_ADD_EXCLUSIVE_PUBLICATION = (
        32,
        _COMMAND,
        "stream_id client_id correlation_id channel",
        commands.AddExclusivePublication,
    )
    CMD_OUT_EXCLUSIVE_PUBLICATION_READY = 33, _RESPONSE, _READY, responses.OnExclusivePublicationReady
    CMD_OUT_ERROR = (
        34,
        "the conductor refused a command",
        "offending_correlation_id=offendingCommandCorrelationId error_code message",
        responses.OnError,
    )
    CMD_IN_ADD_COUNTER = 35, _COMMAND, "type_id key label client_id correlation_id", commands.AddCounter
    CMD_IN_REMOVE_COUNTER = 36, _COMMAND, "registration_id client_id correlation_id", commands.RemoveCounter
    CMD_OUT_SUBSCRIPTION_READY = (
        37,
        _RESPONSE,
        "correlation_id channel_status_id=channelStatusCounterId",
        responses.OnSubscriptionReady,
    )
    CMD_OUT_COUNTER_READY = 38, _RESPONSE, "correlation_id counter_id", responses.OnCounterReady
    CMD_OUT_ON_UNAVAILABLE_COUNTER = 39, _RESPONSE, "registration_id counter_id", responses.OnUnavailableCounter
    CMD_IN_CLIENT_CLOSE = 40, _COMMAND, "client_id correlation_id", commands.ClientClose
    CMD_IN_ADD_RCV_DESTINATION = 41, _COMMAND, _DESTINATION, commands.AddReceiveDestination
    CMD_IN_REMOVE_RCV_DESTINATION = 42, _COMMAND, _DESTINATION, commands.RemoveReceiveDestination
    CMD_OUT_ON_CLIENT_TIMEOUT = 43, _RESPONSE, "client_id", responses.OnClientTimeout
    CMD_IN_TERMINATE_DRIVER = 44, _COMMAND, "client_id token=tokenBufferLength", commands.TerminateDriver
    UNTETHERED_SUBSCRIPTION_STATE_CHANGE = (
        45,
        "an untethered subscriber fell behind, rests or rejoined",
        "subscriptionId={subscription_id} streamId={stream_id} sessionId={session_id} {old} -> {new}",
    )
    NAME_RESOLUTION_NEIGHBOR_ADDED = 46, "another driver's resolver announced itself", "{address}"
    NAME_RESOLUTION_NEIGHBOR_REMOVED = 47, "another driver's resolver fell silent", "{address}"
    FLOW_CONTROL_RECEIVER_ADDED = (
        48,
        "min or tagged flow control waits for one more receiver",
        "receiverCount={count} receiverId={receiver_id} " + _STREAM + " channel={channel}",
    )
    FLOW_CONTROL_RECEIVER_REMOVED = (
        49,
        "min or tagged flow control no longer waits for a receiver",
        "receiverCount={count} receiverId={receiver_id} " + _STREAM + " channel={channel}",
    )
    NAME_RESOLUTION_RESOLVE = (
        50,
        "a name was resolved to an address, or could not be",
        "resolver={resolver} durationNs={took_ns} name={name} isReResolution={again} address={address}",
    )
    GENERIC_MESSAGE = 51, "an error was recorded", "{text}"
    NAME_RESOLUTION_LOOKUP = (
        52,
        "a value of a channel was looked up in the table of names",
        "resolver={resolver} durationNs={took_ns} name={name} isReLookup={again} resolvedName={resolved}",
    )
    NAME_RESOLUTION_HOST_NAME = 53, "the driver chose the name it announces", "durationNs=0 hostName={name}"
    NAK_SENT = 54, "a receiver requested lost data", _NAK
    RESEND = (
        55,
        "a sender retransmitted data",
        _STREAM + " termId={term_id} termOffset={term_offset} length={length} channel={channel}",
    )
    CMD_IN_REMOVE_DESTINATION_BY_ID = (
        56,
        _COMMAND,
        "resource_registration_id destination_registration_id",
        commands.RemoveDestinationById,
    )
    CMD_IN_REJECT_IMAGE = (
        57,
        _COMMAND,
        "client_id correlation_id image_correlation_id position reason",
        commands.RejectImage,
    )
    NAK_RECEIVED = 58, "a request for lost data arrived at a sender", _NAK
    PUBLICATION_REVOKE = 59, "a publication was revoked", "revokedPos={position} " + _STREAM + " channel={channel}"
    PUBLICATION_IMAGE_REVOKE = (
        60,
        "an image's publication was revoked",
        "revokedPos={position} " + _STREAM + " channel={channel}",
    )
    # Events that the reference does not have. A record's line has its words for the same fields of other records.
    CMD_IN_ADD_STATIC_COUNTER = (
        None,
        _COMMAND,
        "registration_id type_id key label client_id correlation_id",
        commands.AddStaticCounter,
    )
    CMD_IN_GET_NEXT_AVAILABLE_SESSION_ID = (
        None,
        _COMMAND,
        "stream_id client_id correlation_id",
        commands.GetNextAvailableSessionId,
    )
    CMD_OUT_STATIC_COUNTER = None, _RESPONSE, "correlation_id counter_id", responses.OnStaticCounter
    CMD_OUT_PUBLICATION_ERROR = (
        None,
        _RESPONSE,
        "registration_id destination_registration_id session_id stream_id receiver_id group_tag error_code message",
        responses.OnPublicationError,
    )
    CMD_OUT_NEXT_AVAILABLE_SESSION_ID = (
        None,
        _RESPONSE,
        "correlation_id session_id",
        responses.OnNextAvailableSessionId,
    )


FRAMES = frozenset({Event.FRAME_IN, Event.FRAME_OUT})
# Events that only the sockets can log, at a cost per datagram.
AT_THE_SOCKETS = FRAMES | {Event.NAK_SENT, Event.NAK_RECEIVED}
