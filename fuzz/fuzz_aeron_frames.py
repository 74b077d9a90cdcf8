"""Aeron's frames: any datagram is frames or refused by a named rule. Frames encode to the same bytes and have a text."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from mainstem.aeron.driver.event_log.frame_text import frame_text
from mainstem.aeron.protocol.frames import (
    Data,
    ErrorFrame,
    Frame,
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
from mainstem.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

_STREAM = {"session_id": 7, "stream_id": 1001}
_PLACE = _STREAM | {"term_id": -9, "term_offset": 128}
_NAMES = [ResolutionEntry(name="alpha", address=ip_address(text), port=20991) for text in ("127.0.0.1", "::1")]
SEEDS = [
    Data(**_PLACE, payload=b"payload").encode() + Pad(**_PLACE | {"term_offset": 192}, frame_length=320).encode(),
    Pad(**_PLACE, frame_length=39).encode().ljust(64, b"\0")
    + Data(**_PLACE | {"term_offset": 192}, payload=b"").encode(),
    Heartbeat(**_PLACE).encode(),
    Nak(**_PLACE, length=64).encode(),
    StatusMessage(**_STREAM, receiver_window=4096, receiver_id=5, group_tag=99).encode(),
    ErrorFrame(**_STREAM, receiver_id=5, error_code=13, text="go away", group_tag=99).encode(),
    Setup(**_STREAM, initial_term_id=-9, active_term_id=-8, term_offset=64, term_length=65536, mtu=1408).encode(),
    Rttm(**_STREAM, echo_timestamp=12, receiver_id=5).encode(),
    ResponseSetup(**_STREAM, response_session_id=8).encode(),
    Resolution(entries=tuple(_NAMES)).encode(),
]


def target(data: bytes) -> None:
    """Process one input."""
    assert len(frame_text(data).splitlines()) == 1
    try:
        frames = decode_datagram(data)
    except RemoteProtocolError:
        return
    try:
        encoded = laid_out(frames)
    except LocalProtocolError as error:
        if error.rule != "ERR text":  # replacing invalid UTF-8 makes the text longer
            raise
        return
    again = decode_datagram(encoded)
    assert [type(frame) for frame in again] == [type(frame) for frame in frames]
    assert laid_out(again) == encoded, "a frame does not come back as it was"


def laid_out(frames: Sequence[Frame]) -> bytes:
    """Return a datagram of these frames. A padding frame has only its header at the end, but also its body before other frames."""
    before = b"".join(
        frame.encode().ljust(frame.aligned_length if isinstance(frame, Pad) else 0, b"\0") for frame in frames[:-1]
    )
    return before + frames[-1].encode()
