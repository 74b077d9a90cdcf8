# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Call the generated C of `_core` from threads without the interpreter's lock, for ThreadSanitizer.

A thread that takes the lock synchronizes with the thread that released it, which would hide races. So each loop below runs
without the lock from start to end, in the product's own functions.
"""

from mainstem._core.layout cimport *
from mainstem._core.log.append cimport Appender
from mainstem._core.log.batch cimport Messages
from mainstem._core.log.term cimport RunBatch, clean_to, scan_runs
from mainstem._core.memory.atomics cimport *
from mainstem._core.memory.buffer cimport AtomicBuffer
from mainstem._core.memory.bus_guard cimport CUT_OFFSET, PLACE_LENGTH, cover, is_free, publish as publish_range, withdraw
from mainstem._core.memory.ring_buffer cimport ManyToOneRingBuffer

cdef extern from *:
    """
    /* These methods are declared to need the lock because their callers hold it, but they use no Python objects. */
    #define claim_of(a, framed, length) ((a)->__pyx_vtab->claim((a), (framed), (length)))
    #define put_message_of(a, begin, source, length) ((a)->__pyx_vtab->put_message((a), (begin), (source), (length), 0))
    #define framed_of(a, length) ((a)->__pyx_vtab->framed((a), (length)))
    #define next_offset_of(a, length) ((a)->__pyx_vtab->next_offset((a), (length)))
    #define claim_length_of(a, m, k, left) ((a)->__pyx_vtab->claim_length((a), (m), (k), (left)))
    #define take_of(a, framed) ((a)->__pyx_vtab->take((a), (framed)))
    #define fill_of(a, m, k, claimed) ((a)->__pyx_vtab->fill((a), (m), (k), (claimed)))
    #define meet_term_end_of(a) ((a)->__pyx_vtab->meet_term_end((a)))
    #define load_of(m, first) ((m)->__pyx_vtab->load((m), (first)))
    """
    long long claim_of(Appender a, long long framed, long long length) noexcept nogil
    void put_message_of(Appender a, long long begin, const unsigned char *source, long long length) noexcept nogil
    long long framed_of(Appender a, long long length) noexcept nogil
    long long next_offset_of(Appender a, long long length) noexcept nogil
    long long claim_length_of(Appender a, Messages m, long long k, long long left) noexcept nogil
    long long take_of(Appender a, long long framed) noexcept nogil
    long long fill_of(Appender a, Messages m, long long k, long long claimed) noexcept nogil
    long long meet_term_end_of(Appender a) noexcept nogil
    void load_of(Messages m, long long first) noexcept


def publish(Appender appender, int count, int number):
    """Append `count` messages of all lengths up to three frames, each filled with the publisher's number."""
    cdef unsigned char source[4096]
    cdef int done = 0
    cdef long long length, begin
    for length in range(4096):
        source[length] = <unsigned char> number
    with nogil:
        while done < count:
            length = (done * 37) % appender.max_message_length
            if length > 4000:
                length = 4000
            begin = claim_of(appender, framed_of(appender, length), length)
            if begin >= 0:
                put_message_of(appender, begin, source, length)
                done += 1


def publish_batches(Appender appender, Messages messages, int count):
    """Append a list of messages repeatedly, in runs of frames."""
    cdef int done = 0
    cdef long long k, total, offset, before
    load_of(messages, 0)
    with nogil:
        while done < count:
            k = 0
            while k < messages.loaded:
                offset = next_offset_of(appender, messages.length[k])
                if offset < 0:
                    continue
                total = claim_length_of(appender, messages, k, appender.term_length - offset)
                offset = take_of(appender, total)
                before = k
                k = fill_of(appender, messages, k, total)
                done += <int> (k - before)
                if offset + total > appender.term_length:
                    meet_term_end_of(appender)


def scan(AtomicBuffer log, AtomicBuffer counters, int limit_id, int stop_id, long long term_length, RunBatch batch):
    """Do the driver's work: find the frames, read them, zero the log behind them, and move the publishers' limit.

    Return the number of payload bytes that differ from the first byte of their frame, and the number of frames.
    """
    cdef unsigned char *base = log.base
    cdef unsigned char *values = counters.base
    cdef long long position = 0, clean = 0, offset, term, advanced, at, end, i
    cdef long long wrong = 0, frames = 0
    cdef int n, length
    with nogil:
        while True:
            offset = position & (term_length - 1)
            term = ((position // term_length) % PARTITION_COUNT) * term_length
            n = scan_runs(batch, base, term, offset, term_length, term_length, 1408, 64, 64)
            if n == 0:
                if ld64(values, stop_id * COUNTER_VALUE_LENGTH) == position:
                    break
                continue
            advanced = batch.advance[n - 1]
            at = term + offset
            end = at + advanced
            while at < end:
                length = ld32(base, at)
                if get16(base, at + FRAME_TYPE_OFFSET) == TYPE_DATA:
                    frames += 1
                    for i in range(DATA_HEADER_LENGTH, length):
                        if get8(base, at + i) != get8(base, at + DATA_HEADER_LENGTH):
                            wrong += 1
                at += align_frame(length)
            position += advanced
            while clean < position:
                clean = clean_to(base, term_length, clean, position, True)
            st64(values, limit_id * COUNTER_VALUE_LENGTH, position + term_length // 2)
    return wrong, frames


def command(ManyToOneRingBuffer ring, int count, int number):
    """Write `count` records, as ``try_claim`` and ``commit`` do around the claim."""
    cdef int done = 0, i
    cdef long long length, index
    with nogil:
        while done < count:
            length = 8 + (done * 13) % 100
            index = ring.claim_record(length)
            if index < 0:
                continue
            mark32(ring.base, index, <int> -(length + RECORD_HEADER_LENGTH))
            fence_release()
            put32(ring.base, index + RECORD_TYPE_OFFSET, number)
            for i in range(length):
                put8(ring.base, index + RECORD_HEADER_LENGTH + i, <unsigned char> number)
            st32(ring.base, index, <int> (length + RECORD_HEADER_LENGTH))
            done += 1


def reuse_place(AtomicBuffer table, int count):
    """Let the first place of a table guard two ranges in turn, neither of which contains 0x3000."""
    cdef int done
    with nogil:
        for done in range(count):
            if is_free(table.base, 0):
                if done & 2:
                    publish_range(table.base, 0, 0x1000, 0x2000)
                else:
                    publish_range(table.base, 0, 0x5000, 0x9000)
            else:
                withdraw(table.base, 0)


def look_up(AtomicBuffer table, int count):
    """Do what the signal handler does for an access to 0x3000. Return the number of wrong ends."""
    cdef int done, wrong = 0
    with nogil:
        for done in range(count):
            if cover(table.base, 2, 0x3000) != 0x4000:
                wrong += 1
    return wrong


def guard_own(AtomicBuffer table):
    """Let the second place guard the range that contains 0x3000. Return the offset of the first place's flag."""
    publish_range(table.base, PLACE_LENGTH, 0x3000, 0x4000)
    return CUT_OFFSET


def race(AtomicBuffer memory, bint ordered):
    """Run a planted race: two threads increment a word, atomically if `ordered`, else with plain reads and writes."""
    cdef int i
    with nogil:
        # Start both at once: the interpreter's lock would order a thread after one that has already ended.
        fadd64(memory.base, 8, 1)
        while ld64(memory.base, 8) < 2:
            pass
        for i in range(1000):
            if ordered:
                fadd64(memory.base, 0, 1)
            else:
                put64(memory.base, 0, get64(memory.base, 0) + 1)
