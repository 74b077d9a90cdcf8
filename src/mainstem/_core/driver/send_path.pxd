from libc.stdint cimport int32_t, int64_t, uint8_t

from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.driver.datagram cimport ADDRESS_ROOM, Address, Transport
from mainstem._core.driver.destinations cimport DestinationList
from mainstem._core.driver.events cimport WHOLE_FRAME, EventBuffer
from mainstem._core.driver.frame_checks cimport before_beginning
from mainstem._core.layout cimport *
from mainstem._core.driver.positions cimport PositionSet
from mainstem._core.driver.receivers cimport ReceiverTable
from mainstem._core.driver.retransmit cimport RetransmitHandler
from mainstem._core.driver.table cimport PathTable
from mainstem._core.log.term cimport NO_TIMESTAMP, RunBatch, bits_of, clean_to, scan_runs, stamp_frames, tail_position, wrap32


cdef class SendEndpoint:
    cdef readonly Transport transport
    cdef readonly PathTable paths
    cdef readonly int32_t key
    cdef readonly bint many
    cdef readonly DestinationList destinations
    cdef readonly int64_t last_status_ns
    cdef AtomicBuffer counters
    cdef uint8_t *cells
    cdef EventBuffer events
    cdef Address single
    cdef int32_t first

    cdef int32_t send_batch(self, Address only, const uint8_t *base, RunBatch batch) noexcept nogil
    cdef bint put_frame(self, Address only, const uint8_t *base, int64_t at, int32_t length) noexcept nogil
    cdef int32_t poll(self, int64_t now_ns) noexcept nogil
    cdef bint dispatch(self, int64_t now_ns) noexcept nogil
    cdef bint on_status(self, int64_t now_ns) noexcept nogil
    cdef bint on_nak(self, int64_t now_ns) noexcept nogil
    cdef bint on_other(self, int64_t now_ns) noexcept nogil


cdef class SendPath:
    cdef readonly AtomicBuffer log
    cdef readonly PositionSet spies
    cdef readonly SendEndpoint endpoint
    cdef readonly Address destination
    cdef readonly int32_t session_id
    cdef readonly int32_t stream_id
    cdef readonly int32_t initial_term_id
    cdef readonly int32_t mtu
    cdef readonly int64_t term_length
    cdef readonly int64_t window_length
    cdef readonly int64_t publisher_limit
    cdef readonly int64_t sender_position
    cdef readonly int64_t sender_limit
    cdef readonly int64_t clean_position
    cdef readonly int64_t last_send_ns
    cdef readonly int64_t last_status_ns
    cdef readonly ReceiverTable table
    cdef readonly RetransmitHandler retransmit
    cdef int64_t naks_at
    cdef readonly bint connected
    cdef public int32_t key
    cdef public object on_resend
    cdef public bint draining
    cdef public bint end_of_stream
    cdef public bint revoked
    cdef public bint spies_simulate_connection
    cdef public bint group_ready
    cdef public bint limit_frozen
    cdef public bint tracks_minimum
    cdef public bint has_initial_connection
    cdef public bint setup_elicited
    cdef public bint received_unicast_eos
    cdef public int64_t limit_cap
    cdef public int64_t timestamp_offset
    cdef public int64_t setup_due_ns
    cdef public int64_t setup_interval_ns
    cdef public int64_t heartbeat_interval_ns
    cdef public int64_t receiver_timeout_ns
    cdef public int64_t next_python_ns
    cdef AtomicBuffer counters
    cdef AtomicBuffer scratch
    cdef RunBatch batch
    cdef EventBuffer events
    cdef uint8_t *base
    cdef uint8_t *cells
    cdef uint8_t *frame
    cdef int64_t meta
    cdef int32_t bits
    cdef int32_t max_runs
    cdef int64_t limit_at
    cdef int64_t produced_at
    cdef int64_t sent_at
    cdef int64_t sender_limit_at
    cdef int64_t pressure_at
    cdef int64_t heartbeat_due_ns
    cdef int64_t probe_due_ns
    cdef int64_t probe_interval_ns
    cdef int64_t expiry_due_ns
    cdef bint counts_pressure

    cdef int64_t term_at(self, int64_t position) noexcept nogil
    cdef int64_t work(self, int64_t now_ns) noexcept nogil
    cdef void set_connected(self, bint connected) noexcept nogil
    cdef void move_limits(self) noexcept nogil
    cdef int64_t send_data(self, int64_t now_ns) noexcept nogil
    cdef void follow_spies(self) noexcept nogil
    cdef void send_heartbeat(self, int64_t now_ns) noexcept nogil
    cdef void expire_receivers(self, int64_t now_ns) noexcept nogil
    cdef void stamp_header(self, int32_t length, int32_t flags, int32_t kind) noexcept nogil
    cdef bint wants_to_admit(self, int32_t row) noexcept nogil
    cdef void set_sender_limit(self, int64_t limit) noexcept nogil
    cdef void on_status(self, int32_t row, int64_t edge, int64_t now_ns) noexcept nogil
    cdef bint on_nak(self, int32_t term_id, int64_t offset, int64_t length, int64_t now_ns) noexcept nogil
    cdef int64_t repeat(self, int64_t position, int64_t length) noexcept nogil
    cdef void repeat_delayed(self, int64_t now_ns) noexcept nogil
    cdef int64_t resend_range(self, int64_t position, int64_t length) noexcept nogil
