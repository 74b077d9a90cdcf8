"""The receiver group that ``min`` and ``tagged`` flow control require before a publication is connected."""

from __future__ import annotations

from mainstem.aeron.channel import ChannelUri
from mainstem.errors import ChannelUriError


def group_size(channel: str) -> int | None:
    try:
        flow_control = ChannelUri.parse(channel).flow_control
    except ChannelUriError:
        return None  # a counter may truncate a channel that is too long for it
    return None if flow_control is None else flow_control.group_min_size


def incomplete_group(receivers: int, size: int | None) -> str:
    count = f"{receivers} of {size}" if size else f"too few ({receivers})"
    return f"its group has {count} receivers, where all subscriptions on one driver are one receiver"
