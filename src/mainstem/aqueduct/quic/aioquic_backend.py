"""The aioquic library, which is written in Python. It is slower than qh3, but its flow control can be set per stream.

By default, the library doubles a window whenever half of it has been used, whether or not the application reads. Here a window
is the amount received plus a fixed credit, and it does not grow while the stream or connection is paused.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from aioquic.buffer import Buffer
from aioquic.quic.connection import Limit, QuicConnection, QuicConnectionError, QuicConnectionState
from aioquic.quic.packet import QuicFrameType, QuicPacketType, pull_quic_header
from aioquic.tls import AlertBadCertificate, AlertHandshakeFailure, verify_certificate
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ExtendedKeyUsage, ExtensionNotFound
from cryptography.x509.oid import ExtendedKeyUsageOID

from mainstem.aqueduct.quic.adapter import DATAGRAM_BACKLOG, Address, Backend, PacketHeader, QuicAdapter, read_authority
from mainstem.aqueduct.settings import CID_LENGTH
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aqueduct.engine import AqueductEngine
    from mainstem.aqueduct.quic.tickets import ServerTickets
    from mainstem.aqueduct.settings import Settings

_LIMIT_FRAME_CAPACITY = 17
"""A frame type and two variable-length integers of at most eight bytes."""


class _ConnectionWindow(Limit):  # type: ignore[misc]
    """The connection's credit: the amount received plus a fixed window. It does not grow while paused."""

    def __init__(self, original: Limit, window: int) -> None:
        self._granted: int = original.value
        self._window = window
        self.paused = False
        super().__init__(original.frame_type, original.name, original.value)

    @property
    def value(self) -> int:
        if not self.paused and self._granted - self.used < self._window // 2:
            self._granted = self.used + self._window
        return self._granted

    @value.setter
    def value(self, value: int) -> None:
        """Ignore the new value, with which the library would double the window."""


class _Connection(QuicConnection):  # type: ignore[misc]
    """The library's connection with bounded windows and other stream limits."""

    def __init__(self, *, settings: Settings, **options: Any) -> None:
        self._local_max_data: Limit
        super().__init__(**options)
        self.paused_streams: set[int] = set()
        self._window = settings.stream_window
        self.connection_window = _ConnectionWindow(self._local_max_data, settings.connection_window)
        self._local_max_data = self.connection_window
        for limit in (self._local_max_streams_bidi, self._local_max_streams_uni):
            limit.value = limit.sent = settings.max_streams

    def receive_datagram(self, data: bytes, addr: Any, now: float) -> None:
        super().receive_datagram(data, addr, now)
        if self._close_pending and not self._network_paths:
            # The library stores a path only after accepting a packet, and without a path it could not send its reason for refusal.
            self._network_paths.append(self._find_network_path(addr))

    def _write_stream_frame(self, builder: Any, space: Any, stream: Any, max_offset: int) -> int:
        # For every packet the library tries every stream, even those out of credit because nobody reads their channel.
        pending = stream.sender._pending
        if len(pending) and pending[0].start >= max_offset:
            return 0
        return super()._write_stream_frame(builder, space, stream, max_offset)  # type: ignore[no-any-return]

    def _write_stream_limits(self, builder: Any, space: Any, stream: Any) -> None:  # noqa: ARG002
        limit = stream.max_stream_data_local
        if not limit or stream.stream_id in self.paused_streams:
            return
        highest = stream.receiver.highest_offset
        if limit - highest < self._window // 2:
            limit = stream.max_stream_data_local = highest + self._window
        if stream.max_stream_data_local_sent != limit:
            frame = builder.start_frame(
                QuicFrameType.MAX_STREAM_DATA,
                capacity=_LIMIT_FRAME_CAPACITY,
                handler=self._on_max_stream_data_delivery,
                handler_args=(stream,),
            )
            frame.push_uint_var(stream.stream_id)
            frame.push_uint_var(limit)
            stream.max_stream_data_local_sent = limit


