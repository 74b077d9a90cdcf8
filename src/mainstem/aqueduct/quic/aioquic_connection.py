"""The connection of the aioquic library, with bounded flow control windows and with what Aqueduct has to know of it.

By default, the library doubles a window whenever half of it has been used, whether or not the application reads. Here a window
is the amount received plus a fixed credit, and it does not grow while the stream or connection is paused.

Private names of the library stand in this file only. The library has no public settings for windows and limits on streams
(``_local_max_data``, ``_local_max_streams_*``, ``_write_stream_limits``) or for a client's certificate (``_initialize`` and
the TLS context's ``_request_client_certificate``, ``_server_handle_finished``, ``_peer_certificate*``). Nor does it say what the
peer allows (``_remote_max_*``), what is waiting or in flight (``_datagrams_pending``, ``_streams`` and ``_pending``,
``_buffer_start``, ``_buffer_stop`` of their senders, ``_spaces``, ``_loss`` and its ``_rtt_smoothed``), whether it has ended
(``_close_event``, ``_close_pending``, ``_state``), whether it has events (``_events``), or by which token it can be reset
(``_peer_cid``, ``_host_cids``). ``_network_paths`` and ``_write_stream_frame`` correct two faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioquic.quic.connection import Limit, QuicConnection, QuicConnectionState
from aioquic.quic.packet import QuicFrameType
from aioquic.tls import AlertBadCertificate, AlertHandshakeFailure, verify_certificate
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ExtendedKeyUsage, ExtensionNotFound
from cryptography.x509.oid import ExtendedKeyUsageOID

from mainstem.aqueduct.quic.lifecycle import DATAGRAM_BACKLOG
from mainstem.aqueduct.quic.pem_files import read_authority

if TYPE_CHECKING:
    from mainstem.aqueduct.quic.udp import Address
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


class AioquicConnection(QuicConnection):  # type: ignore[misc]
    """The library's connection. `AioquicAdapter` uses it."""

    def __init__(self, *, settings: Settings, **options: Any) -> None:
        self._local_max_data: Limit
        super().__init__(**options)
        # What `next_event` takes from, to see whether there is anything.
        self.events = self._events
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

    # What the library knows.

    @property
    def has_ended(self) -> bool:
        return self._close_event is not None

    @property
    def is_draining(self) -> bool:
        return self._state is QuicConnectionState.DRAINING

    @property
    def active_address(self) -> Address:
        return self.get_peer_address()  # type: ignore[no-any-return]

    @property
    def reset_token(self) -> bytes | None:
        cid = self._peer_cid if self._is_client else self._host_cids[0]
        return cid.stateless_reset_token  # type: ignore[no-any-return]

    @property
    def round_trip(self) -> float | None:
        return self._loss._rtt_smoothed or None

    @property
    def peer_certificate(self) -> bytes | None:
        certificate = self.tls._peer_certificate
        return None if certificate is None else bytes(certificate.public_bytes(Encoding.DER))

    @property
    def peer_idle_timeout(self) -> float | None:
        return self._remote_max_idle_timeout  # type: ignore[no-any-return]

    @property
    def max_datagram_frame(self) -> int:
        return self._remote_max_datagram_frame_size or 0

    @property
    def has_begun(self) -> bool:
        # If a first packet was refused, there is no acknowledgment for it.
        return self._close_pending or any(len(space.ack_queue) for space in self._spaces.values())

    @property
    def is_in_flight(self) -> bool:
        if self._loss.bytes_in_flight or self._datagrams_pending:
            return True
        return any(not stream.sender.buffer_is_empty for stream in self._streams.values())

    def room(self) -> tuple[tuple[int, int], tuple[int, int], int, float | None]:
        """Return the limits on streams of each kind, how many were opened, room for datagrams, and the round-trip time."""
        return (
            (self._remote_max_streams_bidi, self._remote_max_streams_uni),
            (self._local_next_stream_id_bidi // 4, self._local_next_stream_id_uni // 4),
            max(0, DATAGRAM_BACKLOG - len(self._datagrams_pending)),
            self.round_trip,
        )

    def is_delivered(self, stream_id: int) -> bool:
        """Return whether everything that was written to a stream has been acknowledged."""
        stream = self._streams.get(stream_id)
        return stream is None or stream.sender._buffer_start >= stream.sender._buffer_stop


class MutualConnection(AioquicConnection):
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
