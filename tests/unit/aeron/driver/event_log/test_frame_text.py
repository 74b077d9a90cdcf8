"""Frames as lines: the reference's words, whatever the bytes are."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.aeron.driver import control_frames
from mainstem.aeron.driver.event_log.frame_text import frame_text, read_nak
from mainstem.aeron.protocol.resolution import Resolution, ResolutionEntry

DATA = struct.pack("<iBBHiiiiq", 44, 0, 0xC0, 1, 128, 7, 1001, -9, 0) + bytes(32)
SETUP = struct.pack("<iBBHiiiiiiii", 40, 0, 0x40, 5, 64, 7, 1001, -9, -8, 65536, 1408, 3)
STATUS = control_frames.eliciting_status(7, 1001, receiver_id=-5, group_tag=None)
NAK = struct.pack("<iBBHiiiii", 28, 0, 0, 2, 7, 1001, -9, 128, 64)
RES = Resolution(entries=(ResolutionEntry(name="alpha", address=ip_address("127.0.0.1"), port=20991, is_self=True),))

VECTORS = {
    "type=DATA flags=11000000 frameLength=44 sessionId=7 streamId=1001 termId=-9 termOffset=128": DATA,
    "type=PAD flags=11000000 frameLength=64 sessionId=7 streamId=1001 termId=-9 termOffset=128": struct.pack(
        "<iBBHiiiiq", 64, 0, 0xC0, 0, 128, 7, 1001, -9, 0
    ),
    "type=NAK flags=00000000 frameLength=28 sessionId=7 streamId=1001 termId=-9 termOffset=128 length=64": NAK,
    "type=SM flags=10000000 frameLength=36 sessionId=7 streamId=1001 termId=0 termOffset=0 receiverWindowLength=0 "
    "receiverId=-5": STATUS,
    "type=ERR flags=00001000 frameLength=47 sessionId=7 streamId=1001 receiverId=-5 groupTag=99 errorCode=13 "
    'errorMessage="go away"': control_frames.error_frame(
        7, 1001, receiver_id=-5, group_tag=99, code=13, text="go away"
    ),
    "type=SETUP flags=01000000 frameLength=40 sessionId=7 streamId=1001 activeTermId=-8 initialTermId=-9 termOffset=64 "
    "termLength=65536 mtu=1408 ttl=3": SETUP,
    "type=RTT flags=10000000 frameLength=40 sessionId=7 streamId=1001 echoTimestampNs=12 receptionDelta=0 "
    "receiverId=-5": control_frames.round_trip_frame(control_frames.RoundTrip(7, 1001, 12, 0, -5, is_request=True)),
    "type=RES flags=00000000 frameLength=32 [resType=1 flags=10000000 port=20991 ageInMs=0 address=127.0.0.1 "
    "name=alpha]": RES.encode(),
    "type=RSP_SETUP flags=00000000 frameLength=20 sessionId=7 streamId=1001 responseSessionId=8": (
        control_frames.response_setup_frame(7, 1001, 8)
    ),
    "type=ATS_DATA flags=11000000 frameLength=44 sessionId=7 streamId=1001 termId=-9 termOffset=128": (
        DATA[:6] + b"\x08\0" + DATA[8:]
    ),
    "type=unknown frame type (0xffff) version=0x0 flags=00000000 frameLength=8": bytes.fromhex("080000000000ffff"),
    "type=NAK flags=00000000 frameLength=28 (cut short at 27 bytes)": NAK[:27],
    "type=unknown frame type length=3": b"abc",
}


@pytest.mark.parametrize("text", VECTORS)
def test_a_frame_is_told_in_the_references_words(text: str) -> None:
    assert frame_text(VECTORS[text]) == text


def test_a_text_from_the_network_stays_on_its_line() -> None:
    error = control_frames.error_frame(
        7, 1001, receiver_id=1, group_tag=None, code=13, text="one\nDRIVER: FRAME_IN two\r"
    )
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
def test_whatever_arrives_is_told_in_one_line(kind: int, rest: bytes, length: int) -> None:
    text = frame_text(struct.pack("<iBBH", length, 0, 0, kind) + rest)
    assert text.startswith("type=")
    assert len(text.splitlines()) == 1
    text.encode()
