from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.driver.datagram cimport ADDRESS_ROOM, Address, Transport
from mainstem._core.driver.events cimport WHOLE_FRAME, EventBuffer
from mainstem._core.driver.frame_checks cimport sound_setup
from mainstem._core.layout cimport *
from mainstem._core.driver.loss_detector cimport MAX_GAPS, LossDetector
from mainstem._core.driver.positions cimport PositionSet
from mainstem._core.driver.table cimport PathTable
from mainstem._core.log.term cimport (
    NO_TIMESTAMP,
    aligned,
    bits_of,
    clean_to,
    fill_with_padding,
    first_gap,
    gap_end,
    insert_frames,
    stamp_frames,
    wrap32,
)

cdef enum:
    MAX_CONNECTIONS = 16
    MAX_TRANSPORTS = 16


cdef class Silence:
    cdef public int64_t until_ns


cdef class ReceiveEndpoint:
    cdef readonly PathTable paths
    cdef readonly PathTable interests
    cdef readonly PathTable silences
    cdef readonly int32_t key
    cdef readonly int64_t last_packet_ns
    cdef AtomicBuffer counters
    cdef uint8_t *cells
    cdef EventBuffer events
    cdef list kept
    cdef void *transports[MAX_TRANSPORTS]
    cdef int64_t unknown_key
    cdef public int64_t media_timestamp_offset
    cdef public int64_t channel_timestamp_offset

    cdef int32_t poll(self, int64_t now_ns) noexcept nogil
    cdef bint dispatch(self, Transport transport, int32_t index, int64_t now_ns) noexcept nogil
    cdef bint on_data(self, Transport transport, int32_t index, int64_t now_ns) noexcept nogil
    cdef bint on_setup(self, Transport transport, int32_t index, int64_t now_ns) noexcept nogil


cdef class ReceivePath:
    cdef readonly AtomicBuffer log
    cdef readonly PositionSet subscribers
    cdef readonly int32_t session_id
    cdef readonly int32_t stream_id
    cdef readonly int32_t initial_term_id
    cdef readonly int32_t mtu
    cdef readonly int64_t term_length
    cdef readonly int64_t join_position
    cdef public int32_t key
    cdef public int64_t window_length
    cdef public bint force_status
    cdef public bint draining
    cdef public bint revoked
    cdef public bint rejected
    cdef public bint status_events
    cdef public bint reports_loss_at_once
    cdef readonly LossDetector detector
    cdef bint is_reliable
    cdef int64_t naks_at
    cdef int64_t bytes_lost
    cdef int64_t loss_due_ns
    cdef public int64_t status_interval_ns
    cdef public int64_t connection_timeout_ns
    cdef public int64_t gap_scan_interval_ns
    cdef public int64_t next_python_ns
    cdef readonly int64_t last_packet_ns
    cdef readonly int64_t rebuild_position
    cdef readonly int64_t high_water_mark
    cdef readonly int64_t end_of_stream_position
    cdef readonly int64_t clean_position
    cdef readonly int64_t last_status_position
    cdef readonly int64_t status_messages_sent
    cdef readonly int32_t connections
    cdef AtomicBuffer counters
    cdef AtomicBuffer scratch
    cdef EventBuffer events
    cdef uint8_t *base
    cdef uint8_t *cells
    cdef uint8_t *frame
    cdef int64_t meta
    cdef int32_t bits
    cdef int32_t endpoint_key
    cdef int64_t media_timestamp_offset
    cdef int64_t channel_timestamp_offset
    cdef int64_t connect_due_ns
    cdef int64_t high_at
    cdef int64_t rebuilt_at
    cdef int64_t receiver_id
    cdef int64_t group_tag
    cdef bint has_group_tag
    cdef int64_t scheduled_position
    cdef int64_t scheduled_window
    cdef int64_t status_due_ns
    cdef int64_t noticed_gap
    cdef int64_t noticed_mark
    cdef int64_t gap_scan_due_ns
    cdef list kept
    cdef void *conn_transport[MAX_CONNECTIONS]
    cdef void *conn_control[MAX_CONNECTIONS]
    cdef void *conn_source[MAX_CONNECTIONS]
    cdef int32_t conn_index[MAX_CONNECTIONS]
    cdef bint conn_any_source[MAX_CONNECTIONS]
    cdef int64_t conn_ns[MAX_CONNECTIONS]
    cdef int64_t conn_end[MAX_CONNECTIONS]

    cdef int64_t term_at(self, int64_t position) noexcept nogil
    cdef int32_t connection_of(self, Transport transport, int32_t index) noexcept nogil
    cdef bint alive(self, int32_t row, int64_t now_ns) noexcept nogil
    cdef int64_t frames_length(self, const uint8_t *base, int64_t at, int32_t length) noexcept nogil
    cdef bint on_data(self, Transport transport, int32_t index, int64_t now_ns) noexcept nogil
    cdef void on_heartbeat(self, int64_t position, int32_t flags, int32_t row, int64_t now_ns) noexcept nogil
    cdef void on_end(self, int64_t position, bint revoked, int32_t row, int64_t now_ns) noexcept nogil
    cdef void raise_mark(self, int64_t position) noexcept nogil
    cdef int32_t work(self, int64_t now_ns) noexcept nogil
    cdef void rebuild(self, int64_t now_ns) noexcept nogil
    cdef void find_gaps(self, int64_t now_ns) noexcept nogil
    cdef void repair(self, int64_t now_ns) noexcept nogil
    cdef int32_t put_nak(self, int64_t position, int64_t length, int64_t now_ns) noexcept nogil
    cdef bint fill(self, int64_t position, int64_t length) noexcept nogil
    cdef bint schedule_status(self) noexcept nogil
    cdef void send_status(self, int64_t now_ns) noexcept nogil
    cdef int32_t put_to_all(self, const uint8_t *base, int32_t length, int64_t now_ns) noexcept nogil
