"""Frames as text lines, in the reference's words, whatever the bytes are."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.aeron.driver.event_log.frame_text import frame_text, read_nak
from mainstem.aeron.protocol.frames import (
    Data,
    ErrorFrame,
    Nak,
    Pad,
    Resolution,
    ResolutionEntry,
    ResponseSetup,
    Rttm,
    Setup,
    StatusMessage,
)

STREAM = {"session_id": 7, "stream_id": 1001}
DATA = Data(**STREAM, term_id=-9, term_offset=128, payload=bytes(12)).encode()
SETUP = Setup(
    **STREAM, initial_term_id=-9, active_term_id=-8, term_offset=64, term_length=65536, mtu=1408, ttl=3, flags=0x40
).encode()
STATUS = StatusMessage(**STREAM, receiver_id=-5, flags=0x80).encode()
NAK = Nak(**STREAM, term_id=-9, term_offset=128, length=64).encode()
RES = Resolution(entries=(ResolutionEntry(name="alpha", address=ip_address("127.0.0.1"), port=20991, is_self=True),))

VECTORS = {
    "type=DATA flags=11000000 frameLength=44 sessionId=7 streamId=1001 termId=-9 termOffset=128": DATA,
    "type=PAD flags=11000000 frameLength=64 sessionId=7 streamId=1001 termId=-9 termOffset=128": Pad(
        **STREAM, term_id=-9, term_offset=128, frame_length=64
    ).encode(),
    "type=NAK flags=00000000 frameLength=28 sessionId=7 streamId=1001 termId=-9 termOffset=128 length=64": NAK,
    "type=SM flags=10000000 frameLength=36 sessionId=7 streamId=1001 termId=0 termOffset=0 receiverWindowLength=0 "
    "receiverId=-5": STATUS,
    "type=ERR flags=00001000 frameLength=47 sessionId=7 streamId=1001 receiverId=-5 groupTag=99 errorCode=13 "
    'errorMessage="go away"': ErrorFrame(
        **STREAM, receiver_id=-5, group_tag=99, error_code=13, text="go away"
    ).encode(),
    "type=SETUP flags=01000000 frameLength=40 sessionId=7 streamId=1001 activeTermId=-8 initialTermId=-9 termOffset=64 "
    "termLength=65536 mtu=1408 ttl=3": SETUP,
    "type=RTT flags=10000000 frameLength=40 sessionId=7 streamId=1001 echoTimestampNs=12 receptionDelta=0 "
    "receiverId=-5": Rttm(**STREAM, echo_timestamp=12, receiver_id=-5, flags=0x80).encode(),
    "type=RES flags=00000000 frameLength=32 [resType=1 flags=10000000 port=20991 ageInMs=0 address=127.0.0.1 "
    "name=alpha]": RES.encode(),
    "type=RSP_SETUP flags=00000000 frameLength=20 sessionId=7 streamId=1001 responseSessionId=8": ResponseSetup(
        **STREAM, response_session_id=8
    ).encode(),
    "type=ATS_DATA flags=11000000 frameLength=44 sessionId=7 streamId=1001 termId=-9 termOffset=128": (
        DATA[:6] + b"\x08\0" + DATA[8:]
    ),
    "type=unknown frame type (0xffff) version=0x0 flags=00000000 frameLength=8": bytes.fromhex("080000000000ffff"),
    "type=NAK flags=00000000 frameLength=28 (cut short at 27 bytes)": NAK[:27],
    "type=unknown frame type length=3": b"abc",
}


@pytest.mark.parametrize("text", VECTORS)
def test_a_frame_is_described_in_the_references_words(text: str) -> None:
    assert frame_text(VECTORS[text]) == text


def test_a_data_frames_payload_is_shown_on_request() -> None:
    payload = DATA[32 : int.from_bytes(DATA[:4], "little")]
    assert frame_text(DATA, with_data=True) == f"{frame_text(DATA)} payload={payload.hex()}"
    assert frame_text(NAK, with_data=True) == frame_text(NAK)


def test_text_from_the_network_stays_on_one_line() -> None:
    error = ErrorFrame(**STREAM, receiver_id=1, error_code=13, text="one\nDRIVER: FRAME_IN two\r").encode()
    assert "\n" not in frame_text(error)
    assert "\r" not in frame_text(error)


def test_only_a_whole_nak_is_one() -> None:
    found = read_nak(NAK)
    assert found is not None
    assert (found.session_id, found.term_id, found.term_offset, found.length) == (7, -9, 128, 64)
    assert read_nak(NAK[:27]) is None
    assert read_nak(NAK[:4] + b"\1" + NAK[5:]) is None
    assert read_nak(DATA) is None


@given(
    kind=st.sampled_from([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xFFFF]),
    rest=st.binary(max_size=120),
    length=st.integers(-(1 << 31), (1 << 31) - 1),
)
def test_any_bytes_are_described_in_one_line(kind: int, rest: bytes, length: int) -> None:
    text = frame_text(struct.pack("<iBBH", length, 0, 0, kind) + rest)
    assert text.startswith("type=")
    assert len(text.splitlines()) == 1
    text.encode()
