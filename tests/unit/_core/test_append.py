from __future__ import annotations

import array
from typing import Any

import pytest
from tests.unit._core.logs import COMPILED, LAST, UNCOMPILED, Core, Log, T

from mainstem._core import layout
from mainstem.errors import ConfigurationError, LocalProtocolError

NOT_CONNECTED, BACK_PRESSURED, ADMIN_ACTION = -1, -2, -3
CLOSED, MAX_POSITION_EXCEEDED = -4, -5
PAD = (0xC0, 0)


@pytest.fixture(params=[COMPILED, UNCOMPILED], ids=["compiled", "uncompiled"])
def core(request: pytest.FixtureRequest) -> Core:
    return request.param


@pytest.fixture(params=["concurrent", "exclusive"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def opened(core: Core, kind: str, **more: Any) -> tuple[Log, Any]:
    log = Log(core, **more)
    return log, getattr(log, kind)()


def fill_to_end(publication: Any, leave: int = 0) -> None:
    while (left := T - publication.position % T) > leave:
        publication.append_padding(min(left - leave, 8192) - 32)
        if publication.position % T == 0:
            break


def test_a_message_is_one_frame_with_every_field_of_the_header(core: Core, kind: str):
    log, publication = opened(core, kind)
    assert publication.offer(b"first") == 64
    assert publication.offer(bytearray(b"second!"), reserved_value=-2) == 128
    assert log.memory.get_bytes(64, 39).hex() == (
        "2700000000c0010040000000f9ffffffe9030000feffff7ffeffffffffffffff" + b"second!".hex()
    )
    assert log.frames() == [(0, 37, 0xC0, 1, b"first"), (64, 39, 0xC0, 1, b"second!")]
    assert publication.position == 128


@pytest.mark.parametrize("face", ["offer", "batch"])
def test_messages_of_every_length_are_read_exactly(core: Core, kind: str, face: str):
    log, publication = opened(core, kind)
    around = bytes(range(1, 256))
    for length in range(140):
        message = around[50 : 50 + length]
        if face == "offer":
            end = publication.offer(memoryview(around)[50 : 50 + length])
        else:
            _, end = publication.offer_columns(around, array.array("i", [50, 50 + length]))
        *_, (offset, _, _, _, payload) = log.frames()
        assert payload == message
        assert not any(log.memory.get_bytes(offset + 32 + length, end - offset - 32 - length))


def test_accepts_only_contiguous_buffers(core: Core, kind: str):
    log, publication = opened(core, kind)
    publication.offer(memoryview(b"..view..")[2:6])
    publication.offer(array.array("H", [1, 2]))
    publication.offer(b"")
    with pytest.raises(TypeError):
        publication.offer("text")
    with pytest.raises(BufferError if core is COMPILED else (BufferError, TypeError)):
        publication.offer(memoryview(b"abcd")[::2])
    assert [frame[4] for frame in log.frames()] == [b"view", b"\x01\0\x02\0", b""]


def test_a_long_message_is_split_into_whole_frames_and_a_rest_by_one_claim(core: Core, kind: str):
    log, publication = opened(core, kind, mtu=96)
    message = bytes(range(150))
    assert publication.offer(message, reserved_value=5) == 96 + 96 + 64
    assert [frame[:3] for frame in log.frames()] == [(0, 96, 0x80), (96, 96, 0x00), (192, 54, 0x40)]
    assert b"".join(frame[4] for frame in log.frames()) == message
    assert [log.memory.get_i64(at + 24) for at in (0, 96, 192)] == [5, 5, 5]
    assert publication.offer(bytes(128)) == 256 + 192
    assert [frame[:3] for frame in log.frames(offset=256)] == [(256, 96, 0x80), (352, 96, 0x40)]


def test_parts_become_one_message(core: Core, kind: str):
    log, publication = opened(core, kind)
    assert publication.offer_parts([b"one, ", memoryview(b"two, "), bytearray(b"three")]) == 64
    assert log.frames()[0][4] == b"one, two, three"


def test_refuses_a_message_longer_than_an_eighth_of_a_term(core: Core, kind: str):
    log, publication = opened(core, kind)
    assert publication.max_message_length == 8192
    with pytest.raises(ConfigurationError, match="8193 bytes is longer than the 8192"):
        publication.offer(bytes(8193))
    with pytest.raises(ConfigurationError, match="longer"):
        publication.offer_many([b"a", bytes(8193)])
    assert log.frames() == []
    assert publication.offer(bytes(8192)) > 0


def test_answers_back_pressured_at_the_limit_and_not_connected_without_a_subscriber(core: Core, kind: str):
    log, publication = opened(core, kind)
    log.limit = 64
    assert publication.available_window == 64
    assert publication.offer(bytes(100)) == 160
    assert publication.offer(b"x") == BACK_PRESSURED
    log.buffers.is_connected = False
    assert publication.offer(b"x") == NOT_CONNECTED
    assert not publication.is_connected
    assert publication.offer_many([b"x"]) == (0, NOT_CONNECTED)
    assert (publication.position, publication.position_limit, publication.available_window) == (160, 64, -96)


def test_answers_closed_after_detaching(core: Core, kind: str):
    _log, publication = opened(core, kind)
    publication._detach()
    assert publication.offer(b"x") == CLOSED
    assert publication.offer_many([b"x"]) == (0, CLOSED)
    assert publication.try_claim(1, core.append.BufferClaim()) == CLOSED
    assert publication.append_padding(32) == CLOSED
    assert (publication.position, publication.position_limit, publication.available_window) == (CLOSED,) * 3
    assert not publication.is_connected


def test_the_end_of_a_term_is_padded_and_the_next_partition_becomes_active(core: Core, kind: str):
    log, publication = opened(core, kind)
    log.limit = 3 * T
    fill_to_end(publication, leave=320)
    assert publication.offer(bytes(500)) == ADMIN_ACTION
    assert log.frames(offset=T - 320) == [(T - 320, 320, *PAD, b"")]
    assert log.memory.get_i32(T - 320 + 20) == LAST - 1
    assert log.buffers.active_term_count == 1
    assert log.buffers.raw_tail(1) == LAST << 32
    assert publication.position == T
    assert publication.offer(b"next") == T + 64
    assert log.frames(1)[0] == (0, 36, 0xC0, 1, b"next")
    assert log.memory.get_i32(T + 20) == LAST


def test_a_term_filled_exactly_rotates_without_padding(core: Core, kind: str):
    log, publication = opened(core, kind)
    fill_to_end(publication)
    assert publication.position == T
    assert log.buffers.active_term_count == 0
    assert publication.offer(b"x") == ADMIN_ACTION
    assert log.buffers.active_term_count == 1
    assert publication.offer(b"x") == T + 64


def test_term_ids_wrap_around(core: Core, kind: str):
    log, publication = opened(core, kind)
    ids = []
    for count in range(5):
        assert publication.offer(b"x") == count * T + 64
        ids.append(log.memory.get_i32(count % 3 * T + 20))
        fill_to_end(publication)
        log.clean((count + 1) * T, count * T)
        assert publication.offer(b"x") == ADMIN_ACTION
    assert ids == [LAST - 1, LAST, -LAST - 1, -LAST, -LAST + 1]
    assert publication.position == 5 * T


def test_ends_at_the_last_position_of_the_last_term(core: Core, kind: str):
    last = Log(core, initial=3, start_term_id=3 + LAST - (1 << 32), start_term_offset=T - 128)
    publication = getattr(last, kind)()
    end = T << 31
    last.limit = 1 << 62
    assert publication.max_possible_position == end
    assert publication.position == end - 128
    assert publication.offer(b"x") == end - 64
    assert publication.offer(bytes(64)) == MAX_POSITION_EXCEEDED
    assert last.buffers.active_term_count == LAST
    assert publication.offer(b"x") == MAX_POSITION_EXCEEDED
    assert publication.offer_many([b"x"] * 3) == (0, MAX_POSITION_EXCEEDED)
    last.limit = end - 64
    assert publication.offer(b"x") == MAX_POSITION_EXCEEDED


def test_a_batch_at_the_end_of_the_stream_takes_what_fits(core: Core, kind: str):
    last = Log(core, initial=3, start_term_id=3 + LAST - (1 << 32), start_term_offset=T - 128 - 32)
    last.limit = 1 << 62
    publication = getattr(last, kind)()
    assert publication.offer_many([b"x"] * 5) == (2, (T << 31) - 32)
    assert publication.offer_many([b"x"] * 3) == (0, MAX_POSITION_EXCEEDED)


def test_a_stale_tail_claims_in_the_currently_active_term(core: Core):
    log = Log(core, initial=LAST - 1)
    late, other = log.concurrent(), log.concurrent()
    # Stage what another publisher does between the late one's check and its claim: move the tail three terms ahead.
    for _ in range(3):
        fill_to_end(other)
        assert other.offer(b"x") == ADMIN_ACTION
    log.clean(3 * T, 0)
    log.memory.put_i32_release(log.buffers.metadata_offset + layout.LOG_ACTIVE_TERM_COUNT_OFFSET, 0)
    assert late.offer(b"x") == ADMIN_ACTION, "the active term count and the tail's term id differ"
    log.memory.put_i32_release(log.buffers.metadata_offset + layout.LOG_ACTIVE_TERM_COUNT_OFFSET, 3)
    assert late.offer(b"x") == 3 * T + 64
    assert log.memory.get_i32(20) == -LAST


def test_every_publisher_past_the_end_gets_admin_action_and_only_the_first_pads(core: Core):
    log = Log(core)
    first, second = log.concurrent(), log.concurrent()
    fill_to_end(first, leave=64)
    tail = log.buffers.metadata_offset
    # The second publisher has claimed, but has not yet noticed that its claim runs past the end.
    assert log.memory.add_i64(tail, 128) & 0xFFFFFFFF == T - 64
    assert first.offer(b"x") == ADMIN_ACTION
    assert log.frames(offset=T - 64) == [], "only who owns the rest may write there"
    assert log.buffers.active_term_count == 1
    assert second.offer(b"y") == T + 64
    assert log.buffers.raw_tail(1) == (LAST << 32) + 64
    assert first.position == second.position == T + 64


def test_a_rotation_that_another_publisher_finished_changes_nothing(core: Core):
    log = Log(core)
    publication = log.concurrent()
    fill_to_end(publication)
    meta = log.buffers.metadata_offset
    # The other publisher has set the next tail and claimed there, but has not yet advanced the active term count.
    log.memory.put_i64(meta + 8, (LAST << 32) + 96)
    assert publication.offer(b"x") == ADMIN_ACTION
    assert log.buffers.raw_tail(1) == (LAST << 32) + 96
    assert log.buffers.active_term_count == 1
    assert publication.offer(b"x") == T + 96 + 64


def test_a_log_may_be_joined_in_the_middle(core: Core, kind: str):
    log, publication = opened(core, kind)
    publication.offer(b"x")
    publication._detach()
    assert getattr(log, kind)().offer(b"y") == 128


def test_readers_see_a_claim_only_after_its_commit(core: Core, kind: str):
    log, publication = opened(core, kind)
    claim = core.append.BufferClaim()
    assert publication.try_claim(5, claim) == 64 == claim.position
    assert publication.offer(b"behind") == 128
    assert log.frames() == []
    assert log.memory.get_i32(0) == -37
    claim.view[:] = b"claim"
    claim.reserved_value = 77
    claim.commit()
    assert log.frames() == [(0, 37, 0xC0, 1, b"claim"), (64, 38, 0xC0, 1, b"behind")]
    assert log.memory.get_i64(24) == 77
    assert not claim.is_open
    for use in (lambda: claim.view, claim.commit, claim.abort, lambda: claim.reserved_value):
        with pytest.raises(LocalProtocolError, match="not open"):
            use()


def test_an_aborted_claim_becomes_padding(core: Core, kind: str):
    log, publication = opened(core, kind)
    claim = core.append.BufferClaim()
    publication.try_claim(5, claim)
    claim.abort()
    publication.try_claim(6, claim)
    with pytest.raises(KeyError), claim:
        raise KeyError
    publication.try_claim(1, claim)
    with claim:
        claim.view[0] = 65
    assert [frame[1:] for frame in log.frames()] == [(37, *PAD, b""), (38, *PAD, b""), (33, 0xC0, 1, b"A")]


def test_refuses_a_claim_that_one_frame_cannot_hold_or_that_is_still_open(core: Core, kind: str):
    _log, publication = opened(core, kind)
    claim = core.append.BufferClaim()
    for length in (-1, 1377):
        with pytest.raises(ConfigurationError, match="1376"):
            publication.try_claim(length, claim)
    publication.try_claim(1376, claim)
    with pytest.raises(LocalProtocolError, match="still open"):
        publication.try_claim(1, claim)


def test_a_supplier_gives_the_reserved_value_of_each_frame(core: Core, kind: str):
    log, publication = opened(core, kind, mtu=96)
    seen = []

    def supplier(frame: memoryview) -> int:
        seen.append(bytes(frame[32:]))
        return len(seen)

    assert publication.offer(bytes(100), reserved_value=supplier) == 96 + 96
    assert seen == [bytes(64), bytes(36)]
    assert [log.memory.get_i64(at + 24) for at in (0, 96)] == [1, 2]
    assert [frame[2] for frame in log.frames()] == [0x80, 0x40]


def test_a_supplier_that_raises_leaves_padding(core: Core, kind: str):
    log, publication = opened(core, kind, mtu=96)

    def supplier(frame: memoryview) -> int:
        raise KeyError

    with pytest.raises(KeyError):
        publication.offer(bytes(100), reserved_value=supplier)
    publication.offer(b"x")
    assert [frame[:4] for frame in log.frames()] == [(0, 192, *PAD), (192, 33, 0xC0, 1)]


def test_an_invalid_reserved_value_claims_nothing():
    log = Log()
    publication = log.concurrent()
    with pytest.raises(TypeError):
        publication.offer(b"x", reserved_value="seven")
    with pytest.raises(OverflowError):
        publication.offer(b"x", reserved_value=1 << 63)
    assert publication.position == 0


def test_a_batch_is_one_run_of_frames(core: Core, kind: str):
    log, publication = opened(core, kind, mtu=96)
    messages = [b"one", bytearray(b"two"), bytes(range(100)), b"", memoryview(b"three")]
    assert publication.offer_many(messages) == (5, 64 + 64 + 192 + 32 + 64)
    found = log.frames()
    assert [frame[4] for frame in found] == [b"one", b"two", bytes(range(64)), bytes(range(64, 100)), b"", b"three"]
    assert [frame[2] for frame in found] == [0xC0, 0xC0, 0x80, 0x40, 0xC0, 0xC0]
    assert publication.offer_many(tuple(messages)) == (5, 2 * 416)
    assert publication.offer_many([]) == (0, 832)


def test_a_batch_stops_at_the_limit_after_whole_messages(core: Core, kind: str):
    log, publication = opened(core, kind)
    log.limit = 150
    assert publication.offer_many([b"x"] * 10) == (3, 192)
    assert publication.offer_many([b"x"] * 7) == (0, BACK_PRESSURED)
    log.limit = 193
    assert publication.offer_many([b"x"] * 7) == (1, 256)


def test_a_batch_continues_in_the_next_term(core: Core, kind: str):
    log, publication = opened(core, kind)
    log.limit = 2 * T + 640
    messages = [b"%05d" % i for i in range(3000)]
    messages[1023] = bytes(100)
    taken, position = publication.offer_many(messages)
    assert position == 2 * T + 640
    assert taken == 1023 + 1024 - 1 - 1 + 10
    frames = log.frames(0) + log.frames(1) + log.frames(2)
    assert [frame[4] for frame in frames if frame[3]] == messages[:taken]
    assert log.frames(0)[-1] == (T - 64, 64, *PAD, b"")
    assert log.buffers.active_term_count == 2
    assert publication.offer_many(messages[taken:]) == (0, BACK_PRESSURED)


@pytest.mark.parametrize("wide", [False, True])
def test_arrow_columns_are_appended_row_by_row(core: Core, kind: str, wide: bool):
    log, publication = opened(core, kind)
    data, offsets = b"onetwothree", array.array("q" if wide else "i", [0, 3, 6, 6, 11])
    assert publication.offer_columns(data, offsets, wide=wide) == (4, 64 * 3 + 32)
    assert publication.offer_columns(data, offsets, first=1, count=1, wide=wide) == (1, 64 * 4 + 32)
    assert [frame[4] for frame in log.frames()] == [b"one", b"two", b"", b"three", b"two"]
    assert publication.offer_columns(b"", array.array("i", [0]), count=0) == (0, 64 * 4 + 32)


@pytest.mark.parametrize(
    ("offsets", "first", "count"),
    [([0, 3, 2], 0, 2), ([0, 3, 12], 0, 2), ([-1, 3], 0, 1), ([0, 3], 0, 2), ([0, 3], -1, 1), ([0, 3], 2, 1)],
)
def test_refuses_arrow_offsets_that_leave_the_data(core: Core, offsets: list[int], first: int, count: int):
    log, publication = opened(core, "concurrent")
    with pytest.raises(ConfigurationError):
        publication.offer_columns(b"onetwothree", array.array("i", offsets), first=first, count=count)
    assert log.frames() == []


def test_a_batch_of_no_rows_reads_no_offset(core: Core, kind: str):
    log, publication = opened(core, kind)
    for first in (0, 10**6, 10**12):
        assert publication.offer_columns(b"", array.array("i"), first=first, count=0) == (0, 0)
    assert log.frames() == []


def test_rejects_invalid_wide_offsets(core: Core):
    log, publication = opened(core, "concurrent")
    last = (1 << 63) - 1
    for offsets in ([0, last, -last, 3], [0, last, 3], [0, 1, -last - 1], [5, last]):
        with pytest.raises(ValueError, match="bytes of data"):
            publication.offer_columns(b"onetwothree", array.array("q", offsets), wide=True)
    assert log.frames() == []


def test_a_block_of_frames_is_appended_as_it_is(core: Core):
    source, target = Log(core), Log(core)
    publication = source.exclusive()
    publication.offer_many([b"one", b"two", b"three"])
    block = source.memory.get_bytes(0, 192)
    copy = target.exclusive()
    assert copy.offer_block(block) == 192
    assert target.frames() == source.frames()
    assert copy.position == 192 == target.buffers.producer_position
    with pytest.raises(ValueError, match="first frame"):
        copy.offer_block(block)
    for wrong in (b"", block[:40], block[:100]):
        with pytest.raises(ValueError, match="whole number of frames"):
            copy.offer_block(wrong)
    with pytest.raises(ValueError, match="length 0"):
        copy.offer_block(bytes(64))
    publication.offer(b"four")
    target.limit = 0
    assert copy.offer_block(source.memory.get_bytes(192, 64)) == BACK_PRESSURED
    copy._detach()
    assert copy.offer_block(block) == CLOSED


def test_a_block_must_fit_into_the_term_and_a_full_term_rotates_first(core: Core):
    log = Log(core)
    publication = log.exclusive()
    fill_to_end(publication, leave=64)
    other = Log(core)
    twin = other.exclusive()
    fill_to_end(twin, leave=64)
    twin.offer(b"1")
    twin.offer(b"2")
    twin.offer(b"2")
    block = other.memory.get_bytes(T - 64, 64)
    with pytest.raises(ValueError, match="runs over"):
        publication.offer_block(block + block)
    assert publication.offer_block(block) == T
    assert publication.offer_block(other.memory.get_bytes(T, 64)) == ADMIN_ACTION
    assert publication.offer_block(other.memory.get_bytes(T, 64)) == T + 64


def test_rejects_an_invalid_log_or_counter(core: Core):
    log = Log(core)
    for counter in (-1, 8):
        with pytest.raises(ValueError, match="outside"):
            core.append.ConcurrentAppender(log.memory, log.counters, counter)
    log.memory.put_i32(log.buffers.metadata_offset + layout.LOG_MTU_LENGTH_OFFSET, 33)
    with pytest.raises(ValueError, match="MTU"):
        log.concurrent()
    log.memory.put_i32(log.buffers.metadata_offset + layout.LOG_TERM_LENGTH_OFFSET, 1 << 20)
    with pytest.raises(ValueError, match="terms of"):
        log.concurrent()
