from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.driver.events cimport EventBuffer
from mainstem._core.driver.loop cimport Cycle
from mainstem._core.driver.receive_path cimport ReceiveEndpoint, ReceivePath
from mainstem._core.driver.table cimport PathTable


cdef class ReceiverCycle(Cycle):
    cdef readonly EventBuffer events
    cdef AtomicBuffer counters
    cdef PathTable path_table
    cdef PathTable endpoint_table
