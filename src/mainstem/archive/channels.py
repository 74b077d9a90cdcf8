"""Channels of an archive and its clients: what each opens for requests, responses, recordings and replays, and what is stored."""

from __future__ import annotations

import ipaddress
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstem.aeron.channel import SPY_PREFIX, ChannelUri, with_values
from mainstem.aeron.logbuffer.descriptor import wrap_i32
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.recording.catalog import RecordingDescriptor

CONTROL_TERM_LENGTH = "64k"
# Parameters of one publication that the peer's channel must not contain.
POSITION_KEYS = ("init-term-id", "term-id", "term-offset")
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


def with_control_defaults(channel: str) -> str:
    """Return a control channel with a small, sparse log, unless the channel specifies otherwise."""
    own = ChannelUri.parse(channel).values
    defaults = {"term-length": CONTROL_TERM_LENGTH, "sparse": "true"}
    return with_values(channel, {key: value for key, value in defaults.items() if key not in own})


def has_any_port(channel: str) -> bool:
    """Whether the endpoint's port is 0, so that the driver binds a free one."""
    return (ChannelUri.parse(channel).endpoint or "").endswith(":0")


def with_bound_port(channel: str, address: str) -> str:
    """Return the channel with the port that its endpoint is bound to, from ``address``. The host does not change."""
    host = (ChannelUri.parse(channel).endpoint or "").rpartition(":")[0]
    return with_values(channel, {"endpoint": f"{host}:{address.rpartition(':')[2]}"})


def default_response_channel(control_channel: str) -> str:
    """Return the default response channel. Raises ConfigurationError if the archive is on another host."""
    uri = ChannelUri.parse(control_channel)
    if uri.is_ipc:
        return "aeron:ipc"
    host = (uri.endpoint or "").rpartition(":")[0].strip("[]")
    if is_local_host(host):
        return f"aeron:udp?endpoint={'[::1]' if ':' in host else 'localhost'}:0"
    raise ConfigurationError(
        f"response_channel: must be given, because the archive of {control_channel} is on another host;"
        " use an address of this host that the archive can reach, such as aeron:udp?endpoint=192.0.2.1:0"
    )


def is_local_host(host: str) -> bool:
    """Whether ``host`` is this host: ``localhost``, or a loopback address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def extension_channel(channel: str, recording: RecordingDescriptor) -> str:
    """Return the channel for a publication that continues a recording where it ends.

    Args:
        channel: The channel to publish to.
        recording: The recording, which must be stopped, as ``list_recording`` describes it.

    Returns:
        The channel with the recording's term length, MTU and stop position.

    Raises:
        ConfigurationError: The recording is active.

    Example:
        >>> recording = client.list_recording(7)
        >>> client.extend_recording(7, "aeron:ipc", 1001)
        >>> publication = aeron.add_exclusive_publication(extension_channel("aeron:ipc", recording), 1001)
    """
    if recording.stop_position < 0:
        raise ConfigurationError(f"recording {recording.recording_id} is active: stop it before it is extended")
    return with_values(channel, _beginning(recording, recording.stop_position))


def _beginning(recording: RecordingDescriptor, position: int) -> dict[str, object]:
    """Return the parameters of a publication that continues a recording at ``position``."""
    length = recording.term_buffer_length
    return {
        "init-term-id": recording.initial_term_id,
        "term-id": wrap_i32(recording.initial_term_id + position // length),
        "term-offset": position % length,
        "term-length": length,
        "mtu": recording.mtu_length,
    }


def stripped(uri: ChannelUri, more: Mapping[str, object] | None = None) -> str:
    """Return a channel with only the parameters that a recording keeps, plus ``more``."""
    values: dict[str, object] = {key: value for key, value in uri.values.items() if key in _KEPT}
    return _in_order(uri.media, values | dict(more or {}))


def _in_order(media: str, values: Mapping[str, object]) -> str:
    parameters = "|".join(f"{key}={values[key]}" for key in _ORDER if key in values)
    return f"aeron:{media}{'?' if parameters else ''}{parameters}"


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


def response_channel(uri: ChannelUri, image_id: int, *, term_length: int, is_sparse: bool, mtu: int) -> str:
    """Return the channel of a session's responses, as the client gave it and with the archive's settings (``mtu`` 0: unset).

    The client has not authenticated yet. So it decides where responses go, and the archive's settings decide what they cost. A
    response channel also gets the correlation id of the image of the client's requests. Raises ChannelUriError.
    """
    values: dict[str, object] = {key: uri.values[key] for key in _OF_RESPONSES if key in uri.values}
    if str(values.get("session-id", "")).startswith("tag:"):
        del values["session-id"]  # the tag of somebody else's publication
    values["term-length"] = min(uri.term_length or MAX_TERM_LENGTH, term_length)
    values["sparse"] = str(is_sparse).lower()
    largest = mtu or DEFAULT_MTU
    if mtu or (uri.mtu or 0) in range(1, largest + 1):
        values["mtu"] = min(uri.mtu or largest, largest)
    if uri.is_response:
        values |= {key: uri.values[key] for key in ("control", "control-mode") if key in uri.values}
        values["response-correlation-id"] = image_id
    return _in_order(uri.media, values)


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
    more: dict[str, object] = {key: uri.values[key] for key in ("eos", "sparse") if key in uri.values}
    more |= _beginning(descriptor, position)
    more["linger"] = linger_ns if uri.linger_ns is None else uri.linger_ns
    if uri.is_response:
        more["response-correlation-id"] = image_id
    return stripped(uri, more)
