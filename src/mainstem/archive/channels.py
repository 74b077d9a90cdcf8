"""Channels of control sessions and replays: adding and removing parameters."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from mainstem.aeron.channel import ChannelUri, with_values
from mainstem.aeron.logbuffer.descriptor import wrap_i32
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from mainstem.recording.catalog import RecordingDescriptor

CONTROL_TERM_LENGTH = "64k"
# Parameters of one publication that the peer's channel must not contain.
POSITION_KEYS = ("init-term-id", "term-id", "term-offset")


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


def response_channel_for(control_channel: str) -> str:
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
    position, length = recording.stop_position, recording.term_buffer_length
    if position < 0:
        raise ConfigurationError(f"recording {recording.recording_id} is active: stop it before it is extended")
    return with_values(
        channel,
        {
            "init-term-id": recording.initial_term_id,
            "term-id": wrap_i32(recording.initial_term_id + position // length),
            "term-offset": position % length,
            "term-length": length,
            "mtu": recording.mtu_length,
        },
    )
