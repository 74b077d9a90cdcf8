"""Frames against handwritten vectors, and datagrams that break the rules."""

from __future__ import annotations

import random
import tomllib
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem._core import layout
from mainstem.aeron.protocol.frames import (
    CONTROL_FRAMES,
    Data,
    ErrorFrame,
    Heartbeat,
    Nak,
    Pad,
    Resolution,
    ResolutionEntry,
    ResponseSetup,
    Rttm,
    Setup,
    StatusMessage,
    decode_datagram,
)
from mainstem.aeron.protocol.layouts import LAYOUTS, FrameType, Header
from mainstem.errors import LocalProtocolError, RemoteProtocolError

VECTORS = tomllib.loads((Path(__file__).parents[3] / "vectors" / "aeron_frames.toml").read_text())["vector"]
CLASSES = {
    kind.__name__: kind
    for kind in (Data, Pad, Heartbeat, Nak, StatusMessage, ErrorFrame, Setup, Rttm, Resolution, ResponseSetup)
}
STREAM = {"session_id": 1, "stream_id": 2, "term_id": 3}


def frame_of(vector):
    if "entries" in vector:
        entries = [entry | {"address": ip_address(entry["address"])} for entry in vector["entries"]]
        return Resolution(entries=tuple(ResolutionEntry(**entry) for entry in entries))
    fields = vector["fields"]
    return CLASSES[vector["class"]](
        **{name: bytes.fromhex(v) if name == "payload" else v for name, v in fields.items()}
    )


def bytes_of(vector):
    return bytes.fromhex("".join(vector["hex"]))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["class"])
def test_encodes_and_decodes_the_written_bytes(vector):
    frame, data = frame_of(vector), bytes_of(vector)
    assert frame.encode() == data
    assert decode_datagram(data) == [frame]
    assert decode_datagram(memoryview(data)) == [frame]


def test_every_frame_type_has_a_vector():
    assert {vector["class"] for vector in VECTORS} == set(CLASSES)
    assert set(CONTROL_FRAMES) | {FrameType.DATA, FrameType.PAD} == {
        kind for kind in FrameType if not kind.name.startswith("ATS") and kind is not FrameType.EXTENSION
    }


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["class"])
def test_a_frame_cut_anywhere_is_refused(vector):
    data = bytes_of(vector)
    for end in range(len(data)):
        with pytest.raises(RemoteProtocolError) as caught:
            decode_datagram(data[:end])
        assert caught.value.rule


