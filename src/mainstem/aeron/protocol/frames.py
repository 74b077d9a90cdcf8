"""Any datagram: one control frame, or DATA and PAD frames back to back (behaviour, section 13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.aeron.protocol.data import Data, Heartbeat, Pad, decode_stream_frames
from mainstem.aeron.protocol.error import ErrorFrame
from mainstem.aeron.protocol.header import FrameType, read_header, violation
from mainstem.aeron.protocol.nak import Nak
from mainstem.aeron.protocol.resolution import Resolution
from mainstem.aeron.protocol.rttm import Rttm
from mainstem.aeron.protocol.setup import ResponseSetup, Setup
from mainstem.aeron.protocol.status_message import StatusMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ControlFrame = Nak | StatusMessage | ErrorFrame | Setup | Rttm | Resolution | ResponseSetup
Frame = Data | Pad | Heartbeat | ControlFrame

CONTROL_FRAMES: dict[int, Callable[[bytes | memoryview], ControlFrame]] = {
    FrameType.NAK: Nak.decode,
    FrameType.STATUS_MESSAGE: StatusMessage.decode,
    FrameType.ERROR: ErrorFrame.decode,
    FrameType.SETUP: Setup.decode,
    FrameType.RTTM: Rttm.decode,
    FrameType.RESOLUTION: Resolution.decode,
    FrameType.RESPONSE_SETUP: ResponseSetup.decode,
}


def frames(datagram: bytes | memoryview) -> Iterator[Frame]:
    """The frames of a datagram, in order.

    The whole datagram is checked before the first frame is given. Raises RemoteProtocolError, whose ``rule`` names what
    is broken; values that only make sense beside a stream are left to each frame's ``check``.
    """
    header = read_header(datagram)
    if header.type in (FrameType.DATA, FrameType.PAD):
        return iter(decode_stream_frames(datagram))
    decode = CONTROL_FRAMES.get(header.type)
    if decode is None:
        raise violation("frame type", f"{header.type:#x} is not known")
    return iter((decode(datagram),))
