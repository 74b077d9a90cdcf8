from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.aeron.logbuffer import descriptor
from mainstem.errors import ConfigurationError

term_lengths = st.integers(16, 30).map(lambda bits: 1 << bits)
term_ids = st.integers(-(1 << 31), (1 << 31) - 1)


@given(term_lengths, term_ids, st.integers(0, (1 << 31) - 1), st.data())
def test_a_position_gives_back_its_term_id_and_offset(term_length: int, initial: int, count: int, data: st.DataObject):
    offset = data.draw(st.integers(0, term_length - 1))
    bits = descriptor.position_bits(term_length)
    term_id = descriptor.wrap_i32(initial + count)
    position = descriptor.position_of(term_id, offset, initial, bits)
    assert position == count * term_length + offset < descriptor.max_position(term_length)
    assert descriptor.term_id_at(position, initial, bits) == term_id
    assert descriptor.term_offset_at(position, bits) == offset
    assert descriptor.partition_index(position, bits) == count % 3


def test_term_ids_wrap_in_twos_complement():
    assert descriptor.wrap_i32((1 << 31) - 1 + 1) == -(1 << 31)
    assert descriptor.term_count_of(-(1 << 31), (1 << 31) - 1) == 1
    assert descriptor.position_of(-(1 << 31) + 4, 64, (1 << 31) - 2, 16) == 6 * 65536 + 64


@given(term_ids, st.integers(0, (1 << 32) - 1), term_lengths)
def test_a_raw_tail_keeps_its_term_id_and_clamps_its_offset(term_id: int, offset: int, term_length: int):
    raw = descriptor.raw_tail(term_id, offset)
    assert -(1 << 63) <= raw < 1 << 63
    assert descriptor.tail_term_id(raw) == term_id
    assert descriptor.tail_offset(raw, term_length) == min(offset, term_length)


@pytest.mark.parametrize(
    ("length", "framed"),
    [(0, 32), (1, 64), (32, 64), (33, 96), (1376, 1408), (1377, 1408 + 64), (2752, 2816), (4000, 2 * 1408 + 1280)],
)
def test_a_message_is_framed_in_whole_fragments_and_a_rest(length: int, framed: int):
    assert descriptor.framed_length(length, 1376) == framed


def test_the_longest_message_is_an_eighth_of_a_term_and_at_most_16_mib():
    assert descriptor.max_message_length(65536) == 8192
    assert descriptor.max_message_length(1 << 30) == 16 << 20


@pytest.mark.parametrize("length", [0, 65535, 32768, 3 << 16, 1 << 31])
def test_refuses_a_term_length_that_is_not_a_power_of_two_in_range(length: int):
    with pytest.raises(ConfigurationError, match="term length"):
        descriptor.check_term_length(length)


def test_a_log_is_three_terms_and_its_metadata_in_whole_pages():
    assert descriptor.log_length(64 << 20) == 201_330_688
    assert descriptor.log_length(1 << 16, 1 << 21) == 1 << 21