class _MutualConnection(_Connection):
    """A server's connection that asks its client for a certificate and verifies it.

    The library can ask, and it checks that the client has the certificate's key. This class checks that an authority signed the
    certificate, before the client's last handshake message is processed.
    """

    def __init__(self, *, settings: Settings, **options: Any) -> None:
        super().__init__(settings=settings, **options)
        self._client_ca = read_authority(settings.client_ca, "client authority")

    def _initialize(self, peer_cid: bytes) -> None:
        super()._initialize(peer_cid)
        context = self.tls
        context._request_client_certificate = True
        finish = context._server_handle_finished

        def verify_and_finish(input_buffer: Any, output_buffer: Any) -> None:
            self._verify_client(context._peer_certificate, context._peer_certificate_chain)
            finish(input_buffer, output_buffer)

        context._server_handle_finished = verify_and_finish

    def _verify_client(self, certificate: Any, chain: list[Any]) -> None:
        """Raise a TLS alert if the client's certificate is missing, or if no authority signed it for clients."""
        if certificate is None:
            raise AlertHandshakeFailure("the client presented no certificate")
        verify_certificate(certificate=certificate, chain=chain, cafile=self._client_ca)
        try:
            usages = certificate.extensions.get_extension_for_class(ExtendedKeyUsage).value
        except ExtensionNotFound:
            return
        if ExtendedKeyUsageOID.CLIENT_AUTH not in usages:
            raise AlertBadCertificate("the certificate is not for clients")


class AioquicAdapter(QuicAdapter):
    library_errors = (*QuicAdapter.library_errors, QuicConnectionError)

    def pause_stream(self, stream_id: int, paused: bool) -> None:
        if paused:
            self.quic.paused_streams.add(stream_id)
        else:
            self.quic.paused_streams.discard(stream_id)

    @property
    def peer_certificate(self) -> bytes | None:
        certificate = self.quic.tls._peer_certificate
        return None if certificate is None else bytes(certificate.public_bytes(Encoding.DER))

    @property
    def peer_idle_timeout(self) -> float | None:
        return self.quic._remote_max_idle_timeout  # type: ignore[no-any-return]

    def pause_connection(self, paused: bool) -> None:
        self.quic.connection_window.paused = paused

    def room(self) -> tuple[int, int, int, int, int, float | None]:
        quic = self.quic
        limits = quic._remote_max_streams_bidi, quic._remote_max_streams_uni
        opened = quic._local_next_stream_id_bidi // 4, quic._local_next_stream_id_uni // 4
        return (*limits, *opened, max(0, DATAGRAM_BACKLOG - len(quic._datagrams_pending)), self.round_trip)

    @property
    def active_address(self) -> Address:
        return self.quic._network_paths[0].addr  # type: ignore[no-any-return]

    @property
    def is_draining(self) -> bool:
        return self.quic._state is QuicConnectionState.DRAINING

    @property
    def reset_token(self) -> bytes | None:
        cid = self.quic._peer_cid if self.is_client else self.quic._host_cids[0]
        return cid.stateless_reset_token  # type: ignore[no-any-return]

    @property
    def round_trip(self) -> float | None:
        return self.quic._loss._rtt_smoothed or None

    @property
    def has_begun(self) -> bool:
        # If a first packet was refused, there is no acknowledgment for it.
        return self.quic._close_pending or any(len(space.ack_queue) for space in self.quic._spaces.values())

    @property
    def is_in_flight(self) -> bool:
        quic = self.quic
        if quic._loss.bytes_in_flight or quic._datagrams_pending:
            return True
        return any(not stream.sender.buffer_is_empty for stream in quic._streams.values())

    def check_watched(self, engine: AqueductEngine, now_ns: int) -> bool:
        quic, before = self.quic, len(self.watched)
        for stream_id in list(self.watched):
            stream = quic._streams.get(stream_id)
            if stream is None or stream.sender._buffer_start >= stream.sender._buffer_stop:
                del self.watched[stream_id]
                engine.stream_delivered(stream_id, now_ns)
        return len(self.watched) < before


class AioquicBackend(Backend):
    name = "aioquic"
    adapter = AioquicAdapter
    has_address_tokens = True

    def connection_class(self, settings: Settings) -> Callable[..., Any]:
        is_mutual = settings.client_ca is not None
        return partial(_MutualConnection if is_mutual else _Connection, settings=settings)

    def check_server(self, settings: Settings, tickets: ServerTickets | None) -> None:
        if settings.client_ca is not None and tickets is not None:
            raise ConfigurationError(
                "client_ca and tickets cannot be combined: a resumed session presents no certificate"
            )

    def parse(self, data: bytes) -> PacketHeader | None:
        try:
            header = pull_quic_header(Buffer(data=data), host_cid_length=CID_LENGTH)
        except ValueError:
            return None
        kind = header.packet_type
        is_initial, is_negotiation = kind == QuicPacketType.INITIAL, kind == QuicPacketType.VERSION_NEGOTIATION
        cids = header.destination_cid, header.source_cid
        return PacketHeader(header.version, is_initial, is_negotiation, *cids, header.token)


BACKEND = AioquicBackend()
