# Written from receive_path.py by tools/write_core_stubs.py: edit that file, then run the tool.
from mainstem._core.driver.backing cimport Backing
from mainstem._core.driver.datagram cimport Address, Transport
from mainstem._core.driver.delay cimport StaticDelay
from mainstem._core.driver.events cimport EventBuffer
from mainstem._core.driver.events cimport WHOLE_FRAME
from mainstem._core.driver.frame_checks cimport frames_length, sound_setup
from mainstem._core.driver.loss_detector cimport LossDetector
from mainstem._core.driver.loss_detector cimport MAX_GAPS
from mainstem._core.driver.positions cimport PositionSet
from mainstem._core.driver.table cimport PathTable
from mainstem._core.layout cimport *
from mainstem._core.log.term cimport NO_TIMESTAMP, bits_of, check_stream, clean_to, fill_with_padding, first_gap, gap_end, insert_frames, stamp_frames, wrap32
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer


cdef enum:
    MAX_CONNECTIONS_OF_SOCKET = 16


cdef class Silence:
    cdef public long long until_ns


cdef class ReceiveEndpointCore:
    cdef readonly PathTable paths
    cdef readonly PathTable interests
    cdef readonly PathTable silences
    cdef readonly int key
    cdef readonly long long last_packet_ns
    cdef AtomicBuffer counters
    cdef unsigned char *cells
    cdef EventBuffer events
    cdef list references
    cdef AtomicBuffer transport_memory
    cdef void **transports
    cdef int room
    cdef long long unknown_key
    cdef public long long media_timestamp_offset
    cdef public long long channel_timestamp_offset

    cdef int poll(self, long long now_ns) noexcept nogil
    cdef int poll_transport(self, Transport transport, int index, long long now_ns) noexcept nogil
    cdef bint dispatch(self, Transport transport, int index, long long now_ns) noexcept nogil
    cdef bint on_data(self, Transport transport, int index, long long now_ns) noexcept nogil
    cdef bint on_setup(self, Transport transport, int index, long long now_ns) noexcept nogil


cdef class ReceivePath:
    cdef readonly AtomicBuffer log
    cdef readonly PositionSet subscribers
    cdef readonly int session_id
    cdef readonly int stream_id
    cdef readonly int initial_term_id
    cdef readonly int mtu
    cdef readonly long long term_length
    cdef readonly long long join_position
    cdef public int key
    cdef public long long window_length
    cdef public bint force_status
    cdef public bint draining
    cdef public bint revoked
    cdef public bint rejected
    cdef public bint status_events
    cdef public bint reports_loss_at_once
    cdef public Backing backing
    cdef readonly LossDetector detector
    cdef bint is_reliable
    cdef long long naks_at
    cdef long long bytes_lost
    cdef long long loss_due_ns
    cdef public long long status_interval_ns
    cdef public long long connection_timeout_ns
    cdef public long long gap_scan_interval_ns
    cdef public long long next_python_ns
    cdef readonly long long last_packet_ns
    cdef readonly long long rebuild_position
    cdef readonly long long high_water_mark
    cdef readonly long long end_of_stream_position
    cdef readonly long long clean_position
    cdef readonly long long last_status_position
    cdef readonly long long status_messages_sent
    cdef readonly int connections
    cdef AtomicBuffer counters
    cdef AtomicBuffer scratch
    cdef EventBuffer events
    cdef unsigned char *base
    cdef unsigned char *cells
    cdef unsigned char *frame
    cdef long long meta
    cdef int bits
    cdef int endpoint_key
    cdef long long media_timestamp_offset
    cdef long long channel_timestamp_offset
    cdef long long connect_due_ns
    cdef long long high_at
    cdef long long rebuilt_at
    cdef long long receiver_id
    cdef long long group_tag
    cdef bint has_group_tag
    cdef long long scheduled_position
    cdef long long scheduled_window
    cdef long long status_due_ns
    cdef long long noticed_gap
    cdef long long noticed_mark
    cdef bint filled
    cdef long long gap_scan_due_ns
    cdef list references
    cdef AtomicBuffer connection_memory
    cdef long long connection_room
    cdef void **conn_transport
    cdef void **conn_control
    cdef void **conn_source
    cdef long long *conn_index
    cdef long long *conn_any_source
    cdef long long *conn_ns
    cdef long long *conn_end

    cdef bint alive(self, int row, long long now_ns) noexcept nogil
    cdef long long term_at(self, long long position) noexcept nogil
    cdef int term_id_at(self, long long position) noexcept nogil
    cdef long long scan_limit(self, long long position) noexcept nogil
    cdef int connection_of(self, Transport transport, int index) noexcept nogil
    cdef bint on_data(self, Transport transport, int index, long long now_ns) noexcept nogil
    cdef void raise_mark(self, long long position) noexcept nogil
    cdef void on_heartbeat(self, long long position, int flags, int row, long long now_ns) noexcept nogil
    cdef void on_end(self, long long position, bint revoked, int row, long long now_ns) noexcept nogil
    cdef int work(self, long long now_ns, bint reminders) noexcept nogil
    cdef long long next_due_ns(self) noexcept nogil
    cdef void rebuild(self, long long now_ns) noexcept nogil
    cdef void find_gaps(self, long long now_ns) noexcept nogil
    cdef void repair(self, long long now_ns) noexcept nogil
    cdef bint schedule_status(self) noexcept nogil
    cdef void send_status(self, long long now_ns) noexcept nogil
    cdef int put_to_all(self, const unsigned char *base, int length, long long now_ns) noexcept nogil
    cdef int put_nak(self, long long position, long long length, long long now_ns) noexcept nogil
    cdef bint fill(self, long long position, long long length) noexcept nogil
