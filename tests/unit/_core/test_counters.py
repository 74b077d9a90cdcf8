"""Counters: cells, reader and manager, compiled and as plain Python."""

from __future__ import annotations

import struct

import pytest
from tests.unit._core.uncompiled import load

from mainstem._core.memory import buffer as compiled_buffer
from mainstem._core.memory import counters as compiled_counters

PLAIN = {name: load(f"memory.{name}") for name in ("buffer", "counters")}
COUNT = 4


@pytest.fixture(params=["compiled", "plain"])
def modules(request):
    if request.param == "compiled":
        return compiled_buffer, compiled_counters
    return PLAIN["buffer"], PLAIN["counters"]


@pytest.fixture
def manager(modules):
    memory, counters = modules
    return counters.CountersManager(
        memory.AtomicBuffer(bytearray(512 * COUNT)), memory.AtomicBuffer(bytearray(128 * COUNT)), 1000
    )


@pytest.fixture
def reader(modules, manager):
    return modules[1].CountersReader(manager.metadata, manager.values)


def test_an_allocated_counter_is_laid_out_as_the_reference_does(manager):
    counter_id = manager.allocate(
        12, b"key", "pub-pos: 1", now_ms=5, registration_id=77, owner_id=8, reference_id=-3, value=64
    )
    assert counter_id == 0
    assert manager.values.get_bytes(0, 32) == struct.pack("<qqqq", 64, 77, 8, -3)
    assert manager.metadata.get_bytes(0, 16) == struct.pack("<iiq", 1, 12, 0x7FFFFFFFFFFFFFFF)
    assert manager.metadata.get_bytes(16, 112) == b"key".ljust(112, b"\0")
    assert manager.metadata.get_bytes(128, 14) == struct.pack("<i", 10) + b"pub-pos: 1"


def test_the_reader_sees_every_field(manager, reader):
    first = manager.allocate(4, b"k", "sub-pos", registration_id=9, owner_id=1, reference_id=2, value=-5)
    second = manager.allocate(5, b"", "rcv-pos", registration_id=9)
    assert list(reader) == [first, second]
    assert (reader.state(first), reader.type_id(first), reader.label(first)) == (1, 4, "sub-pos")
    assert reader.key(first) == b"k".ljust(112, b"\0")
    assert (reader.value(first), reader.registration_id(first)) == (-5, 9)
    assert (reader.owner_id(first), reader.reference_id(first)) == (1, 2)
    assert reader.owner_id(second) == -1
    assert reader.find(5, 9) == second
    assert reader.find(5, 8) == reader.find(6, 9) == compiled_counters.NULL_COUNTER_ID


def test_a_freed_counter_is_reused_clean_after_a_cool_down(manager, reader):
    freed = manager.allocate(1, b"key", "one", registration_id=9, value=5)
    kept = manager.allocate(1, b"", "two", registration_id=10)
    manager.free(freed, 100)
    assert reader.state(freed) == -1
    assert reader.key(freed) == bytes(112)
    assert reader.free_for_reuse_ms(freed) == 1100
    assert list(reader) == [kept]
    assert reader.find(1, 9) == -1
    assert manager.allocate(2, b"", "three", now_ms=1099) == 2
    assert manager.allocate(2, b"", "again", now_ms=1100) == freed
    assert (reader.value(freed), reader.registration_id(freed), reader.label(freed)) == (0, 0, "again")


def test_allocation_fails_when_every_counter_is_in_use_or_resting(manager):
    for n in range(COUNT):
        manager.allocate(1, b"", str(n))
    manager.free(2, 0)
    with pytest.raises(BufferError, match="all 4 counters"):
        manager.allocate(1, b"", "more", now_ms=999)
    assert manager.allocate(1, b"", "more", now_ms=1000) == 2


def test_a_counter_is_freed_once(manager):
    with pytest.raises(ValueError, match="not allocated"):
        manager.free(0, 0)
    counter_id = manager.allocate(1, b"", "one")
    manager.free(counter_id, 0)
    with pytest.raises(ValueError, match="not allocated"):
        manager.free(counter_id, 0)


def test_labels_are_truncated_and_can_grow(manager, reader):
    counter_id = manager.allocate(1, b"", "x" * 500)
    assert reader.label(counter_id) == "x" * 380
    reader.set_label(counter_id, "client-heartbeat: 3")
    reader.append_to_label(counter_id, " name=tide")
    assert reader.label(counter_id) == "client-heartbeat: 3 name=tide"


def test_a_damaged_label_length_is_clamped(manager, reader):
    counter_id = manager.allocate(1, b"", "x")
    manager.metadata.put_i32(128, 1 << 30)
    assert len(reader.label_bytes(counter_id)) == 380
    manager.metadata.put_i32(128, -4)
    assert reader.label(counter_id) == ""


def test_a_key_that_is_too_long_and_ids_outside_are_refused(manager, reader):
    with pytest.raises(ValueError, match="113 bytes"):
        manager.allocate(1, bytes(113), "x")
    for counter_id in (-1, COUNT):
        with pytest.raises(IndexError):
            reader.value(counter_id)
        with pytest.raises(IndexError):
            reader.cell(counter_id)


def test_a_cell_reads_and_writes_its_counter(manager, reader):
    manager.allocate(1, b"", "other")
    counter_id = manager.allocate(1, b"", "mine", value=10)
    cell = reader.cell(counter_id)
    assert (cell.counter_id, cell.offset) == (1, 128)
    assert cell.get() == cell.get_acquire() == 10
    assert cell.add(5) == 10
    cell.add_release(-1)
    assert reader.value(counter_id) == 14
    assert cell.compare_and_set(14, 20)
    assert not cell.compare_and_set(14, 30)
    assert cell.propose_max_release(21)
    assert not cell.propose_max_release(21)
    cell.set(1)
    cell.set_release(2)
    assert reader.value(counter_id) == 2
    assert reader.value(0) == 0


def test_use_after_the_buffers_were_closed_raises(manager, reader):
    cell = reader.cell(manager.allocate(1, b"", "x"))
    manager.values.close()
    with pytest.raises(IndexError, match="closed"):
        cell.get()
    with pytest.raises(IndexError, match="closed"):
        reader.find(1, 0)


def test_metadata_must_cover_the_values(modules):
    memory, counters = modules
    with pytest.raises(ValueError, match="does not cover"):
        counters.CountersReader(memory.AtomicBuffer(bytearray(512)), memory.AtomicBuffer(bytearray(256)))
