"""A log buffer file: its constant metadata, and the fields that publisher, driver and subscribers read and change."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from mainstem._core import layout
from mainstem._internal.frozen import frozen
from mainstem.aeron.logbuffer import descriptor
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from mainstem._core.memory.buffer import AtomicBuffer

END_OF_STREAM_UNKNOWN = (1 << 63) - 1


class LogType(IntEnum):
    CONCURRENT_PUBLICATION = 0
    EXCLUSIVE_PUBLICATION = 1
    IMAGE = 2


@frozen
class LogParameters:
    """The constant part of a log's metadata.

    The stream begins at ``start_term_id`` and ``start_term_offset``, if not at the start of the initial term. Lengths are in bytes,
    durations in nanoseconds.
    """

    correlation_id: int
    session_id: int
    stream_id: int
    initial_term_id: int
    term_length: int
    mtu: int
    log_type: LogType
    page_size: int = 4096
    start_term_id: int | None = None
    start_term_offset: int = 0
    publication_window_length: int = 0
    receiver_window_length: int = 0
    socket_sndbuf_length: int = 0
    os_default_sndbuf_length: int = 0
    os_max_sndbuf_length: int = 0
    socket_rcvbuf_length: int = 0
    os_default_rcvbuf_length: int = 0
    os_max_rcvbuf_length: int = 0
    max_resend: int = 0
    entity_tag: int = -1
    response_correlation_id: int = -1
    linger_ns: int = 0
    untethered_window_limit_timeout_ns: int = 0
    untethered_linger_timeout_ns: int = 0
    untethered_resting_timeout_ns: int = 0
    group: bool = False
    is_response: bool = False
    rejoin: bool = False
    reliable: bool = False
    sparse: bool = False
    signal_eos: bool = False
    spies_simulate_connection: bool = False
    tether: bool = False

    @property
    def log_length(self) -> int:
        return descriptor.log_length(self.term_length, self.page_size)

    @property
    def start_position(self) -> int:
        if self.start_term_id is None:
            return 0
        bits = descriptor.position_bits(self.term_length)
        return descriptor.position_of(self.start_term_id, self.start_term_offset, self.initial_term_id, bits)


_I32_FIELDS = (
    (layout.LOG_INITIAL_TERM_ID_OFFSET, "initial_term_id"),
    (layout.LOG_MTU_LENGTH_OFFSET, "mtu"),
    (layout.LOG_TERM_LENGTH_OFFSET, "term_length"),
    (layout.LOG_PAGE_SIZE_OFFSET, "page_size"),
    (layout.LOG_PUBLICATION_WINDOW_LENGTH_OFFSET, "publication_window_length"),
    (layout.LOG_RECEIVER_WINDOW_LENGTH_OFFSET, "receiver_window_length"),
    (layout.LOG_SOCKET_SNDBUF_LENGTH_OFFSET, "socket_sndbuf_length"),
    (layout.LOG_OS_DEFAULT_SNDBUF_LENGTH_OFFSET, "os_default_sndbuf_length"),
    (layout.LOG_OS_MAX_SNDBUF_LENGTH_OFFSET, "os_max_sndbuf_length"),
    (layout.LOG_SOCKET_RCVBUF_LENGTH_OFFSET, "socket_rcvbuf_length"),
    (layout.LOG_OS_DEFAULT_RCVBUF_LENGTH_OFFSET, "os_default_rcvbuf_length"),
    (layout.LOG_OS_MAX_RCVBUF_LENGTH_OFFSET, "os_max_rcvbuf_length"),
    (layout.LOG_MAX_RESEND_OFFSET, "max_resend"),
)
_I64_FIELDS = (
    (layout.LOG_CORRELATION_ID_OFFSET, "correlation_id"),
    (layout.LOG_ENTITY_TAG_OFFSET, "entity_tag"),
    (layout.LOG_RESPONSE_CORRELATION_ID_OFFSET, "response_correlation_id"),
    (layout.LOG_LINGER_TIMEOUT_NS_OFFSET, "linger_ns"),
    (layout.LOG_UNTETHERED_WINDOW_LIMIT_TIMEOUT_NS_OFFSET, "untethered_window_limit_timeout_ns"),
    (layout.LOG_UNTETHERED_RESTING_TIMEOUT_NS_OFFSET, "untethered_resting_timeout_ns"),
    (layout.LOG_UNTETHERED_LINGER_TIMEOUT_NS_OFFSET, "untethered_linger_timeout_ns"),
)
_U8_FIELDS = (
    (layout.LOG_GROUP_OFFSET, "group"),
    (layout.LOG_IS_RESPONSE_OFFSET, "is_response"),
    (layout.LOG_REJOIN_OFFSET, "rejoin"),
    (layout.LOG_RELIABLE_OFFSET, "reliable"),
    (layout.LOG_SPARSE_OFFSET, "sparse"),
    (layout.LOG_SIGNAL_EOS_OFFSET, "signal_eos"),
    (layout.LOG_SPIES_SIMULATE_CONNECTION_OFFSET, "spies_simulate_connection"),
    (layout.LOG_TETHER_OFFSET, "tether"),
    (layout.LOG_TYPE_OFFSET, "log_type"),
)


class LogBuffers:
    """The metadata of a log, as a view of the whole file's memory. Raises ConfigurationError if the file is not a log.

    In ``buffer``, the terms start at 0, ``term_length`` and twice ``term_length``, and the metadata at ``metadata_offset``.
    Compiled code uses ``buffer`` directly.
    """

    __slots__ = (
        "bits",
        "buffer",
        "correlation_id",
        "initial_term_id",
        "max_message_length",
        "max_payload_length",
        "max_position",
        "metadata_offset",
        "mtu",
        "session_id",
        "stream_id",
        "term_length",
    )

    def __init__(self, buffer: AtomicBuffer) -> None:
        least = descriptor.log_length(layout.TERM_MIN_LENGTH)
        if buffer.capacity < least:
            raise ConfigurationError(f"a log buffer has at least {least} bytes, not {buffer.capacity}")
        meta = buffer.capacity - layout.LOG_METADATA_LENGTH
        self.buffer = buffer
        self.metadata_offset = meta
        self.term_length = buffer.get_i32(meta + layout.LOG_TERM_LENGTH_OFFSET)
        descriptor.check_term_length(self.term_length)
        if layout.PARTITION_COUNT * self.term_length > meta:
            raise ConfigurationError(f"{buffer.capacity} bytes cannot hold three terms of {self.term_length}")
        self.bits = descriptor.position_bits(self.term_length)
        self.initial_term_id = buffer.get_i32(meta + layout.LOG_INITIAL_TERM_ID_OFFSET)
        self.mtu = buffer.get_i32(meta + layout.LOG_MTU_LENGTH_OFFSET)
        self.correlation_id = buffer.get_i64(meta + layout.LOG_CORRELATION_ID_OFFSET)
        header = meta + layout.LOG_DEFAULT_HEADER_OFFSET
        self.session_id = buffer.get_i32(header + layout.FRAME_SESSION_ID_OFFSET)
        self.stream_id = buffer.get_i32(header + layout.FRAME_STREAM_ID_OFFSET)
        self.max_payload_length = self.mtu - layout.DATA_HEADER_LENGTH
        self.max_message_length = descriptor.max_message_length(self.term_length)
        self.max_position = descriptor.max_position(self.term_length)

    @classmethod
    def create(cls, buffer: AtomicBuffer, parameters: LogParameters) -> LogBuffers:
        """Write all metadata and tails into zeroed memory of ``parameters.log_length`` bytes."""
        descriptor.check_term_length(parameters.term_length)
        descriptor.check_page_size(parameters.page_size)
        if buffer.capacity != parameters.log_length:
            raise ConfigurationError(f"a log needs {parameters.log_length} bytes, not {buffer.capacity}")
        meta = buffer.capacity - layout.LOG_METADATA_LENGTH
        for offset, name in _I32_FIELDS:
            buffer.put_i32(meta + offset, getattr(parameters, name))
        for offset, name in _I64_FIELDS:
            buffer.put_i64(meta + offset, getattr(parameters, name))
        for offset, name in _U8_FIELDS:
            buffer.put_u8(meta + offset, int(getattr(parameters, name)))
        _write_default_header(buffer, meta, parameters)
        _write_tails(buffer, meta, parameters)
        buffer.put_i64(meta + layout.LOG_END_OF_STREAM_POSITION_OFFSET, END_OF_STREAM_UNKNOWN)
        return cls(buffer)

    def raw_tail(self, index: int) -> int:
        """Return the tail counter of a partition (acquire)."""
        return self.buffer.get_i64_acquire(self.metadata_offset + layout.LOG_TAIL_COUNTERS_OFFSET + 8 * index)

    @property
    def active_term_count(self) -> int:
        """The number of terms before the current one (acquire)."""
        return self.buffer.get_i32_acquire(self.metadata_offset + layout.LOG_ACTIVE_TERM_COUNT_OFFSET)

    @property
    def producer_position(self) -> int:
        raw = self.raw_tail(self.active_term_count % layout.PARTITION_COUNT)
        offset = descriptor.tail_offset(raw, self.term_length)
        return descriptor.position_of(descriptor.tail_term_id(raw), offset, self.initial_term_id, self.bits)

    @property
    def end_of_stream_position(self) -> int:
        """The position at which the stream ends; 2**63 - 1 while unknown."""
        return self.buffer.get_i64_acquire(self.metadata_offset + layout.LOG_END_OF_STREAM_POSITION_OFFSET)

    @end_of_stream_position.setter
    def end_of_stream_position(self, position: int) -> None:
        self.buffer.put_i64_release(self.metadata_offset + layout.LOG_END_OF_STREAM_POSITION_OFFSET, position)

    @property
    def is_connected(self) -> bool:
        return self.buffer.get_i32_acquire(self.metadata_offset + layout.LOG_IS_CONNECTED_OFFSET) == 1

    @is_connected.setter
    def is_connected(self, connected: bool) -> None:
        self.buffer.put_i32_release(self.metadata_offset + layout.LOG_IS_CONNECTED_OFFSET, int(connected))

    @property
    def active_transport_count(self) -> int:
        return self.buffer.get_i32_acquire(self.metadata_offset + layout.LOG_ACTIVE_TRANSPORT_COUNT_OFFSET)

    @active_transport_count.setter
    def active_transport_count(self, count: int) -> None:
        self.buffer.put_i32_release(self.metadata_offset + layout.LOG_ACTIVE_TRANSPORT_COUNT_OFFSET, count)

    @property
    def is_publication_revoked(self) -> bool:
        return self.buffer.get_u8(self.metadata_offset + layout.LOG_IS_PUBLICATION_REVOKED_OFFSET) == 1

    @is_publication_revoked.setter
    def is_publication_revoked(self, revoked: bool) -> None:
        self.buffer.put_u8(self.metadata_offset + layout.LOG_IS_PUBLICATION_REVOKED_OFFSET, int(revoked))

    def read_parameters(self) -> LogParameters:
        """Return the metadata that was passed to ``create``, except for the start of the stream."""
        buffer, meta = self.buffer, self.metadata_offset
        values: dict[str, int | bool] = {name: buffer.get_i32(meta + offset) for offset, name in _I32_FIELDS}
        values |= {name: buffer.get_i64(meta + offset) for offset, name in _I64_FIELDS}
        values |= {name: bool(buffer.get_u8(meta + offset)) for offset, name in _U8_FIELDS if name != "log_type"}
        return LogParameters(
            session_id=self.session_id,
            stream_id=self.stream_id,
            log_type=LogType(buffer.get_u8(meta + layout.LOG_TYPE_OFFSET)),
            **values,  # type: ignore[arg-type]
        )


def _write_default_header(buffer: AtomicBuffer, meta: int, parameters: LogParameters) -> None:
    buffer.put_i32(meta + layout.LOG_DEFAULT_HEADER_LENGTH_OFFSET, layout.DATA_HEADER_LENGTH)
    header = meta + layout.LOG_DEFAULT_HEADER_OFFSET
    buffer.put_u8(header + layout.FRAME_FLAGS_OFFSET, layout.FLAG_UNFRAGMENTED)
    buffer.put_u8(header + layout.FRAME_TYPE_OFFSET, layout.TYPE_DATA)
    buffer.put_i32(header + layout.FRAME_SESSION_ID_OFFSET, parameters.session_id)
    buffer.put_i32(header + layout.FRAME_STREAM_ID_OFFSET, parameters.stream_id)
    buffer.put_i32(header + layout.FRAME_TERM_ID_OFFSET, parameters.initial_term_id)


def _write_tails(buffer: AtomicBuffer, meta: int, parameters: LogParameters) -> None:
    initial = parameters.initial_term_id
    first = initial if parameters.start_term_id is None else parameters.start_term_id
    count = descriptor.term_count_of(first, initial)
    for i in range(layout.PARTITION_COUNT):
        # A partition that has not been used yet has the id that its term would have had one rotation earlier.
        raw = descriptor.raw_tail(first + i - 3, 0) if i else descriptor.raw_tail(first, parameters.start_term_offset)
        index = (count + i) % layout.PARTITION_COUNT
        buffer.put_i64(meta + layout.LOG_TAIL_COUNTERS_OFFSET + 8 * index, raw)
    buffer.put_i32(meta + layout.LOG_ACTIVE_TERM_COUNT_OFFSET, count)
