"""The addresses of all network interfaces, read from rtnetlink. They include secondary addresses and aliases."""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from typing import TYPE_CHECKING

from mainstem.aeron.driver.media.addresses import NetworkInterface
from mainstem.aeron.logbuffer import align

if TYPE_CHECKING:
    from collections.abc import Iterator

# rtnetlink(7): a message consists of a header, a fixed part that depends on its type, and attributes.
HEADER = struct.Struct("=IHHII")
ATTRIBUTE = struct.Struct("=HH")
LINK = struct.Struct("=BxHiII")
ADDRESS = struct.Struct("=BBBBI")
NLMSG_ERROR, NLMSG_DONE = 2, 3
RTM_NEWLINK, RTM_GETLINK = 16, 18
RTM_NEWADDR, RTM_GETADDR = 20, 22
DUMP_FLAGS = 0x301  # NLM_F_REQUEST, NLM_F_DUMP
IFLA_IFNAME = 3
IFA_ADDRESS, IFA_LOCAL, IFA_LABEL = 1, 2, 3
IFF_UP, IFF_LOOPBACK, IFF_MULTICAST = 0x1, 0x8, 0x1000
# The kernel puts at most 32 KiB of a dump into one datagram.
DATAGRAM_LENGTH = 1 << 16


def system_interfaces() -> list[NetworkInterface]:
    """Return the addresses of all interfaces that are up, in the kernel's order. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as sock:
        sock.bind((0, 0))
        links = dict(map(_link, _dump(sock, RTM_GETLINK, RTM_NEWLINK)))
        addresses = list(_dump(sock, RTM_GETADDR, RTM_NEWADDR))
    return [found for found in (_interface(message, links) for message in addresses) if found is not None]


def _dump(sock: socket.socket, request: int, reply: int) -> Iterator[bytes]:
    sock.send(HEADER.pack(HEADER.size + 4, request, DUMP_FLAGS, request, 0) + bytes(4))
    while True:
        datagram = sock.recv(DATAGRAM_LENGTH)
        while datagram:
            length, kind, _, sequence, _ = HEADER.unpack_from(datagram)
            body, datagram = datagram[HEADER.size : length], datagram[align(length, 4) :]
            if sequence != request:
                continue
            if kind == NLMSG_DONE:
                return
            if kind == NLMSG_ERROR:
                code = -struct.unpack_from("=i", body)[0]
                raise OSError(code, f"cannot list network interfaces: {os.strerror(code)}")
            if kind == reply:
                yield body


def _link(body: bytes) -> tuple[int, tuple[str, int]]:
    _, _, index, flags, _ = LINK.unpack_from(body)
    return index, (_text(_attributes(body[LINK.size :])[IFLA_IFNAME]), flags)


def _interface(body: bytes, links: dict[int, tuple[str, int]]) -> NetworkInterface | None:
    family, prefix_length, _, _, index = ADDRESS.unpack_from(body)
    name, flags = links.get(index, ("", 0))
    if family not in (socket.AF_INET, socket.AF_INET6) or not flags & IFF_UP:
        return None
    attributes = _attributes(body[ADDRESS.size :])
    # On a point-to-point link, IFA_ADDRESS is the address of the peer.
    address = attributes.get(IFA_LOCAL) or attributes[IFA_ADDRESS]
    return NetworkInterface(
        name=_text(attributes[IFA_LABEL]) if IFA_LABEL in attributes else name,
        index=index,
        ip=str(ipaddress.ip_address(address)),
        is_loopback=bool(flags & IFF_LOOPBACK),
        is_multicast=bool(flags & IFF_MULTICAST),
        prefix_length=prefix_length,
    )


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= ATTRIBUTE.size:
        length, kind = ATTRIBUTE.unpack_from(data)
        found[kind] = data[ATTRIBUTE.size : length]
        data = data[align(max(length, ATTRIBUTE.size), 4) :]
    return found


def _text(value: bytes) -> str:
    return os.fsdecode(value.rstrip(b"\0"))
