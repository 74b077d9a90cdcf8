"""One QUIC stream of a connection, as one side tracks it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from mainstem.aqueduct.frames import Frame, FrameReader
from mainstem.aqueduct.state import direct

if TYPE_CHECKING:
    from mainstem.aqueduct.halves import Half, ReceiverHalf

OPENED_BY_SERVER = 1
UNIDIRECTIONAL = 2


@direct
class Role(Enum):
    """The purpose of a stream, as determined by its first frames."""

    NEW = auto()
    CONNECTION = auto()
    CONTROL = auto()
    MESSAGES = auto()
    NOTICE = auto()
    """A single ClosedChannelLost frame."""
    ABANDONED = auto()
    """Everything that still arrives on the stream is dropped."""


@dataclass(slots=True, eq=False, kw_only=True)
class Stream(FrameReader):
    stream_id: int
    role: Role
    # The half that the stream controls, or the receiver of its last message.
    half: Half | None = None
    # Bytes of this stream that the connection counts as buffered.
    accounted: int = 0
    frames: int = 0
    versioned: bool = False
    must_begin_with_version: bool = False
    # Whether FinishSender or CloseReceiver has arrived, which must be the last frame of its direction.
    last_seen: bool = False
    # The receiver with a full queue that this stream is waiting for, and the frame that did not fit.
    blocked_on: ReceiverHalf | None = None
    held_frame: Frame | None = None
    # The code of a reset that arrived while the stream was held.
    held_reset: int | None = None
    fin: bool = False
    in_done: bool = False
    out_done: bool = False
    # Whether the peer is known to have seen this stream, and the code of a reset that is waiting for that.
    heard: bool = False
    reset_pending: int | None = None

    @property
    def is_bidirectional(self) -> bool:
        return not self.stream_id & UNIDIRECTIONAL
