# Written from send_path.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.backing cimport Backing
from mainstem._core.driver.datagram cimport Address, Transport
from mainstem._core.driver.destinations cimport DestinationList
from mainstem._core.driver.events cimport EventBuffer
from mainstem._core.driver.events cimport WHOLE_FRAME
from mainstem._core.driver.frame_checks cimport before_beginning
from mainstem._core.driver.positions cimport PositionSet
from mainstem._core.driver.receivers cimport ReceiverTable
from mainstem._core.driver.retransmit cimport RetransmitHandler
from mainstem._core.driver.table cimport PathTable
from mainstem._core.layout cimport *
from mainstem._core.log.term cimport MAX_RUNS, NO_TIMESTAMP, bits_of, check_stream, clean_to, scan_runs, stamp_frames, tail_position, wrap32
from mainstem._core.log.term cimport RunBatch
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef class SendEndpointCore:
    cdef readonly Transport transport
    cdef readonly PathTable paths
    cdef readonly int key
    cdef readonly bint many
    cdef readonly DestinationList destinations
    cdef readonly long long last_status_ns
    cdef AtomicBuffer counters
    cdef unsigned char *cells
    cdef EventBuffer events
    cdef Address single
    cdef int first

    cdef int send_runs(self, Address to, const unsigned char *base, RunBatch batch) noexcept nogil
    cdef int send_batch(self, Address only, const unsigned char *base, RunBatch batch) noexcept nogil
    cdef bint put_frame(self, Address only, const unsigned char *base, long long at, int length) noexcept nogil
    cdef int poll(self, long long now_ns) noexcept nogil
    cdef bint dispatch(self, long long now_ns) noexcept nogil
    cdef bint on_other(self, long long now_ns) noexcept nogil
    cdef bint on_nak(self, long long now_ns) noexcept nogil
    cdef bint on_status(self, long long now_ns) noexcept nogil


cdef class SendPath:
    cdef readonly AtomicBuffer log
    cdef public Backing backing
    cdef readonly PositionSet spies
    cdef readonly SendEndpointCore endpoint
    cdef readonly Address destination
    cdef readonly int session_id
    cdef readonly int stream_id
    cdef readonly int initial_term_id
    cdef readonly int mtu
    cdef readonly long long term_length
    cdef readonly long long window_length
    cdef readonly long long publisher_limit
    cdef readonly long long sender_position
    cdef readonly long long sender_limit
    cdef readonly long long clean_position
    cdef readonly long long last_send_ns
    cdef readonly long long last_status_ns
    cdef readonly ReceiverTable table
    cdef readonly RetransmitHandler retransmit
    cdef long long naks_at
    cdef readonly bint connected
    cdef public int key
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
    cdef public long long limit_cap
    cdef public long long timestamp_offset
    cdef public long long setup_due_ns
    cdef public long long setup_interval_ns
    cdef public long long heartbeat_interval_ns
    cdef public long long receiver_timeout_ns
    cdef public long long next_python_ns
    cdef AtomicBuffer counters
    cdef AtomicBuffer scratch
    cdef RunBatch batch
    cdef EventBuffer events
    cdef unsigned char *base
    cdef unsigned char *cells
    cdef unsigned char *frame
    cdef long long meta
    cdef int bits
    cdef int max_runs
    cdef long long limit_at
    cdef long long produced_at
    cdef long long sent_at
    cdef long long sender_limit_at
    cdef long long pressure_at
    cdef long long heartbeat_due_ns
    cdef long long padding_position
    cdef long long probe_due_ns
    cdef long long probe_interval_ns
    cdef long long expiry_due_ns
    cdef bint counts_pressure
    cdef long long spoilt_position
    cdef bint has_taken_blocks

    cdef long long term_at(self, long long position) noexcept nogil
    cdef int term_id_at(self, long long position) noexcept nogil
    cdef long long position_of(self, int term_id, long long offset) noexcept nogil
    cdef long long work(self, long long now_ns, bint heartbeats) noexcept nogil
    cdef void set_connected(self, bint connected) noexcept nogil
    cdef void move_limits(self, long long now_ns) noexcept nogil
    cdef void follow_spies(self) noexcept nogil
    cdef long long send_data(self, long long now_ns) noexcept nogil
    cdef void stamp_header(self, int length, int flags, int kind, long long position) noexcept nogil
    cdef void send_heartbeat(self, long long now_ns) noexcept nogil
    cdef void announce(self, long long position, int flags) noexcept nogil
    cdef void set_sender_limit(self, long long limit) noexcept nogil
    cdef bint report(self, int kind, Transport transport, long long now_ns) noexcept nogil
    cdef bint on_status_message(self, Transport transport, long long now_ns) noexcept nogil
    cdef void follow_receiver(self, int row, long long edge, long long source, long long now_ns) noexcept nogil
    cdef void expire_receivers(self, long long now_ns) noexcept nogil
    cdef long long resend_range(self, long long position, long long length) noexcept nogil
    cdef bint on_nak(self, int term_id, long long offset, long long length, long long source, long long now_ns) noexcept nogil
    cdef long long repeat(self, long long position, long long length) noexcept nogil
    cdef void repeat_delayed(self, long long now_ns) noexcept nogil