def edited(name, *changes, extra=b""):
    """Return the first vector of a class with bytes replaced; each change is (offset, hex)."""
    data = bytearray(next(bytes_of(vector) for vector in VECTORS if vector["class"] == name))
    for offset, text in changes:
        data[offset : offset + len(text) // 2] = bytes.fromhex(text)
    return bytes(data) + extra


@pytest.mark.parametrize(
    ("datagram", "rule"),
    [
        (b"", "datagram length"),
        (bytes(7), "datagram length"),
        (edited("Data", (0, "ffffffff")), "frame length"),
        (edited("Data", (4, "01")), "version"),
        (edited("Data", (0, "1f000000")), "frame length"),
        (edited("Data", (0, "41000000")), "frame length"),
        (edited("Data", (0, "ffffff7f")), "frame length"),
        (edited("Data", (8, "e0ffffff")), "term offset"),
        (edited("Data", (8, "21000000")), "term offset"),
        (edited("Data", extra=bytes(31)), "datagram length"),
        (edited("Data", extra=bytes(32)), "frame length"),  # padding of length zero follows, not a frame
        (edited("Pad", (0, "10000000")), "frame length"),
        (edited("Heartbeat", extra=bytes(32)), "last frame"),
        (edited("Nak", (0, "1d000000")), "frame length"),
        (edited("Setup", (4, "02")), "version"),
        (edited("ErrorFrame", (36, "08000000")), "ERR text"),
        (edited("ErrorFrame", (36, "ffffffff")), "ERR text"),
        (edited("ErrorFrame", (36, "00040000"), extra=bytes(1024)), "ERR text"),
        (edited("Resolution", (8, "03")), "RES address type"),
        (edited("Resolution", (8, "02")), "RES entry"),
        (edited("Resolution", (20, "ffff")), "RES name"),
        (edited("Resolution", (20, "0b00")), "RES name"),
        (edited("Nak", (6, "0800")), "frame type"),
        (edited("Nak", (6, "0900")), "frame type"),
        (edited("Nak", (6, "0a00")), "frame type"),
        (edited("Nak", (6, "0c00")), "frame type"),
        (edited("Nak", (6, "ffff")), "frame type"),
    ],
)
def test_a_datagram_that_breaks_a_rule_is_refused_by_its_name(datagram, rule):
    with pytest.raises(RemoteProtocolError) as caught:
        decode_datagram(datagram)
    assert type(caught.value) is RemoteProtocolError
    assert caught.value.rule == rule


def run_of(*payloads, **changes):
    offset, out = 0, []
    for payload in payloads:
        out.append(Data(**(STREAM | changes), term_offset=offset, payload=payload))
        offset += out[-1].aligned_length
    return out


def test_a_datagram_holds_frames_back_to_back():
    run = [*run_of(b"a", b"b" * 40, b""), Pad(**STREAM, term_offset=192, frame_length=640)]
    datagram = b"".join(frame.encode() for frame in run)
    assert len(datagram) == 64 + 96 + 32 + 32
    assert decode_datagram(datagram) == run


@pytest.mark.parametrize(
    ("second", "rule"),
    [
        (Data(**STREAM, term_offset=96, payload=b"b"), "contiguous frames"),
        (Data(**STREAM, term_offset=0, payload=b"b"), "contiguous frames"),
        (Data(**(STREAM | {"session_id": 9}), term_offset=64, payload=b"b"), "one stream"),
        (Data(**(STREAM | {"stream_id": 9}), term_offset=64, payload=b"b"), "one stream"),
        (Data(**(STREAM | {"term_id": 9}), term_offset=64, payload=b"b"), "one stream"),
        (Heartbeat(**STREAM, term_offset=64), "heartbeat"),
        (Nak(**STREAM, term_offset=64, length=32), "frame type"),
    ],
)
def test_frames_of_a_datagram_continue_one_stream(second, rule):
    data = second.encode()
    datagram = run_of(b"a")[0].encode() + data + bytes(-len(data) % 32)
    with pytest.raises(RemoteProtocolError) as caught:
        decode_datagram(datagram)
    assert caught.value.rule == rule


def test_control_frames_skip_trailing_bytes():
    nak = Nak(**STREAM, term_offset=64, length=32)
    assert decode_datagram(nak.encode() + b"more") == [nak]


def test_options_of_another_length_than_a_group_tag_are_skipped():
    message = edited("StatusMessage", (0, "28000000"), extra=bytes(4))
    (read,) = decode_datagram(message)
    assert read.group_tag is None


@pytest.mark.parametrize(
    ("frame", "rule"),
    [
        (Data(**STREAM, term_offset=65536, payload=b""), "term range"),
        (Data(**STREAM, term_offset=65504, payload=b"x"), "term range"),
        (Pad(**STREAM, term_offset=65472, frame_length=96), "term range"),
        (Heartbeat(**STREAM, term_offset=65536), "term range"),
        (Heartbeat(**STREAM, term_offset=65568), "term range"),
        (Nak(**STREAM, term_offset=-32, length=32), "NAK range"),
        (Nak(**STREAM, term_offset=33, length=32), "NAK range"),
        (Nak(**STREAM, term_offset=65504, length=64), "NAK range"),
        (Nak(**STREAM, term_offset=0, length=-32), "NAK range"),
    ],
)
def test_values_that_leave_the_term_are_refused(frame, rule):
    with pytest.raises(RemoteProtocolError) as caught:
        frame.check(65536)
    assert caught.value.rule == rule


def test_values_inside_the_term_pass():
    Data(**STREAM, term_offset=65504, payload=b"").check(65536)
    Pad(**STREAM, term_offset=0, frame_length=65536).check(65536)
    Heartbeat(**STREAM, term_offset=65504).check(65536)
    Nak(**STREAM, term_offset=65504, length=32).check(65536)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"consumption_term_offset": 65536}, "SM position"),
        ({"consumption_term_offset": 16}, "SM position"),
        ({"receiver_window": -1}, "SM window"),
        ({"receiver_window": 32769}, "SM window"),
    ],
)
def test_a_status_message_is_checked_against_its_term(change, rule):
    message = {
        "session_id": 1,
        "stream_id": 2,
        "consumption_term_id": 3,
        "consumption_term_offset": 0,
        "receiver_window": 32768,
        "receiver_id": 1,
    }
    StatusMessage(**message).check(65536)
    with pytest.raises(RemoteProtocolError) as caught:
        StatusMessage(**(message | change)).check(65536)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"term_length": 32768}, "SETUP term length"),
        ({"term_length": 1 << 31}, "SETUP term length"),
        ({"term_length": 65537}, "SETUP term length"),
        ({"term_offset": 65536}, "SETUP position"),
        ({"term_offset": 1}, "SETUP position"),
        ({"mtu": 0}, "SETUP mtu"),
        ({"mtu": 1400}, "SETUP mtu"),
        ({"mtu": 65536}, "SETUP mtu"),
        ({"active_term_id": -6}, "SETUP position"),
    ],
)
def test_a_setup_with_invalid_values_is_rejected(change, rule):
    setup = {
        "session_id": 1,
        "stream_id": 2,
        "initial_term_id": -5,
        "active_term_id": 5,
        "term_offset": 0,
        "term_length": 65536,
        "mtu": 1408,
    }
    Setup(**setup).check()
    with pytest.raises(RemoteProtocolError) as caught:
        Setup(**(setup | change)).check()
    assert caught.value.rule == rule


