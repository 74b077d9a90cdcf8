"""Log buffers: whatever another process left in one, subscribers, publishers and operator tools stay within its bounds.

The input changes a log with messages of one and of several frames (patching.py). Offsets with the highest bit set are in the
metadata.
"""

from __future__ import annotations

from contextlib import suppress

from patching import patch, patched
from scratch import folder

from mainstem._core import layout
from mainstem._core.log.append import ConcurrentAppender, ExclusiveAppender
from mainstem._core.log.read import ImageReader
from mainstem._core.log.term import RunBatch, gaps, producer_position, unblock
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.logbuffer.log_buffers import LogBuffers, LogParameters, LogType
from mainstem.aeron.tools.log_walk import LogFile
from mainstem.errors import ConfigurationError, CorruptLogError

TERM = layout.TERM_MIN_LENGTH
LIMIT, POSITION = 0, 1
PARAMETERS = LogParameters(
    log_type=LogType.CONCURRENT_PUBLICATION,
    correlation_id=7,
    session_id=7,
    stream_id=1001,
    initial_term_id=-2,
    term_length=TERM,
    mtu=1408,
)


def _log() -> bytes:
    memory = AtomicBuffer(bytearray(PARAMETERS.log_length))
    log = LogBuffers.create(memory, PARAMETERS)
    log.is_connected = True
    counters = AtomicBuffer(bytearray(512))
    counters.put_i64(LIMIT * layout.COUNTER_VALUE_LENGTH, TERM)
    appender = ConcurrentAppender(memory, counters, LIMIT)
    for size in (0, 5, 1376, 4000, 64):
        appender.offer(bytes(size))
    return memory.get_bytes(0, memory.capacity)


LOG = _log()
META = 3 * TERM
SEEDS = [
    patch(offset, value)
    for offset in (0, 4, 6, 8, 20, 32, 64)
    for value in (b"\xff\xff\xff\xff", b"\1\0\0\0", b"\0" * 8)
]
SEEDS += [
    patch(offset, value, from_end=True)
    for offset in (*range(0, 32, 8), layout.LOG_TERM_LENGTH_OFFSET, layout.LOG_MTU_LENGTH_OFFSET)
    for value in (b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\0\0\1\0")
]
_PATH = str(folder() / "7.logbuffer")


def target(data: bytes) -> None:
    """Process one input."""
    changed = patched(LOG, data, at_end=META)
    walk(changed)
    memory = AtomicBuffer(bytearray(changed))
    try:
        log = LogBuffers(memory)
    except ConfigurationError:
        return
    counters = AtomicBuffer(bytearray(512))
    counters.put_i64(LIMIT * layout.COUNTER_VALUE_LENGTH, 3 * TERM)
    # Subscriber, publisher and driver stop at impossible values, with an error or a negative status.
    with suppress(ValueError, CorruptLogError):
        image = ImageReader(memory, counters, POSITION)
        for _ in range(8):
            image.poll(len, 4)
            image.poll_bytes(4)
    for kind in (ConcurrentAppender, ExclusiveAppender):
        with suppress(ValueError):
            appender = kind(memory, counters, LIMIT)
            for size in (10, 3000, 8000):
                if size <= appender.max_message_length:
                    appender.offer(bytes(size))
            appender.offer_many([b"one", bytes(600)])
            assert appender.position is not None
    batch = RunBatch()
    for term in range(layout.PARTITION_COUNT):
        batch.scan(memory, term * log.term_length, 0, log.term_length, log.term_length, 1408)
        gaps(memory, term * log.term_length, 0, min(TERM, log.term_length))
    producer_position(memory, log.term_length, log.initial_term_id)
    for position in (0, 64, log.term_length):
        with suppress(ValueError):
            unblock(memory, log.term_length, log.initial_term_id, position)


def walk(content: bytes) -> None:
    """Walk the file like ``mainstem log``."""
    with open(_PATH, "wb") as file:
        file.write(content)
    try:
        with LogFile(_PATH) as log:
            for partition in log.partitions_in_order():
                for frame in log.frames(partition, payload_limit=16):
                    assert frame.flag_letters is not None
                    assert frame.type_name
    except ConfigurationError:
        return
