"""The ten frames: the reference's bytes, round trips, and a reader that is fed in arbitrary chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.aqueduct_frames import (
    AckNackUnreliable,
    AckReliable,
    ChannelControl,
    ClosedChannelLost,
    CloseReceiver,
    ConnectionControl,
    FinishSender,
    Frame,
    Message,
    SentUnreliable,
    Version,
)

from mainstem.aqueduct.frames import FrameReader, Incomplete, decode_frame
from mainstem.aqueduct.limits import Limits
from mainstem.errors import RemoteProtocolError

UINT = st.integers(0, 2**64 - 1)
COUNTS = st.lists(st.integers(1, 2**40), max_size=6).map(tuple)
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.just(Version()),
    st.lists(st.tuples(st.just("key"), st.binary(max_size=20)), max_size=3).map(
        lambda pairs: ConnectionControl(tuple(pairs))
    ),
    UINT.map(ChannelControl),
    st.builds(Message, UINT, UINT, st.lists(UINT, max_size=4).map(tuple), st.binary(max_size=300)),
    UINT.map(SentUnreliable),
    COUNTS.map(AckReliable),
    COUNTS.map(AckNackUnreliable),
    UINT.map(FinishSender),
    COUNTS.map(CloseReceiver),
    UINT.map(ClosedChannelLost),
)


@pytest.mark.parametrize(
    ("frame", "encoded"),
    [
        (ConnectionControl(), "0100"),
        (SentUnreliable(5), "0405"),
        (FinishSender(300), "07ac02"),
        (AckReliable((3,)), "050103"),
        (AckReliable((0, 2, 1)), "0503000201"),
        (AckReliable((1, 2, 3)), "0503010203"),
        (CloseReceiver(), "0800"),
        (ChannelControl(0), "0200"),
        (Version(), "ef505fa6600f408e41515545445543540b302e302e302d4146544552"),
    ],
)
def test_frames_are_the_bytes_that_the_specification_says(frame: Frame, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert frame.encode() == data
    assert decode_frame(data, 0, len(data)) == (frame, len(data))


@given(FRAMES)
def test_a_frame_tells_where_it_ends(frame: Frame) -> None:
    data = frame.encode()
    assert decode_frame(data + b"\xff", 0, len(data) + 1) == (frame, len(data))
    for end in range(len(data)):
        with pytest.raises(Incomplete):
            decode_frame(data, 0, end)


@given(st.lists(FRAMES, max_size=8), st.data())
def test_the_reader_gives_the_same_frames_in_whatever_pieces_they_come(
    frames: list[Frame], data: st.DataObject
) -> None:
    encoded = b"".join(frame.encode() for frame in frames)
    reader = FrameReader()
    out = []
    position = 0
    while position < len(encoded):
        size = data.draw(st.integers(1, 40))
        reader.feed(encoded[position : position + size])
        position += size
        while (frame := reader.next_frame()) is not None:
            out.append(frame)
    assert out == frames
    assert reader.buffered == 0


@pytest.mark.parametrize("tag", [0, 10, 238, 240, 255])
def test_refuses_a_frame_type_that_does_not_exist(tag: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_frame(bytes((tag, 0)), 0, 2)
    assert caught.value.rule == "frame type"


def test_refuses_other_magic_at_its_first_wrong_byte() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_frame(b"\xef\x50\x00", 0, 3)
    assert caught.value.rule == "version magic"


def test_refuses_another_version() -> None:
    data = Version(b"0.0.1").encode()
    with pytest.raises(RemoteProtocolError) as caught:
        decode_frame(data, 0, len(data))
    assert caught.value.rule == "version"


def test_refuses_sizes_beyond_the_limits_before_the_bytes_come() -> None:
    limits = Limits(max_payload=10, max_attachments=2)
    for frame, rule in (
        (Message(0, 0, (), bytes(11)), "size limit"),
        (Message(0, 0, (1, 2, 3), b""), "attachment limit"),
        (Message(0, 0, tuple([2**60] * 3), b""), "attachment limit"),
    ):
        data = frame.encode()
        with pytest.raises(RemoteProtocolError) as caught:
            decode_frame(data, 0, len(data), limits)
        assert caught.value.rule == rule


@given(st.binary(max_size=60))
def test_any_bytes_are_frames_or_incomplete_or_refused_by_a_named_rule(data: bytes) -> None:
    reader = FrameReader()
    reader.feed(data)
    rule = "none"
    try:
        while reader.next_frame() is not None:
            pass
    except RemoteProtocolError as error:
        rule = error.rule
    assert rule