def test_a_setup_may_have_wrapped_term_ids():
    Setup(
        session_id=1,
        stream_id=2,
        initial_term_id=(1 << 31) - 1,
        active_term_id=-(1 << 31),
        term_offset=0,
        term_length=65536,
        mtu=1408,
    ).check()


def test_flags_are_booleans_named_as_questions():
    assert Heartbeat(**STREAM, term_offset=0, flags=0xF0).is_end_of_stream
    assert Heartbeat(**STREAM, term_offset=0, flags=0xF0).is_revoked
    assert not Heartbeat(**STREAM, term_offset=0).is_end_of_stream
    setup, asking = frame_of(VECTORS[9]), frame_of(VECTORS[6])
    assert setup.requests_response
    assert setup.is_group
    assert asking.requests_setup
    assert not asking.is_end_of_stream


def test_a_round_trip_request_is_answered_with_its_own_timestamp():
    request = Rttm(session_id=1, stream_id=2, echo_timestamp=77, receiver_id=5, flags=0x80)
    answer = request.reply(3)
    assert request.is_request
    assert not answer.is_request
    assert (answer.echo_timestamp, answer.reception_delta, answer.receiver_id) == (77, 3, 5)


@pytest.mark.parametrize(
    "frame",
    [
        ErrorFrame(session_id=1, stream_id=2, receiver_id=3, error_code=1, text="x" * 1024),
        Pad(**STREAM, term_offset=0, frame_length=31),
        Nak(**STREAM, term_offset=0, length=1 << 31),
        ResolutionEntry(name="x" * 256, address=ip_address("10.0.0.1"), port=1),
        ResolutionEntry(name="x", address=ip_address("10.0.0.1"), port=65536),
    ],
)
def test_values_that_do_not_fit_are_not_encoded(frame):
    with pytest.raises(LocalProtocolError):
        frame.encode()


def test_a_request_for_a_setup_has_only_its_ids():
    plain = StatusMessage(session_id=0, stream_id=0, receiver_id=0x0102030405060708, flags=layout.SM_FLAG_SEND_SETUP)
    zeros = "00000000 00000000 00000000"
    assert plain.encode() == bytes.fromhex(f"24000000 00 80 0300 00000000 00000000 {zeros} 0807060504030201")
    tagged = StatusMessage(session_id=1, stream_id=2, receiver_id=3, group_tag=99, flags=layout.SM_FLAG_SEND_SETUP)
    data = bytes.fromhex(f"2c000000 00 80 0300 01000000 02000000 {zeros} 0300000000000000 6300000000000000")
    assert tagged.encode() == data
    assert StatusMessage.decode(data) == tagged
    assert StatusMessage.options_length(data) == 8
    assert StatusMessage.decode(plain.encode()).group_tag is None


