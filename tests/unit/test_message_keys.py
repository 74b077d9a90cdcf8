from __future__ import annotations

import random  # noqa: TC003 - hypothesis reads the annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.errors import RemoteProtocolError
from mainstem.message_keys import (
    KEY_MASK,
    MAX_PARTITIONS,
    MAX_ROWS,
    Deduplicator,
    FrameSplitter,
    MessageKey,
    framed,
)

EPOCHS, PARTITIONS, ROWS = st.integers(0, KEY_MASK), st.integers(0, MAX_PARTITIONS - 1), st.integers(0, MAX_ROWS - 1)


@given(EPOCHS, PARTITIONS, ROWS, st.binary())
def test_a_key_is_read_from_a_reserved_value_or_a_payload(epoch: int, partition: int, row: int, payload: bytes) -> None:
    key = MessageKey(epoch, partition, row)
    value = key.reserved_value()
    assert 0 <= value < 1 << 63
    again = MessageKey.of_reserved_value(value)
    assert again.reserved_value() == value
    repeats = Deduplicator()
    assert (repeats.is_new(key), repeats.is_new(again)) == (True, False)
    assert MessageKey.decode(key.encode() + payload) == key


@given(EPOCHS, st.integers(1, 50_000_000), PARTITIONS, PARTITIONS, ROWS, ROWS)
def test_successive_writes_share_no_key(
    epoch: int, later: int, partition: int, other: int, row: int, another: int
) -> None:
    values = {MessageKey(epoch, partition, row).reserved_value()}
    values.add(MessageKey((epoch + later) & KEY_MASK, other, another).reserved_value())
    assert len(values) == 2


def test_the_starts_of_successive_writes_are_a_write_apart() -> None:
    # The closest pairs of a sequence that the golden ratio spreads are Fibonacci numbers apart.
    number, following = 1, 2
    while number < 50_000_000:
        start = MessageKey(number, 0, 0).reserved_value()
        assert min(start, KEY_MASK + 1 - start) >= MAX_PARTITIONS * MAX_ROWS
        number, following = following, number + following


def test_a_key_without_room_raises() -> None:
    for key in (MessageKey(0, 0, MAX_ROWS), MessageKey(0, MAX_PARTITIONS, 0), MessageKey(KEY_MASK + 1, 0, 0)):
        with pytest.raises(ValueError, match="has room for"):
            key.reserved_value()
    with pytest.raises(RemoteProtocolError, match="no key"):
        MessageKey.decode(b"short")


@given(st.randoms(use_true_random=False))
def test_each_message_is_accepted_once_and_in_order_despite_resends(rng: random.Random) -> None:
    taken: list[MessageKey] = []
    repeats = Deduplicator()
    sizes = {(epoch, partition): rng.randrange(6) for epoch in range(4) for partition in range(3)}
    for (epoch, partition), size in sizes.items():
        attempts = [size] + [rng.randrange(size + 1) for _ in range(rng.randrange(3))]
        for rows in sorted(attempts):
            for row in range(rows):
                key = MessageKey(epoch, partition, row)
                if repeats.is_new(key):
                    taken.append(key)
    assert taken == [MessageKey(*source, row) for source, size in sizes.items() for row in range(size)]


def test_a_retry_after_a_loss_brings_only_what_is_missing() -> None:
    repeats = Deduplicator()
    assert [row for row in (0, 1, 4, 5) if repeats.is_new(MessageKey(1, 0, row))] == [0, 1, 4, 5]
    assert [row for row in range(8) if repeats.is_new(MessageKey(1, 0, row))] == [2, 3, 6, 7]


def test_a_filter_forgets_the_oldest_keys() -> None:
    repeats = Deduplicator(remembered=2)
    assert all(repeats.is_new(MessageKey(epoch, 0, 0)) for epoch in (1, 2, 3))
    assert not repeats.is_new(MessageKey(3, 0, 0))
    assert repeats.is_new(MessageKey(1, 0, 0))


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(1, 17))
def test_messages_are_decoded_however_the_input_is_split(messages: list[bytes], piece: int) -> None:
    data = b"".join(map(framed, messages))
    splitter, found = FrameSplitter(), []
    for at in range(0, len(data), piece):
        found += splitter.feed(data[at : at + piece])
    assert found == messages
    assert splitter.is_between_messages


def test_an_invalid_length_is_rejected_before_its_bytes_arrive() -> None:
    with pytest.raises(RemoteProtocolError, match="is too long"):
        FrameSplitter().feed(b"\xff\xff\xff\xff")


def test_a_partition_that_is_still_sent_is_not_the_oldest() -> None:
    repeats = Deduplicator(remembered=2)
    for epoch, row in ((1, 0), (2, 0), (1, 1), (3, 0)):
        assert repeats.is_new(MessageKey(epoch, 0, row))
    assert not repeats.is_new(MessageKey(1, 0, 1))
