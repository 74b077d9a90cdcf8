from __future__ import annotations

import dataclasses

import pytest

from mainstem._core.memory.buffer import AtomicBuffer
from mainstem.aeron.logbuffer import LogBuffers, LogParameters, LogType
from mainstem.errors import ConfigurationError

PARAMETERS = LogParameters(
    correlation_id=77,
    session_id=-5,
    stream_id=1001,
    initial_term_id=(1 << 31) - 1,
    term_length=65536,
    mtu=1408,
    log_type=LogType.EXCLUSIVE_PUBLICATION,
    publication_window_length=32768,
    receiver_window_length=131072,
    socket_sndbuf_length=1,
    os_default_sndbuf_length=2,
    os_max_sndbuf_length=3,
    socket_rcvbuf_length=4,
    os_default_rcvbuf_length=5,
    os_max_rcvbuf_length=6,
    max_resend=16,
    entity_tag=9,
    response_correlation_id=-2,
    linger_ns=5_000_000_000,
    untethered_window_limit_timeout_ns=1 << 40,
    untethered_linger_timeout_ns=(1 << 41) + 1,
    untethered_resting_timeout_ns=1 << 42,
    group=True,
    rejoin=True,
    signal_eos=True,
    tether=True,
)


def new_log(parameters: LogParameters = PARAMETERS) -> LogBuffers:
    return LogBuffers.create(AtomicBuffer(bytearray(parameters.log_length)), parameters)


def test_metadata_is_where_the_reference_expects_it():
    log = new_log()
    memory, meta = log.buffer, 3 * 65536
    assert log.metadata_offset == meta
    assert memory.get_i64(meta + 128) == (1 << 63) - 1
    assert memory.get_i64(meta + 256) == 77
    assert [memory.get_i32(meta + at) for at in range(264, 320, 4)] == [
        (1 << 31) - 1, 32, 1408, 65536, 4096, 32768, 131072, 1, 2, 3, 4, 5, 6, 16,
    ]  # fmt: skip
    header = memory.get_bytes(meta + 320, 32)
    assert header.hex() == "0000000000c0010000000000fbffffffe9030000ffffff7f" + "00" * 8
    assert [memory.get_i64(meta + at) for at in (448, 456, 464, 472, 480, 500)] == [
        9, -2, 5_000_000_000, 1 << 40, 1 << 42, (1 << 41) + 1,
    ]  # fmt: skip
    assert memory.get_bytes(meta + 488, 10) == bytes([1, 0, 1, 0, 0, 1, 0, 1, 0, 1])


def test_a_fresh_log_starts_at_its_initial_term():
    log = new_log()
    first = (1 << 31) - 1
    assert [log.raw_tail(i) for i in range(3)] == [first << 32, (first - 2) << 32, (first - 1) << 32]
    assert log.active_term_count == 0
    assert log.producer_position == 0 == PARAMETERS.start_position


def test_a_log_may_start_in_a_later_term():
    parameters = dataclasses.replace(PARAMETERS, initial_term_id=10, start_term_id=14, start_term_offset=96)
    log = new_log(parameters)
    assert log.active_term_count == 4
    assert [log.raw_tail(i) for i in (1, 2, 0)] == [(14 << 32) | 96, 12 << 32, 13 << 32]
    assert log.producer_position == 4 * 65536 + 96 == parameters.start_position


def test_a_mapped_log_reads_back_what_was_written():
    log = new_log()
    mapped = LogBuffers(log.buffer)
    assert mapped.read_parameters() == PARAMETERS
    assert (mapped.session_id, mapped.stream_id, mapped.correlation_id) == (-5, 1001, 77)
    assert (mapped.max_payload_length, mapped.max_message_length, mapped.max_position) == (1376, 8192, 1 << 47)


def test_changes_are_seen_through_every_mapping():
    log = new_log()
    other = LogBuffers(log.buffer)
    log.is_connected, log.active_transport_count, log.end_of_stream_position = True, 2, 4096
    log.is_publication_revoked = True
    assert (other.is_connected, other.active_transport_count, other.end_of_stream_position) == (True, 2, 4096)
    assert other.is_publication_revoked
    log.is_connected = False
    assert not other.is_connected


def test_refuses_memory_that_is_not_a_log():
    with pytest.raises(ConfigurationError, match="at least"):
        LogBuffers(AtomicBuffer(bytearray(4096)))
    with pytest.raises(ConfigurationError, match="term length 0"):
        LogBuffers(AtomicBuffer(bytearray(3 * 65536 + 4096)))
    memory = AtomicBuffer(bytearray(3 * 65536 + 4096))
    memory.put_i32(3 * 65536 + 276, 1 << 20)
    with pytest.raises(ConfigurationError, match="cannot hold three terms"):
        LogBuffers(memory)
    with pytest.raises(ConfigurationError, match="needs"):
        LogBuffers.create(AtomicBuffer(bytearray(4096)), PARAMETERS)
