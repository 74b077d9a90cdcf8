"""Aqueduct's frames by name, for tests that write them."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from mainstem.aqueduct import frames


class Frame(NamedTuple):
    """A frame as `decode_frame` returns it."""

    tag: int
    value: Any

    def encode(self) -> bytes:
        return frames.encode_frame(self.tag, self.value)


ChannelControl = partial(Frame, frames.CHANNEL_CONTROL)
SentUnreliable = partial(Frame, frames.SENT_UNRELIABLE)
AckReliable = partial(Frame, frames.ACK_RELIABLE)
AckNackUnreliable = partial(Frame, frames.ACK_NACK_UNRELIABLE)
FinishSender = partial(Frame, frames.FINISH_SENDER)
ClosedChannelLost = partial(Frame, frames.CLOSED_CHANNEL_LOST)


def Version(version: bytes = frames.VERSION) -> Frame:  # noqa: N802 - a frame's name
    return Frame(frames.VERSION_TAG, version)


def ConnectionControl(headers: frames.Headers = ()) -> Frame:  # noqa: N802 - a frame's name
    return Frame(frames.CONNECTION_CONTROL, headers)


def CloseReceiver(counts: tuple[int, ...] = ()) -> Frame:  # noqa: N802 - a frame's name
    return Frame(frames.CLOSE_RECEIVER, counts)


def Message(channel_id: int, number: int, attachments: tuple[int, ...], payload: bytes) -> Frame:  # noqa: N802 - a frame's name
    return Frame(frames.MESSAGE, (channel_id, number, attachments, payload))
