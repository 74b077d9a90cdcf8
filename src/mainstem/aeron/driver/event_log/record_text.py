"""Formatting commands and responses for the event log, with the words and the order of the reference driver."""

from __future__ import annotations

from typing import Any

from mainstem._internal.printable import printable
from mainstem.aeron.command.error_code import ErrorCode

# The fields of each command and response, in the order of the line. The word for a field is its name in camel case, or the word
# after "=". Records that the reference doesn't log use its words for the same fields of other records.
FIELDS = {
    "AddPublication": "stream_id client_id correlation_id channel",
    "AddExclusivePublication": "stream_id client_id correlation_id channel",
    "RemovePublication": "registration_id client_id correlation_id revoke",
    "AddSubscription": "stream_id registration_correlation_id client_id correlation_id channel",
    "RemoveSubscription": "registration_id client_id correlation_id",
    "ClientKeepalive": "client_id correlation_id",
    "ClientClose": "client_id correlation_id",
    "AddDestination": "registration_id=registrationCorrelationId client_id correlation_id channel",
    "RemoveDestination": "registration_id=registrationCorrelationId client_id correlation_id channel",
    "AddReceiveDestination": "registration_id=registrationCorrelationId client_id correlation_id channel",
    "RemoveReceiveDestination": "registration_id=registrationCorrelationId client_id correlation_id channel",
    "RemoveDestinationById": "resource_registration_id destination_registration_id",
    "AddCounter": "type_id key label client_id correlation_id",
    "AddStaticCounter": "registration_id type_id key label client_id correlation_id",
    "RemoveCounter": "registration_id client_id correlation_id",
    "TerminateDriver": "client_id token=tokenBufferLength",
    "RejectImage": "client_id correlation_id image_correlation_id position reason",
    "GetNextAvailableSessionId": "stream_id client_id correlation_id",
    "OnError": "offending_correlation_id=offendingCommandCorrelationId error_code message",
    "OnAvailableImage": (
        "session_id stream_id subscriber_position_id "
        "subscription_registration_id image_correlation_id=correlationId source_identity log_file=logFileName"
    ),
    "OnPublicationReady": (
        "session_id stream_id position_limit_id=publicationLimitCounterId "
        "channel_status_id=channelStatusCounterId correlation_id original_registration_id=registrationId log_file=logFileName"
    ),
    "OnExclusivePublicationReady": (
        "session_id stream_id position_limit_id=publicationLimitCounterId "
        "channel_status_id=channelStatusCounterId correlation_id original_registration_id=registrationId log_file=logFileName"
    ),
    "OnOperationSuccess": "correlation_id",
    "OnUnavailableImage": "stream_id image_correlation_id=correlationId subscription_registration_id channel",
    "OnSubscriptionReady": "correlation_id channel_status_id=channelStatusCounterId",
    "OnCounterReady": "correlation_id counter_id",
    "OnUnavailableCounter": "registration_id counter_id",
    "OnClientTimeout": "client_id",
    "OnStaticCounter": "correlation_id counter_id",
    "OnPublicationError": (
        "registration_id destination_registration_id session_id stream_id receiver_id group_tag error_code message"
    ),
    "OnNextAvailableSessionId": "correlation_id session_id",
}


def record_text(record: object) -> str:
    parts = []
    for each in FIELDS[type(record).__name__].split():
        field, _, word = each.partition("=")
        parts.append(f"{word or _camel_case(field)}={_value(field, getattr(record, field))}")
    return " ".join(parts)


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _value(field: str, value: Any) -> str:
    if field == "error_code":
        return ErrorCode(value).name
    if field == "token":
        return str(len(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.hex()
    return printable(str(value))
