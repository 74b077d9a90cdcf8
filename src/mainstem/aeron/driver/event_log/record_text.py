"""A command or a response as a line of the event log: the reference driver's words, order included."""

from __future__ import annotations

from typing import Any

from mainstem._internal.printable import printable
from mainstem.aeron.command.error_code import ErrorCode

# For each record, the words of its line, and the fields they come from. Those that the reference does not describe have
# the words that it has for the same fields elsewhere.
_IDS = (("clientId", "client_id"), ("correlationId", "correlation_id"))
_CHANNEL = ("channel", "channel")
_STREAM = ("streamId", "stream_id")
_REGISTRATION = (("registrationId", "registration_id"), *_IDS)
_DESTINATION = (("registrationCorrelationId", "registration_id"), *_IDS, _CHANNEL)
_READY = (
    ("sessionId", "session_id"),
    _STREAM,
    ("publicationLimitCounterId", "position_limit_id"),
    ("channelStatusCounterId", "channel_status_id"),
    ("correlationId", "correlation_id"),
    ("registrationId", "original_registration_id"),
    ("logFileName", "log_file"),
)
_COUNTER = (("correlationId", "correlation_id"), ("counterId", "counter_id"))
WORDS: dict[str, tuple[tuple[str, str], ...]] = {
    "AddPublication": (_STREAM, *_IDS, _CHANNEL),
    "AddExclusivePublication": (_STREAM, *_IDS, _CHANNEL),
    "RemovePublication": (*_REGISTRATION, ("revoke", "revoke")),
    "AddSubscription": (_STREAM, ("registrationCorrelationId", "registration_correlation_id"), *_IDS, _CHANNEL),
    "RemoveSubscription": _REGISTRATION,
    "ClientKeepalive": _IDS,
    "ClientClose": _IDS,
    "AddDestination": _DESTINATION,
    "RemoveDestination": _DESTINATION,
    "AddReceiveDestination": _DESTINATION,
    "RemoveReceiveDestination": _DESTINATION,
    "RemoveDestinationById": (
        ("resourceRegistrationId", "resource_registration_id"),
        ("destinationRegistrationId", "destination_registration_id"),
    ),
    "AddCounter": (("typeId", "type_id"), ("key", "key"), ("label", "label"), *_IDS),
    "AddStaticCounter": (
        ("registrationId", "registration_id"),
        ("typeId", "type_id"),
        ("key", "key"),
        ("label", "label"),
        *_IDS,
    ),
    "RemoveCounter": _REGISTRATION,
    "TerminateDriver": (("clientId", "client_id"), ("tokenBufferLength", "token")),
    "RejectImage": (
        *_IDS,
        ("imageCorrelationId", "image_correlation_id"),
        ("position", "position"),
        ("reason", "reason"),
    ),
    "GetNextAvailableSessionId": (_STREAM, *_IDS),
    "OnError": (
        ("offendingCommandCorrelationId", "offending_correlation_id"),
        ("errorCode", "error_code"),
        ("message", "message"),
    ),
    "OnAvailableImage": (
        ("sessionId", "session_id"),
        _STREAM,
        ("subscriberPositionId", "subscriber_position_id"),
        ("subscriptionRegistrationId", "subscription_registration_id"),
        ("correlationId", "image_correlation_id"),
        ("sourceIdentity", "source_identity"),
        ("logFileName", "log_file"),
    ),
    "OnPublicationReady": _READY,
    "OnExclusivePublicationReady": _READY,
    "OnOperationSuccess": (("correlationId", "correlation_id"),),
    "OnUnavailableImage": (
        _STREAM,
        ("correlationId", "image_correlation_id"),
        ("subscriptionRegistrationId", "subscription_registration_id"),
        _CHANNEL,
    ),
    "OnSubscriptionReady": (("correlationId", "correlation_id"), ("channelStatusCounterId", "channel_status_id")),
    "OnCounterReady": _COUNTER,
    "OnUnavailableCounter": (("registrationId", "registration_id"), ("counterId", "counter_id")),
    "OnClientTimeout": (("clientId", "client_id"),),
    "OnStaticCounter": _COUNTER,
    "OnPublicationError": (
        ("registrationId", "registration_id"),
        ("destinationRegistrationId", "destination_registration_id"),
        ("sessionId", "session_id"),
        _STREAM,
        ("receiverId", "receiver_id"),
        ("groupTag", "group_tag"),
        ("errorCode", "error_code"),
        ("message", "message"),
    ),
    "OnNextAvailableSessionId": (("correlationId", "correlation_id"), ("sessionId", "session_id")),
}


def record_text(record: object) -> str:
    """The text of a command or a response."""
    return " ".join(f"{word}={_value(word, getattr(record, field))}" for word, field in WORDS[type(record).__name__])


def _value(word: str, value: Any) -> str:
    if word == "errorCode":
        return ErrorCode(value).name
    if word == "tokenBufferLength":
        return str(len(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex()
    return printable(str(value))