def test_an_error_frame_carries_its_text_and_perhaps_a_tag():
    error = ErrorFrame(session_id=1, stream_id=2, receiver_id=3, group_tag=99, error_code=13, text="go away", flags=8)
    fixed = "2f000000 00 08 0400 01000000 02000000 0300000000000000 6300000000000000 0d000000 07000000"
    assert error.encode() == bytes.fromhex(fixed) + b"go away"
    assert ErrorFrame.decode(error.encode()) == error
    long = ErrorFrame(session_id=1, stream_id=2, receiver_id=3, error_code=13, text=ErrorFrame.cut("x" * 2000)).encode()
    assert long[24:32] == b"\xff" * 8
    assert len(long) == 40 + 1023
    assert ErrorFrame.decode(long).group_tag is None
    assert ErrorFrame.cut("é" * 1000) == "é" * 511


def test_a_text_that_is_not_utf8_is_replaced():
    data = edited("ErrorFrame", (40, "ff"))
    assert ErrorFrame.decode(data).text == "\ufffdo away"


def test_a_round_trip_frame_is_a_request_or_a_reply():
    request = Rttm(session_id=1, stream_id=2, echo_timestamp=3, reception_delta=4, receiver_id=5, flags=0x80)
    data = "28000000 00 80 0600 01000000 02000000 0300000000000000 0400000000000000 0500000000000000"
    assert request.encode() == bytes.fromhex(data)
    assert Rttm.decode(request.encode()) == request
    assert request.reply().encode()[5] == 0


def test_a_response_setup_names_the_session_of_the_response_stream():
    data = ResponseSetup(session_id=1, stream_id=2, response_session_id=-3).encode()
    assert data == bytes.fromhex("14000000 00 00 0b00 01000000 02000000 fdffffff")
    assert Header.read(data).type == FrameType.RESPONSE_SETUP


def test_a_setup_is_read_field_by_field():
    data = "28000000 00 40 0500 20000000 01000000 02000000 03000000 04000000 00000100 80050000 05000000"
    fields = {
        "initial_term_id": 3,
        "active_term_id": 4,
        "term_offset": 32,
        "term_length": 65_536,
        "mtu": 1_408,
        "ttl": 5,
    }
    assert Setup.decode(bytes.fromhex(data)) == Setup(session_id=1, stream_id=2, flags=0x40, **fields)


def test_every_frame_type_has_a_layout():
    assert set(LAYOUTS) == set(FrameType) - {FrameType.EXTENSION}
    for frame in (frame_of(vector) for vector in VECTORS):
        assert len(frame.encode()) >= LAYOUTS[frame.type].length


def test_a_frame_that_was_cut_on_its_way_to_python_is_read():
    options = bytes(2000 - layout.SM_LENGTH)
    message = edited("StatusMessage", (0, "d0070000"), extra=options)[:1088]
    assert StatusMessage.read(message).group_tag == 0
    assert StatusMessage.options_length(message) == 1088 - layout.SM_LENGTH


@pytest.mark.fuzz
@given(st.binary(max_size=200))
def test_random_bytes_are_frames_or_refused(data):
    try:
        decode_datagram(data)
    except RemoteProtocolError:
        return


@pytest.mark.fuzz
def test_mutated_datagrams_are_frames_that_read_back_or_refused():
    rng = random.Random(20260101)
    datagrams = [bytes_of(vector) for vector in VECTORS]
    for _ in range(20_000):
        data = bytearray(rng.choice(datagrams))
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
        if rng.random() < 0.2:
            data = data[: rng.randrange(len(data) + 1)]
        try:
            read = decode_datagram(data)
        except RemoteProtocolError as error:
            assert error.rule  # noqa: PT017 - either outcome is right
            continue
        again = list(decode_datagram(b"".join(frame.encode() for frame in read)))
        assert [type(frame) for frame in again] == [type(frame) for frame in read]
