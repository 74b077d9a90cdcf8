from mainstem._core.buffer cimport AtomicBuffer
from mainstem._core.events cimport EventBuffer
from mainstem._core.loop cimport Cycle
from mainstem._core.receive_path cimport ReceiveEndpoint, ReceivePath
from mainstem._core.table cimport PathTable


cdef class ReceiverCycle(Cycle):
    cdef readonly EventBuffer events
    cdef AtomicBuffer counters
    cdef PathTable path_table
    cdef PathTable endpoint_table
