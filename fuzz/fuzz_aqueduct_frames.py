"""Aqueduct's frame reader: any bytes are frames, the beginning of one, or refused by a named rule, however they are split."""

from __future__ import annotations

from mainstem.aqueduct.frames import Frame, FrameReader, encode_frame
from mainstem.aqueduct.limits import Limits
from mainstem.errors import RemoteProtocolError

LIMITS = Limits(max_payload=1 << 16)


def read(data: bytes, pieces: int) -> tuple[list[Frame], str]:
    reader = FrameReader(LIMITS)
    out: list[Frame] = []
    try:
        for start in range(0, len(data), pieces):
            reader.feed(data[start : start + pieces])
            while (frame := reader.next_frame()) is not None:
                out.append(frame)
    except RemoteProtocolError as error:
        return out, error.rule
    return out, ""


def target(data: bytes) -> None:
    """Process one input."""
    whole, rule = read(data, max(1, len(data)))
    assert (whole, rule) == read(data, 1), "reading depends on how the bytes were cut"
    for frame in whole:
        encoded = encode_frame(*frame)
        again, none = read(encoded, len(encoded))
        assert again == [frame], "a frame does not come back as it was"
        assert none == ""
