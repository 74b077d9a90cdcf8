"""Channels of an archive: the stored form, the key of a recording subscription, and parameters for replays and responses."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstem.aeron.channel import SPY_PREFIX, ChannelUri
from mainstem.aeron.channel_values import ControlMode
from mainstem.aeron.logbuffer.descriptor import wrap_i32

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.recording.catalog import RecordingDescriptor

# In the order in which the reference writes them. A stripped channel keeps the parameters marked with a star.
_PARAMETERS = (
    "tags* endpoint* interface* control* control-mode* mtu term-length init-term-id term-id term-offset session-id* ttl* alias* "
    "cc* fc* gtag* sparse eos tether* group* rejoin* so-sndbuf* so-rcvbuf* rcv-wnd* media-rcv-ts-offset* channel-rcv-ts-offset* "
    "channel-snd-ts-offset* response-endpoint* response-correlation-id* stream-id* linger"
)
_ORDER = tuple(name.rstrip("*") for name in _PARAMETERS.split())
_KEPT = frozenset(name[:-1] for name in _PARAMETERS.split() if name.endswith("*"))
_OF_KEY = ("endpoint", "interface", "control", "session-id", "tags")


def stripped(uri: ChannelUri, more: Mapping[str, object] | None = None) -> str:
    """Return a channel with only the parameters that a recording keeps, plus ``more``."""
    values: dict[str, object] = {key: value for key, value in uri.values.items() if key in _KEPT}
    values |= more or {}
    parameters = "|".join(f"{key}={values[key]}" for key in _ORDER if key in values)
    return f"aeron:{uri.media}{'?' if parameters else ''}{parameters}"


def recording_channel(uri: ChannelUri, *, local: bool) -> str:
    """Return the channel of the subscription that records: a spy of a local UDP publication, else the stripped channel."""
    return (SPY_PREFIX if local and not uri.is_ipc else "") + stripped(uri)


def recording_key(uri: ChannelUri, stream_id: int) -> str:
    """Return the key that identifies a recording subscription. Start and stop requests compute the same key."""
    parts = [f"{key}={uri.values[key]}" for key in _OF_KEY if key in uri.values]
    return f"{stream_id}:{uri.media}" + (f"?{'|'.join(parts)}" if parts else "")


def own_channel(control_channel: str) -> str:
    """Return a channel on a free port of the control channel's host; empty if its address is a wildcard or multicast."""
    host = (ChannelUri.parse(control_channel).endpoint or "").rpartition(":")[0] if control_channel else ""
    with suppress(ValueError):
        address = ipaddress.ip_address(host.strip("[]"))
        if address.is_unspecified or address.is_multicast:
            return ""
    return f"aeron:udp?endpoint={host}:0" if host else ""


def is_response(uri: ChannelUri) -> bool:
    return uri.control_mode is ControlMode.RESPONSE


def response_channel(uri: ChannelUri, defaults: Mapping[str, object], image_id: int) -> str:
    """Return the channel of a session's responses, with ``defaults``.

    A response channel also gets the correlation id of the image of the client's requests.
    """
    more = {key: uri.values.get(key, value) for key, value in defaults.items()}
    if is_response(uri):
        more["response-correlation-id"] = image_id
    return stripped(uri, more)


def replay_channel(
    uri: ChannelUri, descriptor: RecordingDescriptor, position: int, *, linger_ns: int, image_id: int
) -> str:
    """Return the channel of a replay's publication, which begins at ``position`` of the recording.

    A response channel also gets the correlation id of the image that the request came from.
    """
    term_length = descriptor.term_buffer_length
    more: dict[str, object] = {key: uri.values[key] for key in ("eos", "sparse") if key in uri.values}
    more |= {
        "mtu": descriptor.mtu_length,
        "term-length": term_length,
        "init-term-id": descriptor.initial_term_id,
        "term-id": wrap_i32(descriptor.initial_term_id + position // term_length),
        "term-offset": position % term_length,
        "linger": linger_ns if uri.linger_ns is None else uri.linger_ns,
    }
    if is_response(uri):
        more["response-correlation-id"] = image_id
    return stripped(uri, more)
