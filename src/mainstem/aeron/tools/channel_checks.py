"""Checks of a channel before the client waits for a driver, so that a channel that every driver refuses fails at once."""

from __future__ import annotations

from mainstem.aeron.channel import ChannelUri, check_channel

# The parameters that a driver reads for every such channel. An invalid value of an unused parameter is not an error.
OF_PUBLICATIONS = (
    "mtu",
    "term_length",
    "init_term_id",
    "publication_window_length",
    "ttl",
    "eos",
    "sparse",
    "spies_simulate_connection",
)
OF_SUBSCRIPTIONS = ("receiver_window_length", "reliable", "tether", "rejoin", "group")


def check_publication(channel: str) -> None:
    """Raise ChannelUriError if no driver can publish on the channel."""
    _check(channel, OF_PUBLICATIONS)


def check_subscription(channel: str) -> None:
    """Raise ChannelUriError if no driver can subscribe to the channel."""
    _check(channel, OF_SUBSCRIPTIONS)


def _check(channel: str, names: tuple[str, ...]) -> None:
    check_channel(channel)
    uri = ChannelUri.parse(channel)
    if not uri.is_ipc:
        uri.check_udp()
        _ = uri.endpoint_address
    for name in names:
        getattr(uri, name)
