"""A channel URI as addresses: where data goes and comes from, where control frames do (docs/protocols/aeron.md, 19)."""

from __future__ import annotations

import ipaddress
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem.aeron.channel_values import ControlMode, Interface, parse_address, parse_interface
from mainstem.aeron.driver.media.addresses import (
    LITERAL_RESOLVER,
    InetAddress,
    control_group,
    has_odd_last_byte,
    wildcard,
)
from mainstem.errors import ChannelUriError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.channel import ChannelUri
    from mainstem.aeron.driver.media.addresses import NetworkInterface, Resolver

_unique = itertools.count(1)


def _unchanged(text: str, key: str) -> str:  # noqa: ARG001 - where there is no table
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class UdpChannel:
    """A network channel with its names resolved.

    A sender binds ``local_control`` and sends to ``remote_data``; a receiver binds ``remote_data`` and sends control frames to
    ``remote_control``, or to a datagram's source where control is not explicit. ``canonical_form`` is the channel's identity:
    channels with the same one share their sockets. ``interface_ip`` and ``interface_index`` identify the network interface.
    """

    uri: ChannelUri
    canonical_form: str
    remote_data: InetAddress
    remote_control: InetAddress
    local_data: InetAddress
    local_control: InetAddress
    is_multicast: bool
    has_explicit_endpoint: bool
    has_explicit_control: bool
    control_mode: ControlMode | None
    interface_ip: str
    interface_index: int
    ttl: int
    tag: int | None

    @classmethod
    def parse(
        cls,
        uri: ChannelUri,
        *,
        resolver: Resolver = LITERAL_RESOLVER,
        lookup: Callable[[str, str], str] = _unchanged,
    ) -> UdpChannel:
        """Resolves the names of a channel. Raises ChannelUriError for what cannot be resolved or does not fit together.

        ``lookup`` returns the text to resolve in place of a parameter's value (docs/protocols/aeron.md, 22.2).
        """
        endpoint = _resolve(uri, uri.endpoint, "endpoint", resolver, lookup)
        control = _resolve(uri, uri.control, "control", resolver, lookup)
        if endpoint is not None and control is not None and endpoint.is_v6 != control.is_v6:
            raise ChannelUriError(str(uri), "endpoint and control are not of the same IP version")
        interface = None if uri.interface is None else parse_interface(uri.interface)
        v6 = (endpoint or control or wildcard(v6=interface is not None and ":" in interface.host)).is_v6
        if endpoint is not None and endpoint.is_multicast:
            return cls._multicast(uri, endpoint, interface, resolver)
        local = _local(uri, interface, v6, resolver)
        remote = endpoint if endpoint is not None else wildcard(v6=v6)
        return cls(
            uri=uri,
            canonical_form=_canonical(uri, local if control is None else control, remote),
            remote_data=remote,
            remote_control=control if control is not None else remote,
            local_data=remote if control is not None else local,
            local_control=control if control is not None else local,
            is_multicast=False,
            has_explicit_endpoint=endpoint is not None,
            has_explicit_control=control is not None,
            control_mode=uri.control_mode,
            interface_ip=local.ip,
            interface_index=0,
            ttl=0,
            tag=uri.channel_tag,
        )

    @classmethod
    def _multicast(
        cls, uri: ChannelUri, data: InetAddress, interface: Interface | None, resolver: Resolver
    ) -> UdpChannel:
        if not has_odd_last_byte(data):
            raise ChannelUriError(
                str(uri), f"multicast data address {data.ip} must be odd in its last byte: the next one is for control"
            )
        if uri.control is not None:
            raise ChannelUriError(str(uri), "a multicast endpoint has its own control address")
        network_interface = _find_interface(uri, interface, data.is_v6, resolver)
        local = InetAddress(
            network_interface.ip,
            0 if interface is None else interface.port,
            network_interface.index if data.is_v6 else 0,
        )
        return cls(
            uri=uri,
            canonical_form=_canonical(uri, local, data),
            remote_data=data,
            remote_control=control_group(data),
            local_data=local,
            local_control=local,
            is_multicast=True,
            has_explicit_endpoint=True,
            has_explicit_control=False,
            control_mode=uri.control_mode,
            interface_ip=network_interface.ip,
            interface_index=network_interface.index,
            ttl=uri.ttl or 0,
            tag=uri.channel_tag,
        )

    @property
    def is_manual(self) -> bool:
        """Whether destinations are added by commands."""
        return self.control_mode is ControlMode.MANUAL

    @property
    def is_response(self) -> bool:
        return self.control_mode is ControlMode.RESPONSE

    @property
    def has_many_destinations(self) -> bool:
        """Whether a sender has a list of destinations: added by commands, or learnt from status messages."""
        if self.is_multicast or self.is_response:
            return False
        return (
            self.is_manual
            or (self.has_explicit_control and not self.has_explicit_endpoint)
            or (self.control_mode is ControlMode.DYNAMIC)
        )

    @property
    def has_group_semantics(self) -> bool:
        """Whether there may be several receivers, as a sender sees it (docs/protocols/aeron.md, 16.4)."""
        return self.is_multicast or self.has_many_destinations

    def matches(self, other: UdpChannel) -> bool:
        """Whether two channels may share their sockets: the same identity, or the same tag."""
        if self.tag is not None and self.tag == other.tag:
            return True
        return self.canonical_form == other.canonical_form


