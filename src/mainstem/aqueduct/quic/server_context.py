"""What all connections of one server share: how it reads first packets, and how it responds to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainstem.aqueduct.settings import CID_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aqueduct.quic.adapter import QuicAdapter


@dataclass(slots=True)
class PacketHeader:
    """The header of a packet, which a server reads before it knows which connection the packet belongs to."""

    version: int | None
    is_initial: bool
    is_negotiation: bool
    destination_cid: bytes
    source_cid: bytes
    token: bytes


class ServerContext:
    """The configuration of a server's connections, and its responses to first packets.

    ``packets`` is the library's module of packets, which has the same functions in both. ``connect`` makes a connection from its
    original connection id and the source of the Retry before it.
    """

    def __init__(
        self, configuration: Any, packets: Any, make_buffer: Callable[..., Any], connect: Callable[..., QuicAdapter]
    ) -> None:
        self.configuration = configuration
        self._packets = packets
        self._make_buffer = make_buffer
        self._connect = connect

    def parse(self, data: bytes) -> PacketHeader | None:
        """Return the header of a packet; None if ``data`` is not a packet."""
        kinds = self._packets.QuicPacketType
        try:
            header = self._packets.pull_quic_header(self._make_buffer(data=data), CID_LENGTH)
        except ValueError:
            return None
        return PacketHeader(
            header.version,
            header.packet_type == kinds.INITIAL,
            header.packet_type == kinds.VERSION_NEGOTIATION,
            header.destination_cid,
            header.source_cid,
            header.token,
        )

    def negotiate(self, header: PacketHeader) -> bytes | None:
        """Return a version negotiation packet if the header's version is not supported, and None otherwise."""
        versions = self.configuration.supported_versions
        if header.version is None or header.version in versions or header.is_negotiation:
            return None
        return self._packets.encode_quic_version_negotiation(  # type: ignore[no-any-return]
            source_cid=header.destination_cid, destination_cid=header.source_cid, supported_versions=versions
        )

    def retry(self, header: PacketHeader, retried: bytes, token: bytes) -> bytes:
        """Return a Retry packet, which makes the client begin again with a token and another connection id."""
        return self._packets.encode_quic_retry(  # type: ignore[no-any-return]
            version=header.version,
            source_cid=retried,
            destination_cid=header.source_cid,
            original_destination_cid=header.destination_cid,
            retry_token=token,
        )

    def accept(self, header: PacketHeader, original: bytes | None = None) -> QuicAdapter:
        """Return a connection for a first packet; ``original`` is the connection id before a Retry, or None without one."""
        return self._connect(
            original_destination_connection_id=header.destination_cid if original is None else original,
            retry_source_connection_id=None if original is None else header.destination_cid,
        )
