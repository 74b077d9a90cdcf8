"""Channels of an archive: the stored form, the key of a recording subscription, and parameters for replays and responses."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstem.aeron.channel import SPY_PREFIX, ChannelUri
from mainstem.aeron.logbuffer.descriptor import wrap_i32

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.archive.server.settings import ArchiveSettings
    from mainstem.recording.catalog import RecordingDescriptor

# In the order in which the reference writes them. A stripped channel keeps the parameters marked with a star.
_PARAMETERS = (
    "tags* endpoint* interface* control* control-mode* mtu term-length init-term-id term-id term-offset session-id* ttl* alias* "
    "cc* fc* gtag* sparse eos tether* group* rejoin* so-sndbuf* so-rcvbuf* rcv-wnd* media-rcv-ts-offset* channel-rcv-ts-offset* "
    "channel-snd-ts-offset* response-endpoint* response-correlation-id* stream-id* linger"
)
_ORDER = tuple(name.rstrip("*") for name in _PARAMETERS.split())
_KEPT = frozenset(name[:-1] for name in _PARAMETERS.split() if name.endswith("*"))
_OF_RESPONSES = ("endpoint", "session-id", "ttl", "alias")
DEFAULT_MTU = 1408  # bytes
MAX_TERM_LENGTH = 1 << 30
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


def response_channel(uri: ChannelUri, settings: ArchiveSettings, image_id: int) -> str:
    """Return the channel of a session's responses.

    The client has not authenticated yet. So it decides where responses go, and the archive's settings decide what they cost. A
    response channel also gets the correlation id of the image of the client's requests. Raises ChannelUriError.
    """
    values: dict[str, object] = {key: uri.values[key] for key in _OF_RESPONSES if key in uri.values}
    if str(values.get("session-id", "")).startswith("tag:"):
        del values["session-id"]  # the tag of somebody else's publication
    values["term-length"] = min(uri.term_length or MAX_TERM_LENGTH, settings.control_term_buffer_length)
    values["sparse"] = str(settings.control_term_buffer_sparse).lower()
    largest = settings.control_mtu_length or DEFAULT_MTU
    if settings.control_mtu_length or (uri.mtu or 0) in range(1, largest + 1):
        values["mtu"] = min(uri.mtu or largest, largest)
    if uri.is_response:
        values |= {key: uri.values[key] for key in ("control", "control-mode") if key in uri.values}
        values["response-correlation-id"] = image_id
    parameters = "|".join(f"{key}={values[key]}" for key in _ORDER if key in values)
    return f"aeron:{uri.media}{'?' if parameters else ''}{parameters}"


def name_in(address: str) -> str:
    """Return the host of ``host:port`` if it is a name that must be looked up, else an empty string."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return "" if host == "localhost" else host
    return ""


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
    if uri.is_response:
        more["response-correlation-id"] = image_id
    return stripped(uri, more)