def _resolve(
    uri: ChannelUri, text: str | None, key: str, resolver: Resolver, lookup: Callable[[str, str], str]
) -> InetAddress | None:
    if text is None:
        return None
    address = parse_address(lookup(text, key))
    try:
        return InetAddress(resolver.resolve(address.host), address.port)
    except LookupError as error:
        raise ChannelUriError(str(uri), f"{key}={text}: {error}") from error


def _local(uri: ChannelUri, interface: Interface | None, v6: bool, resolver: Resolver) -> InetAddress:
    """The address that a unicast socket binds: that of the channel's interface, else any."""
    if interface is None:
        return wildcard(v6=v6)
    if interface.prefix_length is not None:
        return InetAddress(_find_interface(uri, interface, v6, resolver).ip, interface.port)
    try:
        return InetAddress(resolver.resolve(interface.host), interface.port)
    except LookupError as error:
        raise ChannelUriError(str(uri), f"interface={uri.interface}: {error}") from error


def _find_interface(uri: ChannelUri, interface: Interface | None, v6: bool, resolver: Resolver) -> NetworkInterface:
    """The first interface of the channel's network, loopback last (docs/protocols/aeron.md, 19.2)."""
    if interface is None:
        network = ipaddress.ip_network("::/0" if v6 else "0.0.0.0/0")
    else:
        try:
            host = resolver.resolve(interface.host)
        except LookupError as error:
            raise ChannelUriError(str(uri), f"interface={uri.interface}: {error}") from error
        bits = interface.prefix_length if interface.prefix_length is not None else (128 if ":" in host else 32)
        network = ipaddress.ip_network(f"{host}/{bits}", strict=False)
    matches = [
        each for each in resolver.interfaces() if (":" in each.ip) == v6 and ipaddress.ip_address(each.ip) in network
    ]
    if not matches:
        raise ChannelUriError(str(uri), f"no network interface has an address in {network}")
    return min(matches, key=lambda each: each.is_loopback)


def _canonical(uri: ChannelUri, local: InetAddress, remote: InetAddress) -> str:
    """The identity of the channel's sockets, in the text of its URI where it has one (docs/protocols/aeron.md, 19.7)."""
    local_text = uri.control or uri.interface or str(local)
    remote_text = uri.endpoint or str(remote)
    distinguishing = (uri.endpoint is not None or uri.control is not None) and not (
        (uri.endpoint is not None and remote.port == 0) or (uri.control is not None and local.port == 0)
    )
    suffix = ""
    if not distinguishing:
        suffix = f"#{uri.channel_tag}" if uri.channel_tag is not None else f"-{next(_unique)}"
    return f"UDP-{local_text}-{remote_text}{suffix}"
