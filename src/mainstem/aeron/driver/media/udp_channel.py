"""A channel URI resolved to addresses for data and control frames (docs/protocols/aeron.md, 19)."""

from __future__ import annotations

import ipaddress
import itertools
from typing import TYPE_CHECKING

from mainstem._internal.frozen import frozen
from mainstem.aeron.channel_values import ControlMode, Interface
from mainstem.aeron.driver.media.addresses import (
    LITERAL_RESOLVER,
    InetAddress,
    control_group,
    has_odd_last_byte,
    wildcard,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.channel import ChannelUri
    from mainstem.aeron.driver.media.addresses import NetworkInterface, Resolver

_unique = itertools.count(1)


def _unchanged(text: str, key: str) -> str:  # noqa: ARG001 - the lookup without a table
    return text


@frozen
class UdpChannel:
    """A network channel with its names resolved.

    A sender binds ``local_control`` and sends to ``remote_data``. A receiver binds ``remote_data`` and sends control frames to
    ``remote_control``, or without an explicit control address to the source of the data. Channels with the same
    ``canonical_form`` share sockets.
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
        is_destination: bool = False,
    ) -> UdpChannel:
        """Resolve the names of a channel and check the parameters that its sockets depend on. Raises ChannelUriError.

        ``lookup`` can replace the value of a parameter before it is resolved (docs/protocols/aeron.md, 22.2). The canonical form
        of a destination with port 0 gets no unique suffix, because the command that removes the destination finds it by that form.
        """
        uri.check_udp()
        control = _resolve(uri, uri.control, "control", resolver, lookup)
        endpoint = _resolve(uri, uri.endpoint, "endpoint", resolver, lookup)
        tag = uri.channel_tag
        _ = uri.ats, uri.so_sndbuf, uri.so_rcvbuf, uri.receiver_window_length
        if endpoint is not None and endpoint.is_multicast:
            channel = cls._multicast(uri, endpoint, resolver, tag)
        else:
            channel = cls._unicast(uri, endpoint, control, resolver, tag, is_unique=not is_destination)
        uri.check_timestamps()
        return channel

    @classmethod
    def _unicast(
        cls,
        uri: ChannelUri,
        endpoint: InetAddress | None,
        control: InetAddress | None,
        resolver: Resolver,
        tag: int | None,
        *,
        is_unique: bool,
    ) -> UdpChannel:
        v6 = (control or endpoint or wildcard(v6=False)).is_v6
        local = _local(uri, v6, resolver)
        remote = endpoint if endpoint is not None else wildcard(v6=v6)
        return cls(
            uri=uri,
            canonical_form=_canonical(uri, local, remote) + (_suffix(endpoint, control, tag) if is_unique else ""),
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
            tag=tag,
        )

    @classmethod
    def _multicast(cls, uri: ChannelUri, data: InetAddress, resolver: Resolver, tag: int | None) -> UdpChannel:
        if not has_odd_last_byte(data):
            raise uri.fault(
                f"multicast data address must be odd: {data.ip} ends in an even byte, and the next address carries control frames",
                "endpoint",
            )
        interface = uri.network_interface
        network_interface = _find_interface(uri, interface, data.is_v6, resolver)
        if (":" in network_interface.ip) != data.is_v6:
            raise uri.fault(
                f"interface {uri.interface} and address {data.ip} must have the same IP version", "interface"
            )
        local = InetAddress(
            network_interface.ip,
            0 if interface is None else interface.port,
            network_interface.index if data.is_v6 else 0,
        )
        return cls(
            uri=uri,
            canonical_form=f"UDP-{local}-{data}",
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
            tag=tag,
        )

    def check_publication(self) -> None:
        uri = self.uri
        if not (self.is_manual or self.is_dynamic) and self.has_explicit_endpoint and self.remote_data.port == 0:
            raise uri.fault("endpoint has port=0 for publication: a publication cannot send to it", "endpoint")
        if self.is_dynamic and not self.has_explicit_control:
            raise uri.fault("control-mode=dynamic cannot be used with a multicast endpoint", "control-mode")
        if self.has_explicit_control and not self.has_explicit_endpoint and "control-mode" not in uri.values:
            raise uri.fault(
                "'control' parameter requires that either 'endpoint' or 'control-mode' is specified", "control"
            )

    def check_subscription(self) -> None:
        if self.has_explicit_control and self.local_control.port == 0:
            raise self.uri.fault(
                "control has port=0 for subscription: a subscription cannot send status messages to it", "control"
            )

    @property
    def is_manual(self) -> bool:
        return self.control_mode is ControlMode.MANUAL

    @property
    def is_dynamic(self) -> bool:
        return self.control_mode is ControlMode.DYNAMIC

    @property
    def is_response(self) -> bool:
        return self.control_mode is ControlMode.RESPONSE

    @property
    def has_many_destinations(self) -> bool:
        if self.is_multicast or self.is_response:
            return False
        return self.is_manual or (self.has_explicit_control and not self.has_explicit_endpoint) or self.is_dynamic

    @property
    def has_group_semantics(self) -> bool:
        """Whether the sender must expect several receivers (docs/protocols/aeron.md, 16.4)."""
        return self.is_multicast or self.has_many_destinations

    def has_tag_of(self, other: UdpChannel) -> bool:
        """Return whether ``other`` refers to this channel by its tag. Raises ChannelUriError if other parameters differ."""
        if other.tag is None or self.tag != other.tag:
            return False
        if other.control_mode not in (None, self.control_mode):
            raise other.uri.fault(
                f"matching tag={self.tag} has mismatched control-mode: {other.uri} <> {self.uri}", "control-mode"
            )
        places = (other.remote_data, other.local_control)
        is_same = places == (self.remote_data, self.local_control) or other.canonical_form == self.canonical_form
        if not (is_same or other.is_nowhere):
            raise other.uri.fault(
                f"matching tag={self.tag} has mismatched endpoint or control: {other.uri} <> {self.uri}", "tags"
            )
        return True

    @property
    def is_nowhere(self) -> bool:
        """Whether the channel has no address. Then only its tag identifies it."""
        return all(each.is_wildcard and each.port == 0 for each in (self.remote_data, self.local_control))

    def matches(self, other: UdpChannel) -> bool:
        """Return whether two channels share sockets: the canonical forms are equal, and the tags, if both have one."""
        if self.tag is not None and other.tag is not None and self.tag != other.tag:
            return False
        return self.canonical_form == other.canonical_form


def _resolve(
    uri: ChannelUri, text: str | None, key: str, resolver: Resolver, lookup: Callable[[str, str], str]
) -> InetAddress | None:
    if text is None:
        return None
    try:
        found = lookup(text, key)
    except LookupError as error:
        raise uri.fault(f"{key}={text}: {error}", key) from error
    address = uri.address_of(key, found)
    return InetAddress(_resolve_host(uri, address.host, key, resolver), address.port)


def _resolve_host(uri: ChannelUri, host: str, key: str, resolver: Resolver) -> str:
    try:
        return resolver.resolve(host)
    except LookupError as error:
        raise uri.fault(f"{key}={uri.values[key]}: {error}", key) from error


def _local(uri: ChannelUri, v6: bool, resolver: Resolver) -> InetAddress:
    interface = uri.network_interface
    if interface is None:
        return wildcard(v6=v6)
    if not interface.name:
        asked = InetAddress(_resolve_host(uri, interface.host, "interface", resolver), interface.port)
        if asked.is_wildcard:
            return asked
    return InetAddress(_find_interface(uri, interface, v6, resolver).ip, interface.port)


def _find_interface(uri: ChannelUri, interface: Interface | None, v6: bool, resolver: Resolver) -> NetworkInterface:
    """Return the interface with the channel's interface name or network (docs/protocols/aeron.md, 19.2).

    If several match, prefer one that isn't loopback, then one with multicast, then the one with the smallest network.
    """
    if interface is not None and interface.name:
        named = [each for each in resolver.interfaces() if each.name == interface.name]
        place = f"named {interface.name}" if not named else f"of IPv{6 if v6 else 4} on {interface.name}"
        matches = [each for each in named if (":" in each.ip) == v6][:1]
    else:
        network = ipaddress.ip_network("::/0" if v6 else "0.0.0.0/0")
        if interface is not None:
            host = _resolve_host(uri, interface.host, "interface", resolver)
            bits = interface.prefix_length if interface.prefix_length is not None else (128 if ":" in host else 32)
            network = ipaddress.ip_network(f"{host}/{bits}", strict=False)
        matches = [each for each in resolver.interfaces() if ipaddress.ip_address(each.ip) in network]
        place = f"in {network}"
    if not matches:
        unknown = f"unknown interface {interface.name}: " if interface is not None and interface.name else ""
        raise uri.fault(f"{unknown}no network interface has an address {place}", "interface")
    return min(matches, key=lambda each: (each.is_loopback, not each.is_multicast, -each.prefix_length))


def _canonical(uri: ChannelUri, local: InetAddress, remote: InetAddress) -> str:
    """Return the identity of a unicast channel (docs/protocols/aeron.md, 19.7).

    It consists of the control address and the endpoint as written in the URI. The local or remote address replaces a missing one.
    """
    return f"UDP-{uri.control or local}-{uri.endpoint or remote}"


def _suffix(endpoint: InetAddress | None, control: InetAddress | None, tag: int | None) -> str:
    """Return a suffix for a channel without an address or with port 0: its tag, or else a unique number."""
    given = [address for address in (endpoint, control) if address is not None]
    if given and all(address.port for address in given):
        return ""
    return f"-{next(_unique)}" if tag is None else f"#{tag}"
