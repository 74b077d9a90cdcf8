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
def test_frames_encode_as_specified(frame: Frame, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert frame.encode() == data
    assert decode_frame(data, 0, len(data)) == (frame, len(data))


@given(FRAMES)
def test_a_decoded_frame_includes_its_end_offset(frame: Frame) -> None:
    data = frame.encode()
    assert decode_frame(data + b"\xff", 0, len(data) + 1) == (frame, len(data))
    for end in range(len(data)):
        with pytest.raises(Incomplete):
            decode_frame(data, 0, end)


@given(st.lists(FRAMES, max_size=8), st.data())
def test_decoding_does_not_depend_on_how_the_input_is_split(frames: list[Frame], data: st.DataObject) -> None:
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
def test_an_unknown_frame_type_is_rejected(tag: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_frame(bytes((tag, 0)), 0, 2)
    assert caught.value.rule == "frame type"


def test_wrong_magic_is_rejected_at_the_first_wrong_byte() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode_frame(b"\xef\x50\x00", 0, 3)
    assert caught.value.rule == "version magic"


def test_an_unsupported_version_is_rejected() -> None:
    data = Version(b"0.0.1").encode()
    with pytest.raises(RemoteProtocolError) as caught:
        decode_frame(data, 0, len(data))
    assert caught.value.rule == "version"


def test_sizes_above_the_limits_are_rejected_before_their_bytes_arrive() -> None:
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
def test_arbitrary_bytes_decode_or_are_incomplete_or_violate_a_named_rule(data: bytes) -> None:
    reader = FrameReader()
    reader.feed(data)
    rule = "none"
    try:
        while reader.next_frame() is not None:
            pass
    except RemoteProtocolError as error:
        rule = error.rule
    assert rule
